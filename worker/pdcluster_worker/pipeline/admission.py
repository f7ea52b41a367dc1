"""Decode's memory admission, as a pure function of integers (spec C 1-11).

A request is admitted when, for every resource, its cost fits the budget. For the plain pool the
resources are tokens of the KV pool, metadata rows and request slots; a pool of another kind adds a
resource, not a branch.

Formula for tokens, with R reserved tokens per active request:

    reserved    = R * (running + transferring + waiting + admitted in this pass)
    need_single = max over running of (max_new + prompt) - retractable       (0 when none runs)
    budget      = available - max(reserved, need_single) - R * prebuilt - retracted
    admit x  <=>  max(required + min(R, growth), prompt + max_new - 1 - retractable) <= budget

``required`` is page-rounded. ``growth`` is what x can still grow by: without that bound a prompt as
long as the pool could never be admitted, not even into an empty pool. The last token of an answer
has no KV, hence the -1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

MAX_NEW_CLIP = 4096  # an answer's length is estimated at most this long (spec C, CLIP)


class Resource(StrEnum):
    """What a request is charged in."""

    TOKENS = "kv tokens"
    ROWS = "metadata rows"
    SLOTS = "request slots"


Amounts = Mapping[Resource, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A request in the running batch, in tokens."""

    prompt: int
    output: int
    max_new: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What already lays claim to the pool. Counts of requests, except where tokens are named."""

    running: Sequence[Running] = ()
    transferring: int = 0
    waiting: int = 0
    prebuilt: int = 0
    retracted_tokens: int = 0  # needed by retracted requests, which go first

    @property
    def retractable(self) -> int:
        """Tokens that retracting everything would free."""
        return sum(r.prompt + r.output for r in self.running)


def token_budget(*, available: int, load: Load, reserved_per_request: int, admitted: int) -> int:
    """Tokens that may be given to new requests; negative when the pool is overcommitted."""
    active = len(load.running) + load.transferring + load.waiting + admitted
    reserved = reserved_per_request * active
    longest = max((r.prompt + min(r.max_new, MAX_NEW_CLIP) for r in load.running), default=0)
    need_single = longest - load.retractable if load.running else 0
    claimed = max(reserved, need_single) + reserved_per_request * load.prebuilt
    return available - claimed - load.retracted_tokens


def token_cost(
    *, prompt: int, max_new: int, load: Load, reserved_per_request: int, page_tokens: int
) -> int:
    """Tokens of budget that a new request needs."""
    required = -(-prompt // page_tokens) * page_tokens
    clipped = min(max_new, MAX_NEW_CLIP)
    final = prompt + max(0, clipped - 1)
    growth = -(-final // page_tokens) * page_tokens - required
    return max(required + min(reserved_per_request, growth), final - load.retractable)


def resume_cost(*, filled: int, growth: int, reserved_per_request: int, page_tokens: int) -> int:
    """Tokens of budget that a retracted request needs to come back (spec C 10).

    With its next position: coming back without a page for that would only push it out again.
    """
    return -(-(filled + 1) // page_tokens) * page_tokens + min(reserved_per_request, max(0, growth))


def shortage(cost: Amounts, budget: Amounts) -> Resource | None:
    """The first resource of which ``budget`` has too little, or None: admit."""
    for resource, amount in cost.items():
        if amount > budget.get(resource, 0):
            return resource
    return None


def admits(
    *,
    prompt: int,
    max_new: int,
    available: int,
    load: Load,
    reserved_per_request: int,
    page_tokens: int,
) -> bool:
    """Whether the plain pool takes one more request. All in tokens; ``available`` of the pool."""
    cost = token_cost(
        prompt=prompt,
        max_new=max_new,
        load=load,
        reserved_per_request=reserved_per_request,
        page_tokens=page_tokens,
    )
    budget = token_budget(
        available=available, load=load, reserved_per_request=reserved_per_request, admitted=0
    )
    return shortage({Resource.TOKENS: cost}, {Resource.TOKENS: budget}) is None
