"""Reading HTTP bodies within a limit."""

from starlette.requests import ClientDisconnect, Request

from pdcluster_worker.core.errors import BodyTooLarge, ClientGone


async def read_body(request: Request, *, bytes_max: int) -> bytes:
    """The whole body. Stops reading at the limit, whatever Content-Length claims."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > bytes_max:
        raise BodyTooLarge(f"body of {declared[:20]} bytes, at most {bytes_max}")
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > bytes_max:
                raise BodyTooLarge(f"body is larger than {bytes_max} bytes")
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise ClientGone("the client left while sending its body") from error
    return b"".join(chunks)
