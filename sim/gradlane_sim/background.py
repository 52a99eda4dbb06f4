# SPDX-License-Identifier: Apache-2.0
"""Other traffic beside training: flows whose sizes follow published distributions, as Poisson arrivals between random
hosts."""

import bisect
import random
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from gradlane_sim.specification import SECOND, Flow, need

MAX_FLOWS = 1_000_000
_SEGMENT = 1460  # the published tables count full TCP segments


@dataclass(frozen=True)
class Sizes:
    """A distribution of sizes: (bytes, part of the flows that have at most that many), linear in between."""

    name: str
    points: tuple[tuple[float, float], ...]

    @cached_property
    def mean(self) -> float:
        """Bytes."""
        return sum((a + b) / 2 * (part_b - part_a) for (a, part_a), (b, part_b) in pairwise(self.points))

    def at(self, part: float) -> int:
        """The size that this part of the flows does not exceed."""
        index = bisect.bisect_left(self.points, part, key=lambda point: point[1])
        if index == 0:
            return max(1, round(self.points[0][0]))
        (a, part_a), (b, part_b) = self.points[index - 1], self.points[min(index, len(self.points) - 1)]
        return max(1, round(a + (b - a) * (part - part_a) / (part_b - part_a)))


def _of_segments(name: str, *points: tuple[float, float]) -> Sizes:
    return Sizes(name, tuple((segments * _SEGMENT, part) for segments, part in points))


# Web search of the DCTCP paper (SIGCOMM 2010, figure 4), and data mining of VL2's (SIGCOMM 2009, figure 2), as the ns-2
# scripts of pFabric (SIGCOMM 2013) and PIAS (NSDI 2015) have them: CDF_dctcp.tcl and CDF_vl2.tcl.
WEB_SEARCH = _of_segments(
    "web-search",
    (6, 0), (6, 0.15), (13, 0.2), (19, 0.3), (33, 0.4), (53, 0.53), (133, 0.6), (667, 0.7), (1333, 0.8), (3333, 0.9),
    (6667, 0.97), (20000, 1),
)  # fmt: skip
DATA_MINING = _of_segments(
    "data-mining",
    (1, 0), (1, 0.5), (2, 0.6), (3, 0.7), (7, 0.8), (267, 0.9), (2107, 0.95), (66667, 0.99), (666667, 1),
)  # fmt: skip
DISTRIBUTIONS = {it.name: it for it in (WEB_SEARCH, DATA_MINING)}


def poisson(sizes: Sizes, load: float, hosts: int, rate: int, duration: int, seed: int) -> tuple[Flow, ...]:
    """Flows that begin within `duration` (ns), from every host to every other alike: together they are `load` of what
    the hosts' links carry, by their payload."""
    need(0 < load < 1, f"the load is {load}; it must be above 0 and below 1")
    need(hosts >= 2, f"background needs two hosts; there are {hosts}")
    per_second = load * rate * hosts / (8 * sizes.mean)
    expected = per_second * duration / SECOND
    need(expected <= MAX_FLOWS, f"that would be {expected:.0f} flows; at most {MAX_FLOWS} are possible")
    chance = random.Random(f"{seed} {sizes.name} {load}")
    flows: list[Flow] = []
    at = 0.0
    while (at := at + chance.expovariate(per_second) * SECOND) < duration:
        a = chance.randrange(hosts)
        b = (a + chance.randrange(1, hosts)) % hosts
        flows.append((round(at), a, b, sizes.at(chance.random())))
    return tuple(flows)
