"""Logprobs as OpenAI's two APIs write them."""

from typing import Any

from pdcluster_worker.frontend.generation import TokenInfo
from pdcluster_worker.frontend.text import Tokenizer


class ChatLogprobs:
    """``{"content": [{token, logprob, bytes, top_logprobs}]}``."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def take(self, tokens: tuple[TokenInfo, ...]) -> dict[str, Any]:
        content = [
            self._one(token.id, token.logprob)
            | {"top_logprobs": [self._one(other, logprob) for other, logprob in token.top]}
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _one(self, token: int, logprob: float | None) -> dict[str, Any]:
        return {
            "token": self._tokenizer.token_text(token),
            "logprob": logprob,
            "bytes": list(self._tokenizer.token_bytes(token)),
        }


class CompletionLogprobs:
    """Parallel lists; ``text_offset`` counts characters from the beginning of the answer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._offset = 0

    def take(self, tokens: tuple[TokenInfo, ...]) -> dict[str, Any]:
        texts = [self._tokenizer.token_text(token.id) for token in tokens]
        offsets: list[int] = []
        for text in texts:
            offsets.append(self._offset)
            self._offset += len(text)
        return {
            "text_offset": offsets,
            "token_logprobs": [token.logprob for token in tokens],
            "tokens": texts,
            "top_logprobs": [self._top(token) for token in tokens],
        }

    def _top(self, token: TokenInfo) -> dict[str, float] | None:
        if token.logprob is None:  # the prompt's first: nothing comes before it
            return None
        return {self._tokenizer.token_text(other): logprob for other, logprob in token.top}
