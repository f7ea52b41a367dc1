"""How OpenAI's two APIs write a choice: chat completions and legacy completions."""

from typing import Any, Protocol


class Shape(Protocol):
    """One of the two APIs."""

    id_prefix: str
    object_name: str
    chunk_name: str

    def whole(self, text: str, *, index: int, logprobs: Any, finish: str) -> dict[str, Any]:
        """A choice of an unstreamed answer."""
        ...

    def first(self, echo: str, *, index: int, logprobs: Any) -> dict[str, Any] | None:
        """A choice sent before any text of the model."""
        ...

    def part(self, text: str, *, index: int, logprobs: Any, finish: str | None) -> dict[str, Any]:
        """The choice of one event."""
        ...


class ChatShape:
    """/v1/chat/completions."""

    id_prefix = "chatcmpl-"
    object_name = "chat.completion"
    chunk_name = "chat.completion.chunk"

    def whole(self, text: str, *, index: int, logprobs: Any, finish: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def first(self, echo: str, *, index: int, logprobs: Any) -> dict[str, Any] | None:
        delta = {"role": "assistant", "content": echo}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}

    def part(self, text: str, *, index: int, logprobs: Any, finish: str | None) -> dict[str, Any]:
        delta = {"content": text} if text or finish is None else {}
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}


class CompletionShape:
    """/v1/completions."""

    id_prefix = "cmpl-"
    object_name = "text_completion"
    chunk_name = "text_completion"

    def whole(self, text: str, *, index: int, logprobs: Any, finish: str) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def first(self, echo: str, *, index: int, logprobs: Any) -> dict[str, Any] | None:
        return self.part(echo, index=index, logprobs=logprobs, finish=None) if echo else None

    def part(self, text: str, *, index: int, logprobs: Any, finish: str | None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
