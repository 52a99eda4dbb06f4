# SPDX-License-Identifier: Apache-2.0
"""Groups of which a host is dead: their hosts tell one another, as some may not have called the group yet.

They tell the hub, which tells each of the others once.
"""

from collections.abc import Callable, Collection
from typing import Any

from gradlane import json_object

Message = dict[str, Any]

_PIECE = 1024  # hosts of a message
_TOLD = {"closed": int, "hosts": [int]}
_SAID = {"closed": int, "by": int}


class Closings:
    """At one rank. `send` brings a message to a rank, `hub` gives the lowest that lives; `close` takes who says that a
    host of a group is dead, and the group's number, and raises ValueError if there is no such group."""

    def __init__(
        self,
        rank: int,
        size: int,
        hub: Callable[[], int],
        send: Callable[[int, Message], None],
        close: Callable[[int, int], None],
    ) -> None:
        self._rank, self._size, self._hub, self._send, self._close = rank, size, hub, send, close
        self._known: dict[int, set[int]] = {}  # by number: who has been told, at the hub

    def tell(self, number: int, hosts: Collection[int]) -> None:
        """All hosts of a group are to know."""
        hub, named = self._hub(), sorted(hosts)
        if hub == self._rank:
            self._spread(self._rank, number, named)
            return
        for start in range(0, len(named), _PIECE):
            self._send(hub, {"closed": number, "hosts": named[start : start + _PIECE]})

    def hear(self, rank: int, message: Message) -> None:
        """Of a group's host, at the hub; or of the hub. Raises ValueError if it makes no sense."""
        if "by" in message:
            json_object.check(message, _SAID)
            if rank > self._rank or not 0 <= message["by"] < self._size:
                raise ValueError(f"it says what the hub has to say: {str(message)[:60]}")
            self._close(message["by"], message["closed"])
            return
        json_object.check(message, _TOLD)
        if not all(0 <= host < self._size for host in message["hosts"]):
            raise ValueError(f"it says of hosts {str(message['hosts'])[:60]} that a group is lost")
        self._close(rank, message["closed"])
        self._spread(rank, message["closed"], message["hosts"])

    def _spread(self, by: int, number: int, hosts: Collection[int]) -> None:
        known = self._known.setdefault(number, {self._rank})
        known.add(by)
        for host in hosts:
            if host not in known:
                known.add(host)
                self._send(host, {"closed": number, "by": by})
