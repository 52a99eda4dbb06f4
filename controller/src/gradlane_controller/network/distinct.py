# SPDX-License-Identifier: Apache-2.0
"""What each host's port of a fabric file must have for itself, compared with all others at once: files are long."""

from bisect import bisect_right, insort
from collections import defaultdict
from operator import itemgetter

from gradlane.toml_file import Table
from gradlane_controller.network.fabric import Port

_FIRST = itemgetter(0)


class DistinctPorts:
    """The ports so far, by what nobody else may have."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, object], Port] = {}
        self._prefixes: dict[str, list[tuple[int, int, Port]]] = defaultdict(list)
        """By key, those that are disjoint, in order: first and last address, and whose it is."""

    def add(self, table: Table, port: Port) -> None:
        """Another one, which `table` describes. Raises the file's error if it is not distinct from one before."""
        own: dict[tuple[str, object], tuple[str, str]] = {
            ("number", (port.switch, port.number)): ("number", str(port.number)),
            ("host", port.host): ("host", repr(port.host)),
            ("host_mac", port.host_mac): ("host_mac", repr(port.host_mac)),
        }
        keys = {port.address: "address", port.address6: "address6"}
        for address in port.addresses:
            own["address", address] = keys.get(address, "also"), repr(str(address))
        for what, (key, value) in own.items():
            if (other := self._owners.get(what)) is not None:
                raise table.error(key, f"is {value}, like that of {_named(other, here=key == 'number')}")
        new = {key: span for key in ("prefix", "prefix6") if (span := self._span(table, port, key)) is not None}
        self._owners |= dict.fromkeys(own, port)
        for key, span in new.items():
            insort(self._prefixes[key], span, key=_FIRST)

    def _span(self, table: Table, port: Port, key: str) -> tuple[int, int, Port] | None:
        """Where its prefix is among the others; None: it has none, or one that is there already."""
        prefix = getattr(port, key)
        if prefix is None:
            return None
        first, last = int(prefix.network_address), int(prefix.broadcast_address)
        others = self._prefixes[key]
        # As these are disjoint, if any overlaps it is the last one that does not begin behind.
        place = bisect_right(others, last, key=_FIRST) - 1
        if place < 0 or others[place][1] < first:
            return first, last, port
        other = others[place][2]
        if getattr(other, key) != prefix:
            where = f"port {other.number} of {other.switch!r}"
            text = f"{prefix} overlaps {getattr(other, key)} of {where}; make them equal or disjoint"
            raise table.error(key, text)
        return None


def _named(other: Port, *, here: bool) -> str:
    if here:
        return f"host {other.host!r} at {other.switch!r}; take another"
    return f"port {other.number} of {other.switch!r}; each needs its own"
