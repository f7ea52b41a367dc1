"""Collectors of one process, built from the declarative table in `pdcluster_api.metrics`.

    metrics = Metrics(Process.SCHEDULER)
    metrics.add("pdcluster_output_tokens_total", 3)
    metrics.set("pdcluster_kv_pages", 17, place="free")
    metrics.observe("pdcluster_stage_seconds", 0.02, stage="transfer")

A name that the table does not give to this process, or wrong labels, is a programming error and
raises. A label value beyond the table's bounds is counted as ``other``: it may come from outside.
"""

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client import disable_created_metrics as _without_created_series

from pdcluster_api.metrics import OPEN_VALUES_MAX, OTHER, Kind, Label, Metric, Process, rows

_without_created_series()  # type: ignore[no-untyped-call]  # such series are in no table

Collector = Counter | Gauge | Histogram
C = TypeVar("C", Counter, Gauge, Histogram)


class UnknownMetric(LookupError):
    """The table has no such row for this process, or the row has other labels or another kind."""


class Metrics:
    """All metrics of one process, in a registry of their own. Used from one thread."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._registry = CollectorRegistry()
        self._rows = {metric.name: metric for metric in rows(process)}
        self._collectors = {name: _collector(row) for name, row in self._rows.items()}
        for collector in self._collectors.values():
            self._registry.register(collector)
        # Values seen so far of open labels; the children of hot metrics are looked up here.
        self._open: dict[tuple[str, str], set[str]] = {}
        self._children: dict[tuple[str, tuple[str, ...]], Collector] = {}

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Count."""
        self._child(Counter, name, labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._child(Gauge, name, labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Put a value into a histogram."""
        self._child(Histogram, name, labels).observe(value)

    def render(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)

    def _child(self, kind: type[C], name: str, labels: Mapping[str, str]) -> C:
        row = self._rows.get(name)
        if row is None or labels.keys() != {label.name for label in row.labels}:
            raise UnknownMetric(f"{name}{sorted(labels)} is no metric of the {self.process}")
        values = tuple(self._bounded(row, label, labels[label.name]) for label in row.labels)
        child = self._children.get((name, values))
        if child is None:
            whole = self._collectors[name]
            child = whole.labels(*values) if values else whole
            self._children[name, values] = child
        if not isinstance(child, kind):
            raise UnknownMetric(f"{name} is a {row.kind}, not a {kind.__name__.lower()}")
        return child

    def _bounded(self, row: Metric, label: Label, value: str) -> str:
        if label.values:
            return value if value in label.values else OTHER
        seen = self._open.setdefault((row.name, label.name), set())
        if value in seen:
            return value
        if len(seen) >= OPEN_VALUES_MAX:
            return OTHER
        seen.add(value)
        return value


def _collector(row: Metric) -> Collector:
    labels = tuple(label.name for label in row.labels)
    if row.kind is Kind.COUNTER:
        return Counter(row.name, row.help, labels, registry=None)
    if row.kind is Kind.GAUGE:
        return Gauge(row.name, row.help, labels, registry=None)
    return Histogram(row.name, row.help, labels, buckets=row.buckets, registry=None)
