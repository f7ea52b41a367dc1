from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WORKER_STATE_UNSPECIFIED: _ClassVar[WorkerState]
    WORKER_STATE_STARTING: _ClassVar[WorkerState]
    WORKER_STATE_SERVING: _ClassVar[WorkerState]
    WORKER_STATE_DRAINING: _ClassVar[WorkerState]
    WORKER_STATE_HUNG: _ClassVar[WorkerState]
    WORKER_STATE_GONE: _ClassVar[WorkerState]
WORKER_STATE_UNSPECIFIED: WorkerState
WORKER_STATE_STARTING: WorkerState
WORKER_STATE_SERVING: WorkerState
WORKER_STATE_DRAINING: WorkerState
WORKER_STATE_HUNG: WorkerState
WORKER_STATE_GONE: WorkerState

class GetStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class WatchStatusRequest(_message.Message):
    __slots__ = ("interval_s",)
    INTERVAL_S_FIELD_NUMBER: _ClassVar[int]
    interval_s: float
    def __init__(self, interval_s: _Optional[float] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("state", "age_s", "reason", "identity", "stages", "pages", "rows", "loop", "totals", "peers", "last_errors")
    STATE_FIELD_NUMBER: _ClassVar[int]
    AGE_S_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LOOP_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    LAST_ERRORS_FIELD_NUMBER: _ClassVar[int]
    state: WorkerState
    age_s: float
    reason: str
    identity: Identity
    stages: _containers.RepeatedCompositeFieldContainer[StageDepth]
    pages: PoolUse
    rows: PoolUse
    loop: Loop
    totals: Totals
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    last_errors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, state: _Optional[_Union[WorkerState, str]] = ..., age_s: _Optional[float] = ..., reason: _Optional[str] = ..., identity: _Optional[_Union[Identity, _Mapping]] = ..., stages: _Optional[_Iterable[_Union[StageDepth, _Mapping]]] = ..., pages: _Optional[_Union[PoolUse, _Mapping]] = ..., rows: _Optional[_Union[PoolUse, _Mapping]] = ..., loop: _Optional[_Union[Loop, _Mapping]] = ..., totals: _Optional[_Union[Totals, _Mapping]] = ..., peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., last_errors: _Optional[_Iterable[str]] = ...) -> None: ...

class Identity(_message.Message):
    __slots__ = ("pod_name", "pod_uid", "cluster", "role", "instance", "fingerprint", "version", "uptime_s")
    POD_NAME_FIELD_NUMBER: _ClassVar[int]
    POD_UID_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UPTIME_S_FIELD_NUMBER: _ClassVar[int]
    pod_name: str
    pod_uid: str
    cluster: str
    role: str
    instance: str
    fingerprint: str
    version: str
    uptime_s: float
    def __init__(self, pod_name: _Optional[str] = ..., pod_uid: _Optional[str] = ..., cluster: _Optional[str] = ..., role: _Optional[str] = ..., instance: _Optional[str] = ..., fingerprint: _Optional[str] = ..., version: _Optional[str] = ..., uptime_s: _Optional[float] = ...) -> None: ...

class StageDepth(_message.Message):
    __slots__ = ("stage", "requests")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FIELD_NUMBER: _ClassVar[int]
    stage: str
    requests: int
    def __init__(self, stage: _Optional[str] = ..., requests: _Optional[int] = ...) -> None: ...

class PoolUse(_message.Message):
    __slots__ = ("total", "free", "held", "quarantined")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    total: int
    free: int
    held: int
    quarantined: int
    def __init__(self, total: _Optional[int] = ..., free: _Optional[int] = ..., held: _Optional[int] = ..., quarantined: _Optional[int] = ...) -> None: ...

class Loop(_message.Message):
    __slots__ = ("ticks", "tick_max_ms", "computing_s")
    TICKS_FIELD_NUMBER: _ClassVar[int]
    TICK_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    COMPUTING_S_FIELD_NUMBER: _ClassVar[int]
    ticks: int
    tick_max_ms: float
    computing_s: float
    def __init__(self, ticks: _Optional[int] = ..., tick_max_ms: _Optional[float] = ..., computing_s: _Optional[float] = ...) -> None: ...

class Totals(_message.Message):
    __slots__ = ("requests_done", "requests_failed", "prompt_tokens", "output_tokens", "handoffs", "handoff_bytes", "handoff_seconds")
    REQUESTS_DONE_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_FAILED_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HANDOFFS_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_BYTES_FIELD_NUMBER: _ClassVar[int]
    HANDOFF_SECONDS_FIELD_NUMBER: _ClassVar[int]
    requests_done: int
    requests_failed: int
    prompt_tokens: int
    output_tokens: int
    handoffs: int
    handoff_bytes: int
    handoff_seconds: float
    def __init__(self, requests_done: _Optional[int] = ..., requests_failed: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., output_tokens: _Optional[int] = ..., handoffs: _Optional[int] = ..., handoff_bytes: _Optional[int] = ..., handoff_seconds: _Optional[float] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("instance", "state")
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    instance: str
    state: str
    def __init__(self, instance: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...
