"""Builds one scheduler from its settings: model, pools, engine, transport, sockets, pipeline."""

import sys
import uuid
from dataclasses import dataclass

import zmq

from pdcluster_api.launch import LaunchSpec
from pdcluster_api.names import Role
from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.geometry import KVGeometry, geometry_of
from pdcluster_worker.core.log import Log
from pdcluster_worker.core.ports import Engine, ModelShape, Region, Transport
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.engine import create_engine, describe
from pdcluster_worker.engine.device import check_device, resolve_device
from pdcluster_worker.kv.allocator import PageAllocator
from pdcluster_worker.kv.host import HostPages
from pdcluster_worker.kv.lease import Pools
from pdcluster_worker.kv.metadata import ROW_BYTES, SCHEMA, Rows
from pdcluster_worker.kv.pool import KVPool, RowPool, allocate_pool, allocate_rows
from pdcluster_worker.kv.rows import RowAllocator
from pdcluster_worker.models.progress import StreamProgress
from pdcluster_worker.models.source import prepare
from pdcluster_worker.pipeline.aggregated import AggregatedPipeline
from pdcluster_worker.pipeline.base import Pipeline, PipelineSettings
from pdcluster_worker.pipeline.decode import DecodePipeline
from pdcluster_worker.pipeline.effects import Effect
from pdcluster_worker.pipeline.peers import PeerLimits, PeerTable
from pdcluster_worker.pipeline.prefill import PrefillPipeline
from pdcluster_worker.rendezvous.client import RendezvousClient
from pdcluster_worker.rendezvous.messages import Register, Row
from pdcluster_worker.roles.executor import Executor, Rim
from pdcluster_worker.roles.loop import Loop
from pdcluster_worker.roles.report import Identity, Report
from pdcluster_worker.roles.sockets import LocalSockets, PeerSockets, Waker
from pdcluster_worker.transfer import create_transport
from pdcluster_worker.transfer.base import TransferOptions
from pdcluster_worker.transfer.settings import compatibility
from pdcluster_worker.wire.codec import write as encode_local
from pdcluster_worker.wire.local import Ready
from pdcluster_worker.wire.peer import FrameCodec, Introduction, WireRegion


