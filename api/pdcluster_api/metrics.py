"""Every metric of a worker, as one table.

``python -m pdcluster_api.metrics`` writes ``docs/metrics.md``; ``--check`` only compares.

A process builds its collectors from the rows that name it, so nothing undeclared can be emitted.
Label values are bounded: a label lists its values, or at most `OPEN_VALUES_MAX` are kept and the
rest is counted as ``other``. No request id, room or peer address is ever a label.
"""

import argparse
import sys
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from pdcluster_api.names import Role
from pdcluster_api.states import Stage

DOCS: Final = Path("docs/metrics.md")
PREFIX: Final = "pdcluster_"
OTHER: Final = "other"
OPEN_VALUES_MAX: Final = 40


class Kind(StrEnum):
    """What a metric is to Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Process(StrEnum):
    """Which process of a pod emits a metric."""

    FRONTEND = "frontend"
    SCHEDULER = "scheduler"


@dataclass(frozen=True, slots=True)
class Label:
    """A label and its values; none listed means open, but bounded."""

    name: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row. ``unit`` is that of the value; ``reference`` names what the reference calls it."""

    name: str
    kind: Kind
    process: Process
    unit: str
    help: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    reference: str = ""

    def __post_init__(self) -> None:
        """Refuse a row that Prometheus or our conventions would not take."""
        if not self.name.startswith(PREFIX):
            raise ValueError(f"{self.name}: must start with {PREFIX}")
        if self.name.endswith("_total") != (self.kind is Kind.COUNTER):
            raise ValueError(f"{self.name}: counters, and only they, end with _total")
        if bool(self.buckets) != (self.kind is Kind.HISTOGRAM):
            raise ValueError(f"{self.name}: histograms, and only they, have buckets")
        if list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"{self.name}: buckets must ascend")


STAGE: Final = Label("stage", tuple(stage.value for stage in Stage))
KIND: Final = Label("kind")  # `kind` of an error of the worker
PLACE: Final = Label("place", ("free", "held", "quarantined"))
OUTCOMES: Final = ("finished", "aborted", "refused", "unavailable", "failed")

_SHORT: Final = (
    0.0001,
    0.0003,
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
)
_LONG: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_BYTES: Final = (1e5, 3e5, 1e6, 3e6, 1e7, 3e7, 1e8, 3e8, 1e9, 3e9, 1e10)
_SPEED: Final = (0.1, 0.3, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 400.0)
_COUNT: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)


def _counter(
    name: str, text: str, *, unit: str, labels: tuple[Label, ...] = (), reference: str = "",
    process: Process = Process.SCHEDULER,
) -> Metric:  # fmt: skip
    return Metric(
        name=PREFIX + name,
        kind=Kind.COUNTER,
        process=process,
        unit=unit,
        help=text,
        labels=labels,
        reference=reference,
    )


def _gauge(
    name: str, text: str, *, unit: str, labels: tuple[Label, ...] = (), reference: str = "",
    process: Process = Process.SCHEDULER,
) -> Metric:  # fmt: skip
    return Metric(
        name=PREFIX + name,
        kind=Kind.GAUGE,
        process=process,
        unit=unit,
        help=text,
        labels=labels,
        reference=reference,
    )


def _histogram(
    name: str, text: str, *, unit: str, buckets: tuple[float, ...], labels: tuple[Label, ...] = (),
    process: Process = Process.SCHEDULER,
) -> Metric:  # fmt: skip
    return Metric(
        name=PREFIX + name,
        kind=Kind.HISTOGRAM,
        process=process,
        unit=unit,
        help=text,
        labels=labels,
        buckets=buckets,
    )


_FRONTEND_ROWS: Final = (
    _counter(
        "http_requests_total",
        "HTTP requests answered, by route and status code.",
        unit="requests",
        labels=(Label("path"), Label("code")),
        process=Process.FRONTEND,
    ),
    _gauge(
        "http_live_requests",
        "Generation requests that are being answered.",
        unit="requests",
        process=Process.FRONTEND,
    ),
    _counter(
        "generations_total",
        "Generation requests that ended, by outcome as the client saw it.",
        unit="requests",
        labels=(Label("outcome", OUTCOMES),),
        process=Process.FRONTEND,
    ),
    _histogram(
        "time_to_first_token_seconds",
        "From the HTTP request to the first token's arrival at the frontend.",
        unit="seconds",
        buckets=_LONG,
        process=Process.FRONTEND,
    ),
    _histogram(
        "inter_token_seconds",
        "Between two deliveries of tokens of one request.",
        unit="seconds",
        buckets=_SHORT,
        process=Process.FRONTEND,
    ),
    _histogram(
        "request_seconds",
        "From the HTTP request to the end of its answer.",
        unit="seconds",
        buckets=_LONG,
        process=Process.FRONTEND,
    ),
    _gauge(
        "scheduler_up",
        "1 when the scheduler answered this scrape; without it the other rows are missing.",
        unit="bool",
        process=Process.FRONTEND,
    ),
    _gauge(
        "build_info",
        "Always 1; the labels say what runs.",
        unit="bool",
        labels=(Label("version"), Label("role", tuple(role.value for role in Role))),
        process=Process.FRONTEND,
    ),
)

