"""Text of one answer, token by token, equal in sum to decoding the whole answer.

A token may hold part of a character, and some decoders strip the space before the first token, so
tokens cannot be decoded one by one. The last few tokens are decoded together, with those just
before as context, and what is new is handed out:

    [ context | new tokens ]  ->  text(context + new) minus text(context)

Replacement characters at the very end may still become a character and are held back. Both windows
stay a handful of tokens long, so a token costs the same however long the answer is.
"""

from collections.abc import Callable, Sequence

REPLACEMENT = "\ufffd"
WINDOW_MAX = 16  # tokens; reached only by runs of bytes that are no text
HELD_MAX = 3  # then: an incomplete character has at most 3 bytes, what is before them is invalid
WINDOW_KEPT = 8


class Detokenizer:
    """One answer. ``decode`` maps tokens to text; tokens that ``drops`` accepts add nothing."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], drops: Callable[[int], bool]
    ) -> None:
        self._decode = decode
        self._drops = drops
        self._window: list[int] = []
        self._context = 0  # tokens of the window whose text is out entirely
        self._out = 0  # characters of the window's text that are out

    def push(self, token: int) -> str:
        """Text that became certain with this token; "" while a character is incomplete."""
        if self._drops(token):
            return ""
        self._window.append(token)
        text = self._decode(self._window)
        held = len(text) - len(text.rstrip(REPLACEMENT))
        if len(self._window) > WINDOW_MAX:
            held = min(held, HELD_MAX)
        certain = len(text) - held
        if certain < self._out:
            return ""
        new, self._out = text[self._out : certain], certain
        if held == 0 and new:
            self._advance()
        elif len(self._window) > WINDOW_MAX:
            self._shorten(held)
        return new

    def finish(self) -> str:
        """Text of what was held back, at the end of the answer; then the detokenizer is used up."""
        rest = self._decode(self._window)[self._out :]
        self._window, self._context, self._out = [], 0, 0
        return rest

    def _advance(self) -> None:
        """What was new becomes context; the old context goes."""
        context = self._window[self._context :]
        text = self._decode(context)
        if text:  # a context without text would make a decoder strip the next token's space
            self._window, self._out = context, len(text)
        self._context = len(self._window)

    def _shorten(self, held: int) -> None:
        """A long run without a clean end: keep its last tokens, and the same characters held."""
        self._window = self._window[-WINDOW_KEPT:]
        self._context = 0
        self._out = max(len(self._decode(self._window)) - held, 0)
