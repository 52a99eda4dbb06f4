# SPDX-License-Identifier: Apache-2.0
"""How much of each link traffic takes that follows no tree, as the switches count it."""

import time
from collections.abc import Callable, Mapping

from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.links import End

STEPS = 64
HALF_LIFE = 2.0  # s after which half of what is known comes from what was counted since


class Loads:
    """By sending end, smoothed. A switch that says nothing, or has begun to count anew, changes nothing."""

    def __init__(self, fabric: Fabric, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counted: dict[End, tuple[float, int]] = {}  # when, and bytes
        self._loads: dict[End, float] = {}
        self.follow(fabric)

    def follow(self, fabric: Fabric) -> None:
        """The fabric has changed; what is known of links that are there yet stays."""
        self._rates = {(port.switch, port.number): port.rate for port in fabric.link_ports}
        for known in (self._counted, self._loads):
            for end in known.keys() - self._rates.keys():
                del known[end]

    def ports(self, switch: str) -> list[int]:
        """Those of its links."""
        return [number for name, number in self._rates if name == switch]

    def take(self, switch: str, octets: Mapping[int, int]) -> None:
        """What a switch has counted so far, by port; whatever it says, no link is more than full."""
        now = self._clock()
        for number in self.ports(switch):
            if number not in octets:
                continue
            end = switch, number
            since, before = self._counted.get(end, (now, 0))
            self._counted[end] = now, octets[number]
            if now > since and octets[number] >= before:
                load = min(8 * (octets[number] - before) / (now - since), float(self._rates[end]))
                kept = 0.5 ** ((now - since) / HALF_LIFE)
                self._loads[end] = kept * self._loads.get(end, 0.0) + (1 - kept) * load

    def now(self) -> dict[End, float]:
        """In bit/s, of those that are known, to a 64th of their rates: so it is mostly as it was."""
        return {
            end: round(STEPS * load / self._rates[end]) * self._rates[end] / STEPS for end, load in self._loads.items()
        }
