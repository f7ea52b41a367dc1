"""Where the other leg of each request of a call is. Both legs derive the same from the same body.

A call of P prompts with n samples each is P*n requests, prompt by prompt. Each has a room of its
own (E86):

    one room r for the call      the i-th request has r+i
    a list of P rooms            sample s of prompt p has rooms[p]+s
    a list of P*n rooms          as listed

Sums go round within 1 .. 2^63-1: 0 marks an unwritten metadata row, so it stands for 2^63-1 (E72).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from pdcluster_api.names import Role
from pdcluster_worker.core.errors import BadRequest
from pdcluster_worker.core.settings import Settings
from pdcluster_worker.frontend.fields import ROOM_MAX
from pdcluster_worker.frontend.params import Params
from pdcluster_worker.wire.local import FAKE_HOST, Hop

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Shape:
    """How many requests a call is made of."""

    prompts: int
    samples: int  # of each prompt

    @property
    def requests(self) -> int:
        return self.prompts * self.samples


def make_hops(params: Params, settings: Settings, *, shape: Shape) -> tuple[Hop | None, ...]:
    """One for each request; None only where there is no other leg. BadRequest names the field."""
    launch = settings.launch
    if launch.role is Role.AGGREGATED:
        return (None,) * shape.requests
    rooms = rooms_of(params.bootstrap_room, shape=shape)
    hosts = _spread("bootstrap_host", params.bootstrap_host, shape)
    ports = _spread("bootstrap_port", params.bootstrap_port, shape)
    if launch.role is Role.PREFILL:
        # It is its own bootstrap address, whatever the client says, unless that is nobody's.
        own = settings.pod_ip
        hosts = tuple(FAKE_HOST if host == FAKE_HOST else own for host in hosts)
        ports = (launch.ports.bootstrap,) * shape.requests
    if None in hosts:
        raise BadRequest(
            "bootstrap_host: missing; a decode worker needs the address of the prefill worker",
            field="bootstrap_host",
        )
    return tuple(
        Hop(host=host or "", port=launch.ports.bootstrap if port is None else port, room=room)
        for host, port, room in zip(hosts, ports, rooms, strict=True)
    )


def rooms_of(given: Sequence[int | None], *, shape: Shape) -> tuple[int, ...]:
    """Each request's room, all different."""
    listed = [room for room in given if room is not None]
    if not listed or len(listed) < len(given):
        raise BadRequest(
            "bootstrap_room: missing; a prefill or decode worker needs the room that the router "
            "gives to both legs",
            field="bootstrap_room",
        )
    _check_length("bootstrap_room", given, shape)
    if len(listed) == shape.requests:
        rooms = [_ring(room) for room in listed]
    elif len(listed) == 1:
        rooms = [_ring(listed[0] + index) for index in range(shape.requests)]
    else:
        rooms = [_ring(room + sample) for room in listed for sample in range(shape.samples)]
    if len(set(rooms)) < len(rooms):
        message = "bootstrap_room: two requests of this call would share a room"
        raise BadRequest(message, field="bootstrap_room")
    return tuple(rooms)


def _ring(room: int) -> int:
    return (room - 1) % ROOM_MAX + 1


def _spread(name: str, given: Sequence[T | None], shape: Shape) -> tuple[T | None, ...]:
    """One value for each request."""
    if not given:
        return (None,) * shape.requests
    _check_length(name, given, shape)
    if len(given) == 1:
        return tuple(given) * shape.requests
    times = shape.requests // len(given)
    return tuple(value for value in given for _ in range(times))


def _check_length(name: str, given: Sequence[object], shape: Shape) -> None:
    if len(given) not in (1, shape.prompts, shape.requests):
        message = (
            f"{name}: a list of {len(given)} is not allowed, must be one value or one for each of "
            f"{shape.prompts} prompts or {shape.requests} requests"
        )
        raise BadRequest(message, field=name)
