"""The double is as honest as it says."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.core.geometry import geometry_of
from pdcluster_worker.core.ports import ModelShape, SampleParams, Score, Scoring, SequenceStep
from pdcluster_worker.engine.scripted import ScriptedEngine, kv_rows, reference

SHAPE = ModelShape(
    layers=2, kv_heads=2, head_dim=3, vocab=97, context_tokens=4096, eos_token_ids=(0,),
    dtype="bfloat16", identity="scripted",
)  # fmt: skip
GEOMETRY = geometry_of(SHAPE, page_tokens=4)
PAGES = 64


class HandClock:
    def __init__(self) -> None:
        self.time = 100.0

    def now(self) -> float:
        return self.time

    def wall(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


def make(clock: HandClock | None = None, seconds: float = 0.0) -> tuple[ScriptedEngine, np.ndarray]:
    pool = np.random.default_rng(0).integers(0, 256, (PAGES, GEOMETRY.page_bytes), dtype=np.uint8)
    engine = ScriptedEngine(
        SHAPE, GEOMETRY, pool, clock=clock or HandClock(), duration=lambda _: seconds
    )
    return engine, pool


def ask(
    engine: ScriptedEngine, tokens: list[int], start: int, pages: np.ndarray,
    sample: SampleParams | None,
) -> int | None:  # fmt: skip
    ids = np.array(tokens, dtype=np.int64)
    engine.launch([SequenceStep(key=1, tokens=ids, start=start, pages=pages, sample=sample)])
    result = engine.poll()
    assert result is not None
    return result.results[0].token


@given(
    st.lists(st.integers(0, 96), min_size=1, max_size=40),
    st.integers(1, 40),
    st.sampled_from([SampleParams(), SampleParams(temperature=1.0, seed=5, banned=(0, 1))]),
)
def test_any_chunking_gives_the_reference_answer(
    prompt: list[int], cut: int, sample: SampleParams
) -> None:
    engine, _ = make()
    pages = np.random.default_rng(1).permutation(PAGES).astype(np.int32)[:12]
    if cut < len(prompt):
        assert ask(engine, prompt[:cut], 0, pages, None) is None
    begin = cut if cut < len(prompt) else 0
    answer = [ask(engine, prompt[begin:], begin, pages, sample)]
    for at in range(len(prompt), len(prompt) + 4):
        last = answer[-1]
        assert last is not None
        answer.append(ask(engine, [last], at, pages, sample))
    assert answer == reference(SHAPE, GEOMETRY, prompt=prompt, count=5, sample=sample)


@pytest.mark.parametrize("size", [1, 3, 9])
def test_prompt_scores_are_the_same_for_any_chunking(size: int) -> None:
    prompt = np.array([5, 6, 7, 8, 9, 10, 11, 12, 13])
    pages = np.array([3, 40, 9], dtype=np.int32)
    engine, _ = make()
    found: list[Score] = []
    for start in range(0, 9, size):
        tokens, targets = prompt[start : start + size], prompt[start + 1 : start + size + 1]
        asked = Scoring(row=0, targets=targets, top=2) if len(targets) else None
        engine.launch(
            [
                SequenceStep(
                    key=1, tokens=tokens, start=start, pages=pages, sample=None, scoring=asked
                )
            ]
        )
        result = engine.poll()
        assert result is not None
        found += result.results[0].scores
    assert len(found) == 8
    for at, score in enumerate(found):
        (best,) = reference(
            SHAPE, GEOMETRY, prompt=list(prompt[: at + 1]), count=1, sample=SampleParams()
        )
        assert score.top == ((best, -1.0), ((best + 1) % 97, -2.0))
        assert score.logprob == -1.0 - (prompt[at + 1] - best) % 97


def test_one_wrong_byte_is_a_wrong_token() -> None:
    prompt = [5, 6, 7, 8, 9]
    pages = np.array([3, 40], dtype=np.int32)
    wrong = 0
    for byte in range(0, GEOMETRY.page_bytes, 7):
        engine, pool = make()
        first = ask(engine, prompt, 0, pages, SampleParams())
        assert first is not None
        pool[3, byte] ^= 1
        found = ask(engine, [first], 5, pages, SampleParams())
        expected = reference(SHAPE, GEOMETRY, prompt=prompt, count=2, sample=SampleParams())
        wrong += found != expected[1]
    tried = len(range(0, GEOMETRY.page_bytes, 7))
    assert wrong >= tried - 1  # one in 97 collides


def test_a_head_range_holds_the_same_bytes() -> None:
    part = replace(GEOMETRY, head_start=1, head_count=1)
    ids = np.array([4, 5], dtype=np.int64)
    whole = kv_rows(GEOMETRY, ids, start=9).reshape(2, 4, 2, -1)
    assert np.array_equal(kv_rows(part, ids, start=9).reshape(2, 4, 1, -1), whole[:, :, 1:])


def test_a_pass_takes_its_time() -> None:
    clock = HandClock()
    engine, pool = make(clock, seconds=2.0)
    before = pool.copy()
    step = SequenceStep(
        key=1, tokens=np.array([3]), start=0, pages=np.array([0], dtype=np.int32), sample=None
    )
    engine.launch([step])
    assert (engine.busy_since(), engine.ready_at()) == (100.0, 102.0)
    clock.time = 101.9
    assert engine.poll() is None
    assert np.array_equal(pool, before)
    with pytest.raises(RuntimeError, match="running"):
        engine.launch([step])
    clock.time = 102.0
    result = engine.poll()
    assert result is not None
    assert result.seconds == 2.0
    assert engine.busy_since() is None
    assert not np.array_equal(pool, before)


def test_a_failing_pass_writes_nothing() -> None:
    engine, pool = make()
    before = pool.copy()
    engine.fail_next = "out of memory"
    ids = np.array([3])
    pages = np.array([0], dtype=np.int32)
    engine.launch([SequenceStep(key=1, tokens=ids, start=0, pages=pages, sample=SampleParams())])
    result = engine.poll()
    assert result is not None
    assert (result.error, result.results) == ("out of memory", ())
    assert np.array_equal(pool, before)
    assert ask(engine, [3], 0, pages, SampleParams()) is not None


def test_logprobs_have_the_chosen_token() -> None:
    engine, _ = make()
    params = SampleParams(logprobs=3)
    pages = np.array([0], dtype=np.int32)
    engine.launch([SequenceStep(key=1, tokens=np.array([3]), start=0, pages=pages, sample=params)])
    result = engine.poll()
    assert result is not None
    (answer,) = result.results
    assert answer.top[0] == (answer.token, answer.logprob)
    assert len(answer.top) == 3


def test_a_pool_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="expected"):
        ScriptedEngine(SHAPE, GEOMETRY, np.zeros((2, 3), dtype=np.uint8), clock=HandClock())
