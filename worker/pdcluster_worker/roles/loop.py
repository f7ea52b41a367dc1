"""The scheduler loop: a list of steps, none of which waits for a peer, a client or the model.

 1. requests    submits and aborts of the frontend
 2. frames      control frames of peers
 3. lookups     topologies that the rendezvous thread has fetched
 4. notices     what peers have written into our memory (before any deadline is looked at, E55)
 5. writes      what has become of our own writes
 6. results     the forward pass, if it has ended
 7. tick        deadlines, admission, the next pass
 8. effects     the pass is launched first, then writes, frames, answers
 9. questions   status and metrics
10. pause       until something comes, at most as long as `pacing` allows
"""

from collections import deque
from dataclasses import dataclass, field

import zmq

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.errors import WireError
from pdcluster_worker.core.log import Log
from pdcluster_worker.pipeline.base import Pipeline
from pdcluster_worker.roles.executor import Executor, Rim
from pdcluster_worker.roles.pacing import STEP_S, Situation, pause_s
from pdcluster_worker.roles.report import Report
from pdcluster_worker.roles.sockets import Waker
from pdcluster_worker.wire.codec import ask, to_scheduler
from pdcluster_worker.wire.codec import write as encode_local
from pdcluster_worker.wire.local import Abort, MetricsText, Submit
from pdcluster_worker.wire.notice import unpack

FAULTS_IN_A_ROW_MAX = 5  # turns that may raise before the process gives up
CHECK_INTERVAL_S = 5.0  # between two integrity checks of idle pools


