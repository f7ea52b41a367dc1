"""Admission maths: the worked example of the specification, and what must always hold."""

from hypothesis import given
from hypothesis import strategies as st

from pdcluster_worker.pipeline.admission import (
    Load,
    Resource,
    Running,
    admits,
    resume_cost,
    shortage,
    token_budget,
    token_cost,
)


def test_the_worked_example() -> None:
    """Page 1, R 10, answers clipped at 100; pool 1000 with 700 free; one running, one each else."""
    running = (Running(prompt=100, output=20, max_new=100),)
    load = Load(running=running, transferring=1, waiting=1)
    assert load.retractable == 120
    budget = token_budget(available=700, load=load, reserved_per_request=10, admitted=0)
    assert budget == 700 - max(30, 80) == 620
    cost = token_cost(prompt=500, max_new=100, load=load, reserved_per_request=10, page_tokens=1)
    assert cost == max(510, 500 + 99 - 120) == 510
    assert cost <= budget
    budget = token_budget(available=200, load=load, reserved_per_request=10, admitted=1)
    assert budget == 200 - max(40, 80) == 120
    cost = token_cost(prompt=120, max_new=100, load=load, reserved_per_request=10, page_tokens=1)
    assert cost == 130 > budget


@given(
    prompt=st.integers(1, 500), max_new=st.integers(1, 500), reserve=st.integers(0, 600),
    page=st.integers(1, 64),
)  # fmt: skip
def test_an_empty_pool_admits_whatever_fits_it(
    prompt: int, max_new: int, reserve: int, page: int
) -> None:
    """Also a prompt as long as the pool: nothing waits for ever."""
    capacity = -(-(prompt + max_new - 1) // page) * page
    assert admits(
        prompt=prompt, max_new=max_new, available=capacity, load=Load(),
        reserved_per_request=reserve, page_tokens=page,
    )  # fmt: skip


RUNNING = st.lists(
    st.builds(
        Running, prompt=st.integers(1, 200), output=st.integers(1, 50), max_new=st.integers(1, 400)
    ),
    max_size=5,
)


@given(
    prompt=st.integers(1, 300), max_new=st.integers(1, 300), free=st.integers(0, 600),
    running=RUNNING, others=st.integers(0, 4),
)  # fmt: skip
def test_admitted_pages_exist_and_more_room_never_hurts(
    prompt: int, max_new: int, free: int, running: list[Running], others: int
) -> None:
    load = Load(running=tuple(running), transferring=others)

    def admitted(available: int) -> bool:
        return admits(
            prompt=prompt, max_new=max_new, available=available, load=load,
            reserved_per_request=16, page_tokens=16,
        )  # fmt: skip

    if admitted(free):
        assert -(-prompt // 16) * 16 <= free
        assert admitted(free + 16)


def test_the_short_resource_is_named() -> None:
    cost = {Resource.TOKENS: 10, Resource.ROWS: 1}
    assert shortage(cost, {Resource.TOKENS: 10, Resource.ROWS: 1}) is None
    assert shortage(cost, {Resource.TOKENS: 9, Resource.ROWS: 1}) is Resource.TOKENS
    assert shortage(cost, {Resource.TOKENS: 10}) is Resource.ROWS


def test_a_retracted_request_needs_what_it_had_and_some_growth() -> None:
    assert resume_cost(filled=17, growth=100, reserved_per_request=32, page_tokens=16) == 64
    assert resume_cost(filled=17, growth=1, reserved_per_request=32, page_tokens=16) == 33
