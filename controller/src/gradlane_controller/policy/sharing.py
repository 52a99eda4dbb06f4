# SPDX-License-Identifier: Apache-2.0
"""How trees share links: buckets of sums and results by multicast go where other traffic leaves room for them.

What follows trees can't leave a busy link by itself, as sprayed slices do. So the controller lays it, by the loads that
switches count (`routed` of p4src/v1model/congestion.p4): all that fills a link's virtual queue and follows no tree.
Nothing therefore moves because of what was moved, and all that follows trees is spread alike.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from gradlane_controller.network.fabric import Fabric, LinkPort
from gradlane_controller.network.links import End

LEAST_PART = 32
"""A link counts as having this part of its rate at least: so little that it gets no bucket beside an idle one, but
links that are all full have shares."""

_Resource = TypeVar("_Resource", bound=Hashable)


class Room:
    """What other traffic leaves of each link, in bit/s. `loads`: what it takes, by the sending end."""

    def __init__(self, fabric: Fabric, loads: Mapping[End, float]) -> None:
        self._of = {
            (port.switch, port.number): max(
                port.rate - loads.get((port.switch, port.number), 0.0), port.rate / LEAST_PART
            )
            for port in fabric.link_ports
        }

    def of(self, end: End) -> float:
        """What is sent there."""
        return self._of[end]

    def both_ways(self, port: LinkPort) -> float:
        """In the direction that has less."""
        return min(self._of[port.switch, port.number], self._of[port.peer, port.peer_number])


def spread(units: Sequence[Sequence[Collection[_Resource]]], room: Callable[[_Resource], float]) -> list[int]:
    """For each unit of traffic, the index of the option that it takes: an option is all that the unit would use.

    One by one each takes that which leaves what it uses least full: the fullest first, of equals the next. Where
    options share nothing that is D'Hondt's method.
    """
    given, taken = Counter[_Resource](), list[int]()
    fills: dict[int, list[float]] = {}  # by id of an option, until something that it uses is fuller,
    users: dict[_Resource, list[int]] = {}  # which is asked here
    for options in units:
        for option in options:
            if id(option) not in fills:
                fills[id(option)] = sorted(((given[it] + 1) / room(it) for it in option), reverse=True)
                for it in option:
                    users.setdefault(it, []).append(id(option))
        taken.append(min(range(len(options)), key=lambda n: fills[id(options[n])]))
        given.update(options[taken[-1]])
        for it in options[taken[-1]]:
            for other in users.pop(it, ()):
                fills.pop(other, None)
    return taken


def moved(before: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Each index as often as in `wanted`; as few as can be are elsewhere than `before`."""
    left = Counter(wanted)
    stays: list[bool] = []
    for index in before:
        stays.append(left[index] > 0)
        left[index] -= stays[-1]
    others = left.elements()
    return [index if stay else next(others) for index, stay in zip(before, stays, strict=True)]


def gain(now: Iterable[Mapping[End, int]], then: Iterable[Mapping[End, int]], room: Callable[[End], float]) -> float:
    """By how much the fullest link would be less full: the largest ratio, of all that is spread by itself (a job's
    sums, all multicasts). `now` and `then`: how many units each end would send."""
    fullest = [
        [max((units / room(end) for end, units in it.items()), default=0.0) for it in some] for some in (now, then)
    ]
    return max((a / b for a, b in zip(*fullest, strict=True) if b), default=1.0)
