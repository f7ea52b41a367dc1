"""The metric table, the collectors made from it, and the document made from it."""

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pdcluster_api.metrics import (
    METRICS,
    OPEN_VALUES_MAX,
    OTHER,
    Kind,
    Label,
    Metric,
    Process,
    markdown,
    rows,
)
from pdcluster_worker.core.metrics import Metrics, UnknownMetric

ROOT = Path(__file__).parents[3]


def samples(metrics: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in families
        for sample in family.samples
    }


def test_the_document_is_what_the_table_says() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text() == markdown()


def test_names_are_unique_and_explained() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.help.endswith(".")
        assert metric.unit
        assert len({label.name for label in metric.labels}) == len(metric.labels)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "requests_total"},
        {"name": "pdcluster_requests"},
        {"name": "pdcluster_x_total", "buckets": (1.0,)},
        {"kind": Kind.HISTOGRAM, "name": "pdcluster_x"},
        {"kind": Kind.HISTOGRAM, "name": "pdcluster_x", "buckets": (2.0, 1.0)},
        {"kind": Kind.GAUGE},
    ],
)
def test_impossible_rows(change: dict[str, object]) -> None:
    row: dict[str, object] = {
        "name": "pdcluster_x_total",
        "kind": Kind.COUNTER,
        "process": Process.SCHEDULER,
        "unit": "things",
        "help": "X.",
    }
    with pytest.raises(ValueError, match=r"pdcluster_|requests_total"):
        Metric(**row | change)  # type: ignore[arg-type]


@pytest.mark.parametrize("process", Process)
def test_every_row_can_be_emitted_and_nothing_else(process: Process) -> None:
    metrics = Metrics(process)
    names = set()
    for row in rows(process):
        labels = {label.name: next(iter(label.values), "x") for label in row.labels}
        if row.kind is Kind.COUNTER:
            metrics.add(row.name, 1, **labels)
        elif row.kind is Kind.GAUGE:
            metrics.set(row.name, 1, **labels)
        else:
            metrics.observe(row.name, 1, **labels)
        names.add(row.name)
    families = text_string_to_metric_families(metrics.render().decode())
    seen = {family.name for family in families}
    assert seen == {name.removesuffix("_total") for name in names}


def test_wrong_use_is_an_error() -> None:
    metrics = Metrics(Process.SCHEDULER)
    with pytest.raises(UnknownMetric):
        metrics.add("pdcluster_nothing_total")
    with pytest.raises(UnknownMetric):
        metrics.add("pdcluster_http_requests_total", path="/", code="200")
    with pytest.raises(UnknownMetric):
        metrics.set("pdcluster_kv_pages", 1)
    with pytest.raises(UnknownMetric):
        metrics.set("pdcluster_kv_pages", 1, stage="free")
    with pytest.raises(UnknownMetric):
        metrics.add("pdcluster_kv_pages", place="free")


def test_labels_are_bounded() -> None:
    metrics = Metrics(Process.SCHEDULER)
    for number in range(200):
        metrics.add("pdcluster_transfer_errors_total", kind=str(number))
        metrics.set("pdcluster_kv_pages", 1, place=str(number))
    found = samples(metrics)
    errors = [name for name in found if name.startswith("pdcluster_transfer_errors_total")]
    assert len(errors) == OPEN_VALUES_MAX + 1
    key = f"pdcluster_transfer_errors_total{[('kind', OTHER)]}"
    assert found[key] == 200 - OPEN_VALUES_MAX
    assert [name for name in found if name.startswith("pdcluster_kv_pages")] == [
        f"pdcluster_kv_pages{[('place', OTHER)]}"
    ]


def test_label_order_of_a_call_does_not_matter() -> None:
    metrics = Metrics(Process.FRONTEND)
    metrics.add("pdcluster_http_requests_total", path="/x", code="200")
    metrics.add("pdcluster_http_requests_total", code="200", path="/x")
    key = f"pdcluster_http_requests_total{[('code', '200'), ('path', '/x')]}"
    assert samples(metrics)[key] == 2


def test_labels_are_values() -> None:
    assert Label("x").values == ()
