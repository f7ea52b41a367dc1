"""A loopback address for every pod.

Linux answers on all of 127.0.0.0/8 without any set-up. An address in use is held by a bound
socket, so that another kubelet on this machine passes it over and the kernel frees it when this
process dies. Addresses are handed out in turn, not lowest first: what was just freed stays unused
as long as possible, so that a late packet for the dead pod does not reach its successor.
"""

import ipaddress
import socket
from collections.abc import Iterator
from itertools import cycle

from pdcluster_operator.errors import NoAddress


class AddressPool:
    """Addresses of one network."""

    def __init__(self, network: str, lock_port: int) -> None:
        self._network = ipaddress.IPv4Network(network)
        self._lock_port = lock_port
        self._turn: Iterator[int] = cycle(range(1, self._network.num_addresses - 1))
        self._held: dict[str, socket.socket] = {}

    def take(self) -> str:
        """Return an address that nobody uses; raises `NoAddress` when there is none."""
        for _ in range(self._network.num_addresses - 2):
            address = str(self._network[next(self._turn)])
            lock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                lock.bind((address, self._lock_port))
            except OSError:
                lock.close()
                continue
            self._held[address] = lock
            return address
        raise NoAddress(f"every address of {self._network} is in use")

    def free(self, address: str) -> None:
        """Give one back."""
        self._held.pop(address).close()

    def close(self) -> None:
        """Give all back."""
        for address in tuple(self._held):
            self.free(address)
