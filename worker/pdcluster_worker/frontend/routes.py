"""Every HTTP endpoint of a worker, as one table; the application and the docs are made from it."""

from dataclasses import dataclass
from typing import Final

from pdcluster_worker.frontend import control, info, native, openai, tokens
from pdcluster_worker.frontend.errors import Api
from pdcluster_worker.frontend.fields import (
    ABORT_FIELDS,
    CHAT_FIELDS,
    COMPLETION_FIELDS,
    DETOKENIZE_FIELDS,
    GENERATE_FIELDS,
    TOKENIZE_FIELDS,
    Field,
)
from pdcluster_worker.frontend.frontend import Handler
from pdcluster_worker.frontend.params import Params

_DEFAULTS: Final = Params()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One row. ``fields`` are of the JSON body; endpoints without them read no body."""

    path: str
    methods: tuple[str, ...]
    handler: Handler
    api: Api
    doc: str
    fields: tuple[Field, ...] = ()
    defaults: Params = _DEFAULTS
    generates: bool = False  # takes sampling and leg fields


ENDPOINTS: Final = (
    Endpoint(
        path="/v1/chat/completions",
        methods=("POST",),
        handler=openai.chat,
        api=Api.OPENAI,
        doc="Answer a conversation.",
        fields=CHAT_FIELDS,
        defaults=openai.CHAT_DEFAULTS,
        generates=True,
    ),
    Endpoint(
        path="/v1/completions",
        methods=("POST",),
        handler=openai.completions,
        api=Api.OPENAI,
        doc="Continue a text.",
        fields=COMPLETION_FIELDS,
        defaults=openai.COMPLETION_DEFAULTS,
        generates=True,
    ),
    Endpoint(
        path="/generate",
        methods=("POST", "PUT"),
        handler=native.generate,
        api=Api.NATIVE,
        doc="Continue a text or token ids, in SGLang's shape.",
        fields=GENERATE_FIELDS,
        defaults=native.DEFAULTS,
        generates=True,
    ),
    *(
        Endpoint(
            path=path,
            methods=("POST",),
            handler=tokens.tokenize,
            api=Api.OPENAI,
            doc="Tokens of texts or of a conversation.",
            fields=TOKENIZE_FIELDS,
        )
        for path in ("/v1/tokenize", "/tokenize")
    ),
    *(
        Endpoint(
            path=path,
            methods=("POST",),
            handler=tokens.detokenize,
            api=Api.OPENAI,
            doc="Text of tokens.",
            fields=DETOKENIZE_FIELDS,
        )
        for path in ("/v1/detokenize", "/detokenize")
    ),
    Endpoint(
        path="/abort_request",
        methods=("POST",),
        handler=control.abort_request,
        api=Api.NATIVE,
        doc="End requests of this worker by name; 200 also when there is none.",
        fields=ABORT_FIELDS,
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
            doc="200 while requests are taken; 503 while loading, draining and hanging.",
        )
        for path in ("/health", "/ready")
    ),
    Endpoint(
        path="/live",
        methods=("GET",),
        handler=info.live,
        api=Api.NATIVE,
        doc="200 unless a restart would help: 503 when the scheduler hangs.",
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
        path="/health_generate",
        methods=("GET",),
        handler=control.health_generate,
        api=Api.NATIVE,
        doc="One token through the engine, without a peer and without a place in a queue; any pass "
        "that ends answers it. 503 after 20 s without one.",
    ),
    Endpoint(
        path="/flush_cache",
        methods=("GET", "POST"),
        handler=control.flush_cache,
        api=Api.NATIVE,
        doc="200 when no request is live, which leaves nothing cached; 400 otherwise, after "
        "`?timeout=` seconds.",
    ),
    Endpoint(
        path="/get_load",
        methods=("GET",),
        handler=control.get_load,
        api=Api.NATIVE,
        doc="The older, shorter form of /v1/loads.",
    ),
    Endpoint(
        path="/v1/loads",
        methods=("GET",),
        handler=info.loads,
        api=Api.NATIVE,
        doc="Queue depths and memory; `?include=` names parts, separated by commas. 503 when the "
        "scheduler does not answer.",
    ),
    Endpoint(
        path="/metrics",
        methods=("GET",),
        handler=info.metrics,
        api=Api.NATIVE,
        doc="Prometheus text, of the frontend and the scheduler.",
    ),
)
