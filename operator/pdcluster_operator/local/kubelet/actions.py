"""What a pod's machine asks of the world. The machine never waits: it is told what came of it."""

from dataclasses import dataclass
from signal import Signals

from pdcluster_operator.local.kubelet.pod import ProbeKind


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container; answered by `on_started` or `on_start_failed`, then `on_exit`."""

    container: str
    run: int


@dataclass(frozen=True, slots=True)
class Ask:
    """Run a probe once; answered by `on_probe`."""

    container: str
    run: int
    kind: ProbeKind


@dataclass(frozen=True, slots=True)
class PreStop:
    """Run the preStop hook; answered by `on_pre_stop_done`."""

    container: str
    run: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal: TERM to the container's first process, KILL to all of them."""

    container: str
    run: int
    signal: Signals


Action = Start | Ask | PreStop | Signal
