"""Medians as ratios, since the machine's speed drifts and ratios within one run do not."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from bench.handoff.shapes import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One shape; ratios are medians of the rounds' ratios, above 1 means the product is faster."""

    shape: str
    megabytes: float
    rounds: int
    us: dict[str, float]  # median per way
    over_raw_us: float  # median of product minus raw, round by round
    ratio: dict[str, float]  # other way / product


def row(shape: Shape, seconds: Mapping[str, Sequence[float]]) -> Row:
    """The row of one shape. Each round gives one ratio, so that slow minutes cancel out."""
    product = seconds["product"]
    return Row(
        shape=shape.name,
        megabytes=shape.bytes / 1e6,
        rounds=len(product),
        us={name: median(took) * 1e6 for name, took in seconds.items()},
        over_raw_us=median(
            (p - r) * 1e6 for p, r in zip(product, seconds["raw block-first"], strict=True)
        ),
        ratio={
            name: median(o / p for o, p in zip(took, product, strict=True))
            for name, took in seconds.items()
            if name != "product"
        },
    )


def markdown(rows: Sequence[Row]) -> str:
    """One line per shape."""
    others = list(rows[0].ratio)
    head = ["shape", "MB", "product us", "over raw us", *(f"{name} / product" for name in others)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        cells = [
            r.shape,
            f"{r.megabytes:.2f}",
            f"{r.us['product']:.0f}",
            f"{r.over_raw_us:+.0f}",
            *(f"{r.ratio[name]:.2f}" for name in others),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def plain(rows: Sequence[Row]) -> list[dict[str, object]]:
    """For JSON."""
    return [asdict(r) for r in rows]


def scheduled_markdown(rows: Sequence[tuple[Row, Sequence[float]]]) -> str:
    """Whole hand-offs through both schedulers, beside bare writes after an equal rest."""
    lines = [
        "| shape | MB | raw us, rested | write us, rested | decided to commit us | over raw us |",
        "|---|---|---|---|---|---|",
    ]
    for r, seconds in rows:
        raw, whole = r.us["raw block-first"], median(seconds) * 1e6
        lines.append(
            f"| {r.shape} | {r.megabytes:.2f} | {raw:.0f} | {r.us['product']:.0f} "
            f"| {whole:.0f} | {whole - raw:+.0f} |"
        )
    return "\n".join(lines) + "\n"
