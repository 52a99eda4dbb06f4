# SPDX-License-Identifier: Apache-2.0
"""How much traffic ports have, as the switches count it: what fills links and follows no tree, and all that is sent."""

import time
from collections.abc import Callable, Container, Mapping, Sequence

from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.growth import growth
from gradlane_controller.network.links import End

STEPS = 64
HALF_LIFE = 2.0  # s after which half of what is known comes from what was counted since
SILENT_SECONDS = 10.0  # after which it is not known any more what a port sends


class Loads:
    """By sending end, smoothed. A switch that says nothing, or has begun to count anew, changes nothing.

    `octets`: bytes that each port has sent since it is known, which only grow: for each queue class what follows no
    tree, and then what does.
    """

    def __init__(self, fabric: Fabric, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._routed, self._sent = _Rates(), _Rates()
        self._told: dict[End, tuple[float, list[int], int]] = {}  # when, what is sent by queue class, and trees' part
        self.octets: dict[End, list[int]] = {}
        self.follow(fabric)

    def follow(self, fabric: Fabric) -> None:
        """The fabric has changed; what is known of ports that are there yet stays."""
        self._links = {(port.switch, port.number): port.rate for port in fabric.link_ports}
        self._ports = self._links | {(port.switch, port.number): port.rate for port in fabric.ports}
        self._routed.keep(self._links)
        self._sent.keep(self._ports)
        self.octets = {end: it for end, it in self.octets.items() if end in self._ports}
        self._told = {end: it for end, it in self._told.items() if end in self._ports}

    def ports(self, switch: str) -> list[int]:
        """Those of its links."""
        return [number for name, number in self._links if name == switch]

    def all_ports(self, switch: str) -> list[int]:
        """Those of its links and hosts."""
        return [number for name, number in self._ports if name == switch]

    def take(self, switch: str, octets: Mapping[int, int]) -> None:
        """What a switch has counted so far that follows no tree, by port; whatever it says, no link is more than
        full."""
        now = self._clock()
        for number in self.ports(switch):
            if number in octets:
                end = switch, number
                self._routed.take(end, now, (octets[number],), self._links[end])

    def take_sent(self, switch: str, octets: Mapping[int, Sequence[int]]) -> None:
        """The same of all that it has sent: by port, for each queue class what follows no tree, and then what does."""
        now = self._clock()
        for number in self.all_ports(switch):
            if number in octets:
                end = switch, number
                more = growth(self._sent.counted.get(end, (now, None))[1], octets[number])
                known = self.octets.get(end) or [0] * len(more)
                self.octets[end] = [it + each for it, each in zip(known, more, strict=True)]
                self._sent.take(end, now, octets[number], self._ports[end])
                if (found := self._sent.known.get(end)) is not None:
                    path, tree = found[: len(found) // 2], found[len(found) // 2 :]
                    both = [round(a + b) for a, b in zip(path, tree, strict=True)]
                    self._told[end] = now, both, round(sum(tree))

    def now(self) -> dict[End, float]:
        """What follows no tree in bit/s, of those links that are known, to a 64th of their rates: so it is mostly as it
        was."""
        return {
            end: round(STEPS * load / self._links[end]) * self._links[end] / STEPS
            for end, (load,) in self._routed.known.items()
        }

    def sent(self, end: End) -> list[int] | None:
        """All that leaves there, in bit/s by queue class; None where that is not known, or was not told lately."""
        return None if (found := self._lately(end)) is None else found[1]

    def trees(self, end: End) -> int | None:
        """What of it follows trees."""
        return None if (found := self._lately(end)) is None else found[2]

    def _lately(self, end: End) -> tuple[float, list[int], int] | None:
        found = self._told.get(end)
        return None if found is None or self._clock() > found[0] + SILENT_SECONDS else found


class _Rates:
    """In bit/s, of ends that count in several parts."""

    def __init__(self) -> None:
        self.counted: dict[End, tuple[float, Sequence[int]]] = {}  # when, and bytes
        self.known: dict[End, list[float]] = {}

    def keep(self, ends: Container[End]) -> None:
        """Forgets all others."""
        for it in (self.counted, self.known):
            for end in [end for end in it if end not in ends]:
                del it[end]

    def take(self, end: End, now: float, octets: Sequence[int], most: int) -> None:
        """So many bytes so far, which together are not more than `most` bit/s."""
        since, before = self.counted.get(end, (now, octets))
        self.counted[end] = now, octets
        passed = now - since
        more = [8 * (it - earlier) for it, earlier in zip(octets, before, strict=True)]
        if passed <= 0 or min(more) < 0:
            return
        part = min(1.0, most * passed / (sum(more) or 1)) / passed
        kept = 0.5 ** (passed / HALF_LIFE)
        known = self.known.get(end) or [0.0] * len(more)
        self.known[end] = [kept * rate + (1 - kept) * it * part for rate, it in zip(known, more, strict=True)]
