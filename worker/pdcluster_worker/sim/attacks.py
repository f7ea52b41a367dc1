"""What reaches one worker from outside that it never asked for; it must not mind."""

import random
from collections.abc import Callable
from typing import Final

from pdcluster_worker.sim.node import Node
from pdcluster_worker.wire.local import Hop, Sampling, Submit
from pdcluster_worker.wire.peer import (
    Abort,
    AbortAck,
    Alive,
    Body,
    Delivered,
    Publish,
    Refused,
    Rejoin,
    Unwelcome,
)

OLD_FRAMES: Final = 20
FLOOD: Final = 80  # requests at once: more than the limits of a simulated worker
_PROMPT: Final = b"\1\0\0\0"


def garbage(node: Node, dice: random.Random, *, frames: list[bytes]) -> None:
    """Bytes of anybody, and frames of the past with a bit changed or the end cut off."""
    for frame in _some(frames, dice):
        where = dice.randrange(len(frame))
        node.frames.append(frame[:where] + bytes([frame[where] ^ 1]) + frame[where + 1 :])
        node.frames.append(frame[:where])
        node.frames.append(dice.randbytes(where))
    node.wake()


def replay(node: Node, dice: random.Random, *, frames: list[bytes]) -> None:
    """Frames of the past once more."""
    node.frames += _some(frames, dice)
    node.wake()


def strange(node: Node, dice: random.Random, *, peers: list[Node]) -> None:
    """Valid frames of real peers that make no sense here: wrong kinds, rooms and generations."""
    room, generation = dice.randrange(1, 20), dice.randrange(3)
    bodies: tuple[Body, ...] = (
        Abort(room=room, generation=generation + 50, kind="overloaded", message="made up"),
        AbortAck(room=room, generation=generation + 50),
        Alive(rooms=((room, generation + 50), (room + 1, 10**9))),
        Delivered(room=room, generation=generation, bytes=1, descriptors=1, seconds=0.1),
        Refused(room=room, generation=10**9, kind="?", message="made up", quiescent=True),
    )
    if node.role == "decode":
        bodies += (_publish(room), Abort(room=room, generation=0, kind="?", message="made up"))
    else:
        bodies += (Unwelcome(kind="?", message="made up"), Rejoin())
    for peer in peers:
        for body in bodies:
            node.frames.append(peer.codec.encode(body, receiver=node.instance))
    node.wake()


def flood(node: Node, names: Callable[[], str]) -> None:
    """More requests than it holds, for prefills that nobody has heard of."""
    for number in range(FLOOD):
        hop = Hop(host=f"nowhere{number}", port=8998, room=1_000_000 + number)
        _ask(node, names(), hop=hop, prompt=_PROMPT)


def bad_requests(node: Node, names: Callable[[], str]) -> None:
    """Requests that no frontend should have let through."""
    hop = Hop(host="nowhere", port=8998, room=2_000_000)
    _ask(node, names(), hop=hop, prompt=b"")
    if node.role != "aggregated":
        _ask(node, names(), hop=None, prompt=_PROMPT)


def _publish(room: int) -> Publish:
    return Publish(
        room=room, generation=1, pages=b"", start_page=0, row=1, prompt_tokens=1, digest=b""
    )


def _ask(node: Node, rid: str, *, hop: Hop | None, prompt: bytes) -> None:
    node.take(Submit(rid=rid, input_ids=prompt, sampling=Sampling(), hop=hop))


def _some(frames: list[bytes], dice: random.Random) -> list[bytes]:
    return dice.sample(frames, min(len(frames), OLD_FRAMES))
