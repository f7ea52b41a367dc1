"""What the frontend needs of a tokenizer. `pdcluster_worker.models` has the real one."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Detokenizer(Protocol):
    """Text of one answer, token by token. Never yields half a character."""

    def push(self, token: int) -> str:
        """Text that became certain with this token; "" while a character is incomplete."""
        ...

    def finish(self) -> str:
        """Text of what is left, at the end of the answer."""
        ...


class Tokenizer(Protocol):
    """Pure functions of their arguments; may be called from several threads."""

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        """Tokens of a prompt; ``add_special`` puts in front what the model wants there."""
        ...

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of tokens, special ones left out or by name."""
        ...

    def token_text(self, token: int) -> str:
        """How one token is shown in logprobs; special ones by name."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """What one token adds to the text; may be part of a character."""
        ...

    def apply_chat_template(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Tokens of a conversation, ready for the answer. ValueError when the template refuses."""
        ...

    def detokenizer(self, *, skip_special: bool = True) -> Detokenizer:
        """A fresh one for an answer."""
        ...
