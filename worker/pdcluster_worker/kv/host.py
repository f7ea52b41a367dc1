"""Host copies of pages of retracted requests, up to a limit of pages."""

import itertools

import torch

from pdcluster_worker.core.ports import PageIds


class HostPages:
    """`core.ports.PageStore` over the KV pool ``[pages, ...]``; copies block for a memcpy."""

    def __init__(self, pool: torch.Tensor, *, pages_max: int) -> None:
        self._pool = pool
        self._pages_left = pages_max
        self._copies: dict[int, torch.Tensor] = {}
        self._tickets = itertools.count(1)

    def save(self, pages: PageIds) -> int | None:
        """Copy pages out; None when the limit is reached."""
        if len(pages) > self._pages_left:
            return None
        self._pages_left -= len(pages)
        ticket = next(self._tickets)
        self._copies[ticket] = self._pool[_index(pages, self._pool)].cpu()
        return ticket

    def load(self, ticket: int, pages: PageIds) -> None:
        """Copy back into the first of ``pages``, as many as were saved."""
        copy = self._copies.pop(ticket)
        self._pages_left += len(copy)
        index = _index(pages[: len(copy)], self._pool)
        self._pool[index] = copy.to(self._pool.device)

    def drop(self, ticket: int) -> None:
        """Forget a copy."""
        copy = self._copies.pop(ticket, None)
        if copy is not None:
            self._pages_left += len(copy)


def _index(pages: PageIds, pool: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(pages).long().to(pool.device)