@dataclass(slots=True, kw_only=True)
class Scheduler:
    """A loop and what must be closed after it, in this order."""

    loop: Loop
    waker: Waker
    context: zmq.Context[zmq.Socket[bytes]]
    pool: KVPool
    rows: RowPool

    def close(self) -> None:
        """Say Bye if nothing of ours is under way, then free everything."""
        rim = self.loop.rim
        if self.loop.executor.open_writes == 0:
            self.loop.executor.run(self.loop.pipeline.farewell())
        if rim.rendezvous is not None:
            rim.rendezvous.close()
        rim.engine.close()
        if rim.transport is not None:
            rim.transport.close()
        if rim.peers is not None:
            rim.peers.close()
        rim.local.close()
        self.context.term()
        self.waker.close()
        self.rows.close()
        self.pool.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model in memory, and the pool that it computes on."""

    shape: ModelShape
    geometry: KVGeometry
    pool: KVPool
    engine: Engine


def load_model(settings: Settings, *, clock: Clock, log: Log, waker: Waker) -> Loaded:
    """Blocks for the model. Raises ModelError, OSError, ValueError."""
    spec, progress = settings.launch, StreamProgress(sys.stderr)
    check_device(spec.engine.device)
    folder = prepare(spec.model.source, settings.cache_dir, progress=progress)
    shape = describe(folder, spec.engine)
    geometry = geometry_of(shape, page_tokens=spec.engine.page_tokens)
    pool = allocate_pool(
        geometry, pages=spec.engine.kv_pages, device=resolve_device(spec.engine.device)
    )
    engine = create_engine(
        folder, spec.engine, pool=pool.tensor, clock=clock, wake=waker.wake, progress=progress
    )
    log.info("model loaded", folder=folder.name, dtype=shape.dtype, layers=shape.layers)
    return Loaded(shape=shape, geometry=geometry, pool=pool, engine=engine)


class _Builder:
    """The steps of building, sharing what each makes."""

    def __init__(self, settings: Settings, clock: Clock, log: Log, waker: Waker) -> None:
        self.settings = settings
        self.spec: LaunchSpec = settings.launch
        self.clock = clock
        self.log = log
        self.instance = uuid.uuid4().hex
        self.waker = waker
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.peered = self.spec.role is not Role.AGGREGATED

    def build(self, loaded: Loaded) -> Scheduler:
        spec, engine, pool, geometry = self.spec, loaded.engine, loaded.pool, loaded.geometry
        shape = loaded.shape
        rows = allocate_rows(spec.transfer.metadata_rows, ROW_BYTES)
        rim = self._rim(engine, Rows(rows.array), (pool.region, rows.region))
        pipeline = self._pipeline(rim, geometry, shape, HostPages(
            pool.tensor, pages_max=spec.engine.host_pages
        ))  # fmt: skip
        executor = Executor(rim, pipeline, self.log)
        identity = Identity(
            instance=self.instance,
            role=spec.role.value,
            cluster=spec.cluster,
            fingerprint=geometry.fingerprint(),
        )
        report = Report(
            identity, pipeline=pipeline, executor=executor, engine=engine, clock=self.clock,
            log=self.log,
        )  # fmt: skip
        loop = Loop(
            rim=rim, pipeline=pipeline, executor=executor, report=report, waker=self.waker,
            log=self.log, instance=self.instance,
        )  # fmt: skip
        self._announce(rim, geometry, shape, capacity=pipeline.settings.capacity_tokens)
        return Scheduler(loop=loop, waker=self.waker, context=self.context, pool=pool, rows=rows)

    def _rim(self, engine: Engine, rows: Rows, regions: tuple[Region, ...]) -> Rim:
        spec, settings, limits = self.spec, self.settings, self.spec.limits
        transport: Transport | None = None
        peers: PeerSockets | None = None
        codec: FrameCodec | None = None
        rendezvous: RendezvousClient | None = None
        if self.peered:
            transport = create_transport(
                spec.transfer.backend,
                clock=self.clock,
                regions=regions,
                options=TransferOptions(ucx=settings.ucx),
            )
            peers = PeerSockets(
                self.context,
                host=settings.pod_ip,
                port=spec.ports.peer,
                frame_bytes_max=limits.frame_bytes_max,
                queue_frames_max=limits.send_queue_frames_max,
            )
            codec = FrameCodec(
                cluster=spec.cluster,
                token=settings.token,
                instance=self.instance,
                frame_bytes_max=limits.frame_bytes_max,
            )
            rendezvous = RendezvousClient(
                timeout_s=limits.http_timeout_s, token=settings.token, wake=self.waker.wake
            )
        local = LocalSockets(
            self.context,
            requests=settings.requests_address,
            outputs=settings.outputs_address,
            status=settings.status_address,
        )
        return Rim(
            clock=self.clock, engine=engine, local=local, rows=rows, transport=transport,
            peers=peers, codec=codec, rendezvous=rendezvous,
        )  # fmt: skip

    def _pipeline(
        self, rim: Rim, geometry: KVGeometry, shape: ModelShape, host: HostPages
    ) -> Pipeline:
        spec = self.spec
        pools = Pools(
            PageAllocator(spec.engine.kv_pages), RowAllocator(spec.transfer.metadata_rows)
        )
        outbox: list[Effect] = []
        settings = PipelineSettings(
            capacity_tokens=capacity_of(spec, shape),
            page_tokens=geometry.page_tokens,
            page_bytes=geometry.page_bytes,
            row_bytes=ROW_BYTES,
            chunk_tokens=spec.engine.chunk_tokens,
            running_max=spec.engine.running_max,
            extra_slots=extra_slots_of(spec),
            reserved_decode_tokens=spec.transfer.reserved_decode_tokens,
            eos_token_ids=shape.eos_token_ids,
            limits=spec.limits,
        )
        if spec.role is Role.AGGREGATED:
            return AggregatedPipeline(settings, pools, host=host, outbox=outbox)
        limits = spec.limits
        peers = PeerTable(
            instance=self.instance,
            intro=self._introduction(rim, geometry),
            limits=PeerLimits(
                heartbeat_interval_s=limits.heartbeat_interval_s,
                heartbeat_timeout_s=limits.heartbeat_timeout_s,
                transfer_timeout_s=limits.transfer_timeout_s,
                forget_s=limits.orphan_ttl_s,
            ),
            emit=outbox.append,
        )
        if spec.role is Role.PREFILL:
            return PrefillPipeline(
                settings, pools, peers=peers, outbox=outbox, instance=self.instance
            )
        return DecodePipeline(settings, pools, rows=rim.rows, host=host, peers=peers, outbox=outbox)

    def _introduction(self, rim: Rim, geometry: KVGeometry) -> Introduction:
        assert rim.transport is not None
        assert rim.peers is not None
        spec, settings, local = self.spec, self.settings, rim.transport.local()
        return Introduction(
            role=spec.role.value,
            pod_uid=settings.pod_uid,
            host=settings.pod_ip,
            port=rim.peers.port,
            fingerprint=geometry.fingerprint(),
            schema=SCHEMA,
            transport=compatibility(spec.transfer.backend, settings.ucx),
            agent=local.agent,
            metadata=local.metadata,
            regions=tuple(
                WireRegion(r.name, r.address, r.item_bytes, r.items, r.kind, r.device)
                for r in local.regions
            ),
        )

    def _announce(
        self, rim: Rim, geometry: KVGeometry, shape: ModelShape, *, capacity: int
    ) -> None:
        """Register a prefill with its bootstrap server, then tell the frontend."""
        spec, settings = self.spec, self.settings
        if spec.role is Role.PREFILL and rim.rendezvous is not None and rim.peers is not None:
            row = Row(
                instance=self.instance,
                pod_uid=settings.pod_uid,
                peer_host=settings.pod_ip,
                peer_port=rim.peers.port,
                fingerprint=geometry.fingerprint(),
                page_size=geometry.page_tokens,
                kv_cache_dtype=geometry.dtype,
                prefill_http_port=spec.ports.http or None,
            )
            address = (settings.pod_ip, spec.ports.bootstrap)
            rim.rendezvous.submit(Register(address=address, row=row))
        ready = Ready(
            instance=self.instance,
            capacity_tokens=capacity,
            vocab=shape.vocab,
            eos_token_ids=shape.eos_token_ids,
        )
        rim.local.emit(encode_local(ready))


def capacity_of(spec: LaunchSpec, shape: ModelShape) -> int:
    """Longest prompt, and longest prompt plus answer, in tokens."""
    pool = spec.engine.kv_pages * spec.engine.page_tokens
    asked = spec.model.context_tokens_max or shape.context_tokens
    return min(pool, asked, shape.context_tokens)


def extra_slots_of(spec: LaunchSpec) -> int:
    """Of a decode, beyond its running batch; the default is the reference's (spec C 16)."""
    running_max, asked = spec.engine.running_max, spec.transfer.extra_slots
    default = 2 * running_max if running_max <= 32 else 0
    return default if asked < 0 else asked


def assemble(
    settings: Settings, loaded: Loaded, *, clock: Clock, log: Log, waker: Waker
) -> Scheduler:
    """Sockets, transport and pipeline around a model. Raises TransferError, OSError."""
    return _Builder(settings, clock, log, waker).build(loaded)


def build_scheduler(settings: Settings, *, clock: Clock, log: Log) -> Scheduler:
    """Blocks for the model. Raises ModelError, SettingsError, TransferError, OSError."""
    waker = Waker()
    loaded = load_model(settings, clock=clock, log=log, waker=waker)
    return assemble(settings, loaded, clock=clock, log=log, waker=waker)
