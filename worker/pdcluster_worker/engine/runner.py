"""One thread that runs forward passes, so that the scheduler's loop never waits for compute.

A pass: `launch` (idle -> running) -> the thread computes -> result stored, `wake` called ->
`poll` hands it out once (-> idle). The result is stored after the compute function returned, so
whatever it wrote is visible to the thread that polls.
"""

import queue
import threading
from collections.abc import Callable, Sequence

from pdcluster_worker.core.clock import Clock
from pdcluster_worker.core.ports import BatchResult, SequenceStep, StepResult

Compute = Callable[[Sequence[SequenceStep]], tuple[StepResult, ...]]


class PassRunner:
    """Asynchronous `Engine` behaviour around a blocking ``compute``.

    ``wake`` is called from the thread after every pass and must neither block nor raise.
    ``prepare_thread`` runs once, first, in the thread (thread-local compute settings).
    """

    def __init__(
        self,
        compute: Compute,
        *,
        clock: Clock,
        wake: Callable[[], None] | None = None,
        prepare_thread: Callable[[], None] | None = None,
    ) -> None:
        self._compute = compute
        self._clock = clock
        self._wake = wake
        self._prepare_thread = prepare_thread
        self._inbox: queue.SimpleQueue[tuple[SequenceStep, ...] | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[BatchResult] = queue.SimpleQueue()
        self._started: float | None = None  # of the pass not polled yet; polling thread only
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def launch(self, batch: Sequence[SequenceStep]) -> None:
        """Start a pass and return at once. RuntimeError while one runs, is unpolled, or closed."""
        if self._closed:
            raise RuntimeError("the engine is closed")
        if self._started is not None:
            raise RuntimeError("a forward pass is still running")
        if not batch:
            raise ValueError("a batch has at least one step")
        self._started = self._clock.now()
        self._inbox.put(tuple(batch))

    def poll(self) -> BatchResult | None:
        """The finished pass, once; never blocks."""
        try:
            result = self._outbox.get_nowait()
        except queue.Empty:
            return None
        self._started = None
        return result

    def busy_since(self) -> float | None:
        """When the running pass started; a finished pass counts as running until it is polled."""
        return self._started

    def close(self) -> None:
        """Wait for the running pass and end the thread. Idempotent."""
        self._closed = True
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        if self._prepare_thread is not None:
            self._prepare_thread()
        while (batch := self._inbox.get()) is not None:
            self._outbox.put(self._one(batch))
            if self._wake is not None:
                self._wake()

    def _one(self, batch: tuple[SequenceStep, ...]) -> BatchResult:
        start = self._clock.now()
        try:
            results, error = self._compute(batch), None
        except Exception as failure:  # noqa: BLE001 - one bad batch must not end the engine
            results, error = (), f"{type(failure).__name__}: {failure}"
        return BatchResult(results=results, seconds=self._clock.now() - start, error=error)
