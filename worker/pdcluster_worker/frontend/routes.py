"""Every HTTP endpoint of a worker, as one table; the application and the docs are made from it."""

from dataclasses import dataclass
from typing import Final

from pdcluster_worker.frontend import info, native, openai
from pdcluster_worker.frontend.errors import Api
from pdcluster_worker.frontend.fields import (
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    GENERATE_FIELDS,
    Field,
)
from pdcluster_worker.frontend.frontend import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One row. ``fields`` are of the JSON body; endpoints without them read no body."""

    path: str
    methods: tuple[str, ...]
    handler: Handler
    api: Api
    doc: str
    fields: tuple[Field, ...] = ()


ENDPOINTS: Final = (
    Endpoint(
        path="/v1/chat/completions",
        methods=("POST",),
        handler=openai.chat,
        api=Api.OPENAI,
        doc="Answer a conversation.",
        fields=CHAT_FIELDS,
    ),
    Endpoint(
        path="/v1/completions",
        methods=("POST",),
        handler=openai.completions,
        api=Api.OPENAI,
        doc="Continue a text.",
        fields=COMPLETION_FIELDS,
    ),
    Endpoint(
        path="/generate",
        methods=("POST", "PUT"),
        handler=native.generate,
        api=Api.NATIVE,
        doc="Continue a text or token ids, in SGLang's shape.",
        fields=GENERATE_FIELDS,
    ),
    Endpoint(
        path="/v1/models",
        methods=("GET",),
        handler=info.models,
        api=Api.OPENAI,
        doc="The one model that is served.",
    ),
    *(
        Endpoint(
            path=path,
            methods=("GET",),
            handler=info.health,
            api=Api.NATIVE,
            doc="200 while requests are taken; 503 while loading and draining.",
        )
        for path in ("/health", "/ready")
    ),
    *(
        Endpoint(
            path=path,
            methods=("GET",),
            handler=info.model_info,
            api=Api.NATIVE,
            doc="The model's source and name.",
        )
        for path in ("/model_info", "/get_model_info")
    ),
    *(
        Endpoint(
            path=path,
            methods=("GET",),
            handler=info.server_info,
            api=Api.NATIVE,
            doc="Role, ports and settings.",
        )
        for path in ("/server_info", "/get_server_info")
    ),
    Endpoint(
        path="/v1/loads",
        methods=("GET",),
        handler=info.loads,
        api=Api.NATIVE,
        doc="Queue depths and memory; 503 when the scheduler does not answer.",
    ),
    Endpoint(
        path="/metrics",
        methods=("GET",),
        handler=info.metrics,
        api=Api.NATIVE,
        doc="Prometheus text, of the frontend and the scheduler.",
    ),
)
