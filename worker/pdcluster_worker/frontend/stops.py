"""Stop strings over text that arrives in pieces.

Text is released as soon as it certainly is not the beginning of a stop string. What a client sees
does not depend on how the text was cut into tokens: the stop string that is complete first wins,
and of two that end at the same place the longer one.
"""


class StopMatcher:
    """Holds back at most the longest stop string less one character."""

    def __init__(self, stops: tuple[str, ...], *, keep: bool = False) -> None:
        """``keep`` leaves the matched stop string in the text."""
        self._stops = stops
        self._keep = keep
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """Text that may be shown now. After a match nothing more is to be pushed."""
        if not self._stops:
            return text
        self._held += text
        found = [
            (at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0
        ]
        if found:
            end, start, self.matched = min(found)
            shown, self._held = self._held[: end if self._keep else start], ""
            return shown
        held = max(map(self._overlap, self._stops))
        shown = self._held[: len(self._held) - held]
        self._held = self._held[len(shown) :]
        return shown

    def finish(self) -> str:
        """The answer has ended: what was held back is text after all."""
        shown, self._held = self._held, ""
        return shown

    def _overlap(self, stop: str) -> int:
        """Length of the longest end of the held text that begins ``stop``."""
        for length in range(min(len(stop) - 1, len(self._held)), 0, -1):
            if self._held.endswith(stop[:length]):
                return length
        return 0