_REQUEST_ROWS: Final = (
    _gauge(
        "stage_requests",
        "Live requests by stage.",
        unit="requests",
        labels=(STAGE,),
        reference="num_prefill_bootstrap_queue_reqs, num_prefill_inflight_queue_reqs, "
        "num_decode_prealloc_queue_reqs, num_decode_transfer_queue_reqs, num_running_reqs, "
        "num_queue_reqs, num_retracted_reqs",
    ),
    _histogram(
        "stage_seconds",
        "Time that a request spent in a stage.",
        unit="seconds",
        buckets=_LONG,
        labels=(STAGE,),
    ),
    _counter(
        "requests_total",
        "Requests that ended on this worker, once each.",
        unit="requests",
        labels=(Label("outcome", OUTCOMES),),
    ),
    _counter(
        "request_errors_total",
        "Requests that ended with an error, by its kind.",
        unit="requests",
        labels=(KIND,),
    ),
    _counter("prompt_tokens_total", "Prompt tokens of accepted requests.", unit="tokens"),
    _counter("cached_tokens_total", "Prompt tokens whose KV was present already.", unit="tokens"),
    _counter("output_tokens_total", "Tokens generated.", unit="tokens"),
    _counter(
        "bootstrap_failed_total",
        "Requests that failed before their pages were published or found.",
        unit="requests",
        reference="num_bootstrap_failed_reqs_total",
    ),
    _counter(
        "transfer_failed_total",
        "Requests that failed while their KV was on its way.",
        unit="requests",
        reference="num_transfer_failed_reqs_total",
    ),
    _counter(
        "retractions_total",
        "Running requests pushed out of the pool for want of pages.",
        unit="requests",
        reference="num_retracted_requests_total",
    ),
)

_HANDOFF_ROWS: Final = (
    _histogram(
        "handoff_bytes",
        "KV pages and metadata row of one hand-off.",
        unit="bytes",
        buckets=_BYTES,
    ),
    _histogram(
        "handoff_seconds",
        "From the first write posted to the last one done, seen by prefill.",
        unit="seconds",
        buckets=_SHORT,
    ),
    _histogram(
        "handoff_commit_seconds",
        "From pages published to KV committed, seen by decode; includes the prompt's compute.",
        unit="seconds",
        buckets=_LONG,
    ),
    _histogram(
        "handoff_speed_gb_per_s",
        "Bytes of a hand-off over its seconds, in 10^9 bytes per second.",
        unit="GB/s",
        buckets=_SPEED,
    ),
    _histogram(
        "handoff_descriptors",
        "Descriptors posted for one hand-off, after merging contiguous pages.",
        unit="descriptors",
        buckets=_COUNT,
    ),
    _counter(
        "transfer_errors_total",
        "Failed writes, by kind of error.",
        unit="writes",
        labels=(KIND,),
    ),
    _counter(
        "handshake_failures_total",
        "Peers that could not be greeted, by cause.",
        unit="handshakes",
        labels=(Label("cause"),),
    ),
    _counter(
        "frames_dropped_total",
        "Control frames and local messages that were dropped, by cause.",
        unit="frames",
        labels=(Label("cause"),),
    ),
    _gauge(
        "peers",
        "Known peers by state.",
        unit="peers",
        labels=(Label("state"),),
    ),
)

_ENGINE_ROWS: Final = (
    _gauge("kv_pages", "Pages of the KV pool by place.", unit="pages", labels=(PLACE,)),
    _gauge("metadata_rows", "Metadata rows by place.", unit="rows", labels=(PLACE,)),
    _histogram(
        "loop_tick_seconds", "One tick of the scheduler loop.", unit="seconds", buckets=_SHORT
    ),
    _gauge("loop_tick_max_seconds", "Slowest tick of the last minute.", unit="seconds"),
    _histogram("forward_seconds", "One forward pass.", unit="seconds", buckets=_SHORT),
    _histogram("forward_tokens", "Tokens of one forward pass.", unit="tokens", buckets=_COUNT),
)

METRICS: Final = (*_FRONTEND_ROWS, *_REQUEST_ROWS, *_HANDOFF_ROWS, *_ENGINE_ROWS)


def rows(process: Process) -> tuple[Metric, ...]:
    """What one process emits."""
    return tuple(metric for metric in METRICS if metric.process is process)


def markdown() -> str:
    """The table as a document."""
    lines = [
        "# Metrics",
        "",
        "Generated from `api/pdcluster_api/metrics.py`; every worker serves them on `/metrics`.",
        f"A label without listed values keeps {OPEN_VALUES_MAX}; what comes after is `{OTHER}`.",
        "",
        "| name | kind | unit | labels | process | meaning |",
        "|---|---|---|---|---|---|",
    ]
    for metric in METRICS:
        labels = ", ".join(_label(label) for label in metric.labels)
        lines.append(
            f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.process} "
            f"| {metric.help} |"
        )
    return "\n".join(lines) + "\n"


def _label(label: Label) -> str:
    values = f" ({', '.join(label.values)})" if label.values else ""
    return f"`{label.name}`{values}"


def main() -> None:
    """Rewrite the page, or say that it differs."""
    parser = argparse.ArgumentParser(description="Write the documentation of the metrics.")
    parser.add_argument("--check", action="store_true", help="write nothing, report a difference")
    if parser.parse_args().check:
        if DOCS.read_text(encoding="utf-8") != markdown():
            sys.exit(f"{DOCS} is not what the table says")
    else:
        DOCS.write_text(markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
