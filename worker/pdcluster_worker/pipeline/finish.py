"""When an answer ends, decided from its last token."""

from pdcluster_worker.pipeline.request import Request


def finish_of(request: Request, token: int) -> tuple[str | None, int | None]:
    """``(finish, matched stop token)`` after ``token`` was appended to the output.

    ``finish`` is "stop", "length" or None. A handed-over first token is judged by the same rule
    (F48). Stop strings are the frontend's: it owns the tokenizer.
    """
    count = len(request.output)
    if count >= request.sampling.min_new_tokens and token in request.stops:
        return "stop", token
    if count >= request.max_new:
        return "length", None
    return None, None
