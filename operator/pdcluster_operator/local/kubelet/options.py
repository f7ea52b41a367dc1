"""Every limit and delay of the local kubelet."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletOptions:
    """A node's kubelet has the same knobs; the defaults here suit one machine and a person."""

    backoff_base_s: float = 0.5
    """First wait before a restart; doubled each time. Short: somebody is watching."""

    backoff_max_s: float = 30.0
    """Longest wait before a restart."""

    backoff_reset_s: float = 60.0
    """A container that ran this long before it ended starts over at the base."""

    eager_period_s: float = 0.25
    """Period of a probe that has not succeeded yet, when its own is longer: loopback is cheap and
    somebody waits for readiness."""

    sidecar_grace_s: float = 2.0
    """Least time that sidecars get between TERM and KILL, even when the pod used up its grace."""

    log_bytes_max: int = 10 << 20
    """Size at which a container's log file is rotated."""

    log_files_max: int = 3
    """Log files kept per container, the current one included."""

    exec_output_bytes_max: int = 4096
    """Output of an exec probe or hook that is kept for the message."""

    node_name: str = "local"
    """`spec.nodeName` of every pod."""

    lock_port: int = 49151
    """Port bound on every address in use, so that two kubelets never hand out the same one."""
