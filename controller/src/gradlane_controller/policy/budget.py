# SPDX-License-Identifier: Apache-2.0
"""How much of a message's loss budget a switch may take, by its place on the path.

Over all switches that slices of one message may cross, the parts never exceed the budget B. The last switch takes
B - floor(B/2). The first one takes floor(B/2) if no path from it has more than two switches, else floor(B/4), and then
the other floor(B/4) belongs to the switches in the middle of paths of three, divided by how many of them are parallel,
as slices are sprayed over all of them. The switches in the middle of longer paths take nothing.

A switch of several pipes counts in each what enters by its ports. A message comes from its host by one port, but from
other switches by all links, so each pipe has an equal part of the switch's, rounded down.
"""

from collections.abc import Iterable

from finsy import Action, Match, P4TableEntry

from gradlane_controller.network.fabric import SwitchAddress
from gradlane_controller.network.topology import Topology
from gradlane_controller.policy.entities import Entity

_OF_PARALLEL = {1: "quarter", 2: "eighth", 3: "sixteenth", 4: "sixteenth"}
_BY_SIZE = ("nothing", "sixteenth", "eighth", "quarter", "half", "rest_of_half", "whole")
_SIXTEENTHS = {"sixteenth": 1, "eighth": 2, "quarter": 4, "half": 8}  # of a budget at most; rest_of_half is 8 at least


def budget_shares(topologies: Iterable[Topology], where: SwitchAddress) -> list[Entity]:
    """The parts by where a packet came from and goes to; what is not there takes nothing.

    Of several topologies, before and after a link went down, the smaller part: messages in flight meet both.
    """
    topologies, switch = list(topologies), where.name
    found = {
        (0, 0): ["whole"],
        (0, 1): ["half" if topology.longest_from(switch) < 2 else "quarter" for topology in topologies],
        (1, 0): [_of_pipe("rest_of_half", where.pipes)],
        (1, 1): [_of_pipe(_of_middle(topology, switch), where.pipes) for topology in topologies],
    }
    smallest = {key: min(parts, key=_BY_SIZE.index) for key, parts in found.items()}
    return [
        P4TableEntry("budget_shares", match=Match(from_fabric=source, to_fabric=destination), action=Action(part))
        for (source, destination), part in smallest.items()
        if part != "nothing"
    ]


def _of_pipe(part: str, pipes: int) -> str:
    """The largest part of which so many together are no more than this one."""
    if pipes == 1:
        return part
    all_of_them = 8 if part == "rest_of_half" else _SIXTEENTHS.get(part, 0)
    fitting = [name for name, size in _SIXTEENTHS.items() if size * pipes <= all_of_them]
    return max(fitting, key=_BY_SIZE.index, default="nothing")


def _of_middle(topology: Topology, switch: str) -> str:
    return _OF_PARALLEL.get(topology.parallel.get(switch) or 0, "nothing")