@dataclass(slots=True, kw_only=True)
class Loop:
    """One scheduler. `run` returns once `stopping` is set; `turn` is one tick, for tests."""

    rim: Rim
    pipeline: Pipeline
    executor: Executor
    report: Report
    waker: Waker
    log: Log
    instance: str
    stopping: bool = False
    _early: deque[tuple[str, bytes]] = field(default_factory=deque)  # taken from the library
    _lively_at: float = 0.0
    _checked_at: float = 0.0
    _faults: int = 0  # turns in a row that raised

    def run(self) -> None:
        """Turn until told to stop."""
        poller = zmq.Poller()
        for socket in self._sockets():
            poller.register(socket, zmq.POLLIN)
        clock = self.rim.clock
        while not self.stopping:
            started = clock.now()
            self._guarded_turn(started)
            ended = clock.now()
            self.report.tick(ended, ended - started)
            self._pause(poller, clock, ended)

    def _guarded_turn(self, now: float) -> None:
        """One turn; a fault of ours costs what it touched, not every request (F49).

        The books refuse a wrong transition before anything changes, so going on is safe; a fault
        that comes every time is not passing, and a fresh process is better.
        """
        try:
            self.turn(now)
        except Exception as error:
            self._faults += 1
            self.log.exception("fault in the scheduler loop", in_a_row=self._faults)
            self.pipeline.last_errors.append(f"loop: {type(error).__name__}: {error}")
            if self._faults >= FAULTS_IN_A_ROW_MAX:
                raise
        else:
            self._faults = 0

    def turn(self, now: float) -> None:
        """Steps 1 to 9."""
        self._notices(now)
        self._requests(now)
        self._frames(now)
        self.executor.collect_lookups(now)
        if self.executor.poll_writes(now):
            self._lively_at = now
        self._results(now)
        engine_idle = self.rim.engine.busy_since() is None
        self.pipeline.tick(now, engine_idle=engine_idle)
        self.pipeline.prober.tick(engine_idle=engine_idle)
        self._carry_out()
        if self.pipeline.ended:
            ended, self.pipeline.ended = self.pipeline.ended, []
            self.report.ended(ended)
        self._questions(now)

    def _carry_out(self) -> None:
        """Effects, and what follows at once from writes that settle while they are posted.

        Nothing may be left for after the pause: it could be an answer.
        """
        while self.pipeline.outbox:
            opened = self.executor.open_writes
            self.executor.run(self.pipeline.drain_outbox())
            if self.executor.open_writes > opened:
                self._lively_at = self.rim.clock.now()
                self.executor.poll_writes(self._lively_at)

    def _sockets(self) -> list[object]:
        local = self.rim.local
        sockets: list[object] = [local.requests, local.status, self.waker.fd]
        if self.rim.peers is not None:
            sockets.append(self.rim.peers.pull)
        return sockets

    # ------------------------------------------------------------------------------- steps
    def _requests(self, now: float) -> None:
        for message in self.rim.local.submitted():
            try:
                request = to_scheduler.read(message)
            except WireError as error:
                self._drop("requests", error)
                continue
            if isinstance(request, Submit):
                self.pipeline.submit(request, now)
                self._lively_at = now
            elif isinstance(request, Abort):
                self.pipeline.abort(request, now)
            else:
                self.pipeline.decline(request, now)

    def _frames(self, now: float) -> None:
        rim = self.rim
        if rim.peers is None or rim.codec is None:
            return
        for frame in rim.peers.frames():
            try:
                sender, body = rim.codec.decode(frame)
            except WireError as error:
                self._drop("frame", error)
                continue
            self.pipeline.frame(sender, body, now=now)

    def _notices(self, now: float) -> None:
        if self.rim.transport is None:
            return
        self._early += self.rim.transport.notices()
        while self._early:  # taken one by one: a fault with one costs no other
            agent, data = self._early.popleft()
            try:
                notice = unpack(data)
            except WireError as error:
                self._drop("notice", error)
                continue
            known = self.executor.instance_of(agent)
            if notice.reader != self.instance or (known is not None and known != notice.writer):
                self._drop("notice", WireError("of or for another instance"))
                continue
            self._lively_at = now
            self.pipeline.notice(notice, now)

    def _results(self, now: float) -> None:
        result = self.rim.engine.poll()
        if result is not None:
            self.report.forward(result, self.pipeline.pass_tokens(result))
            self.pipeline.batch_done(result, now)
            self.pipeline.prober.done(result)

    def _questions(self, now: float) -> None:
        local = self.rim.local
        for route, question in local.asked():
            try:
                wanted = ask.read(question).what
            except WireError as error:
                self._drop("question", error)
                continue
            if wanted == "metrics":
                text = self.report.metrics(now, local=local, peers=self.rim.peers)
                local.answer(route, encode_local(MetricsText(text=text)))
            else:
                local.answer(route, encode_local(self.report.status(now)))

    def _drop(self, cause: str, error: WireError) -> None:
        self.executor.drop(cause, error)

    # ------------------------------------------------------------------------------- pause
    def _pause(self, poller: zmq.Poller, clock: Clock, now: float) -> None:
        computing = self.rim.engine.busy_since() is not None
        situation = Situation(
            writing=self.executor.open_writes > 0,
            awaiting=self.pipeline.waiting_for_peer(),
            computing=computing,
            quiet_s=now - self._lively_at,
        )
        seconds = pause_s(situation)
        if seconds < STEP_S:
            self._nap(clock, seconds)
            return
        if not computing and not situation.writing and not situation.awaiting:
            self._check_when_idle(now)
        if poller.poll(int(seconds * 1000)):
            self.waker.clear()

    def _nap(self, clock: Clock, seconds: float) -> None:
        """Sleep for a moment at a time, looking at nothing but peers' writes, for at most a step.

        A whole turn costs more than such a sleep; requests and frames can wait for the step's end.
        """
        transport = self.rim.transport
        if not seconds or transport is None:
            return
        for _ in range(int(STEP_S / seconds / 2)):
            clock.sleep(seconds)
            self._early += transport.notices()
            if self._early:
                return

    def _check_when_idle(self, now: float) -> None:
        """Integrity, whenever there is nothing to do: a leak shows while its cause is fresh."""
        if now - self._checked_at > CHECK_INTERVAL_S and not self.pipeline.stages():
            self._checked_at = now
            try:
                self.pipeline.check_idle()
            except RuntimeError as error:
                # Serving goes on with what is left: a restart would lose requests for pages that
                # are only missing, and nobody else's.
                self.log.error("integrity check failed", error=str(error))
                self.pipeline.last_errors.append(str(error))
