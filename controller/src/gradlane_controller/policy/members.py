# SPDX-License-Identifier: Apache-2.0
"""What the bits of a switch's slots stand for, in the sums of a job.

Up to 32 workers have one each, the same at all switches. In a larger job each switch has bits of its own: of the hosts
at its ports and the switches beneath it in the job's trees, its *children*, which are the same in all of them. So a
child has the same bits for every slice, whichever tree that takes. A sum that goes up is of all of them, or it is
dropped: `stand_for`.
"""

from collections.abc import Mapping, Sequence

from finsy import Action

from gradlane.job import Job, Member
from gradlane.job.transport import SUM_MEMBERS
from gradlane.toml_file import Address
from gradlane_controller.network.fabric import Fabric, Port
from gradlane_controller.policy.trees import Tree

EVERYBODY = (1 << SUM_MEMBERS) - 1
Children = Mapping[str, tuple[str, ...]]
"""By switch: the addresses of the workers at its ports, and then the names of switches."""


def children_of(fabric: Fabric, job: Job, trees: Sequence[Tree]) -> Children:
    """Of every switch of a job's trees."""
    own: dict[str, list[Address]] = {}
    for worker, port in zip(job.workers, fabric.host_ports(it.host for it in job.workers), strict=True):
        own.setdefault(port.switch, []).append(worker.address)
    beneath = {name: below for tree in trees for name, below in tree.children.items()}
    return {name: (*map(str, sorted(own.get(name, ()), key=int)), *sorted(below)) for name, below in beneath.items()}


def crowd(job: Job, tree: Tree, children: Children) -> str:
    """Which switch of a tree has more children than bits, of which those below the root have one for all others;
    nothing if none has."""
    for name in tree.beneath if not job.sums_name_workers else ():
        most = SUM_MEMBERS if name == tree.root else SUM_MEMBERS - 1
        if len(children[name]) > most:
            switches = len(tree.children[name])
            return (
                f"switch {name!r} would add what {len(children[name]) - switches} workers at its ports and {switches} "
                f"switches send; of a job of more than {SUM_MEMBERS} workers it can tell {most} apart: spread them "
                "over more switches"
            )
    return ""


def has_others(job: Job, before: Children, now: Children) -> bool:
    """Whether a switch's bits have become those of others, as the fabric has changed under the job.

    What is in the slots then, or on its way, would be taken for a sum of these. If the job has other hosts now it has
    begun anew, in another generation.
    """
    addresses = {str(it.address) for it in job.workers}
    there = {child for some in before.values() for child in some} - before.keys()
    both = before.keys() & now.keys()
    return there == addresses and (not both or any(before[name] != now[name] for name in both))


class Members:
    """Those of a job, in its trees."""

    def __init__(self, job: Job, children: Children, workers: Sequence[tuple[Member, Port]]) -> None:
        """`children`: of a larger job."""
        self._by_worker, self._children, self._workers = job.sums_name_workers, children, workers
        self.everybody = (1 << len(workers)) - 1 if self._by_worker else EVERYBODY

    def of(self, switch: str, worker: Member) -> int:
        """The bit of a worker at a port of the switch."""
        if self._by_worker:
            return 1 << worker.rank
        return 1 << self._children[switch].index(str(worker.address))

    def here(self, tree: Tree, switch: str) -> int:
        """Of all that are beneath the switch."""
        if self._by_worker:
            return sum(1 << it.rank for it, port in self._workers if port.switch in tree.beneath[switch])
        return EVERYBODY if switch == tree.root else (1 << len(self._children[switch])) - 1

    def partial(self, tree: Tree, switch: str, child: str) -> Action:
        """What the switch does with a partial sum of another one beneath it."""
        if self._by_worker:
            return Action("cover", workers=self.here(tree, child))
        own = self._children[switch]
        place = own.index(child)
        # The last child of a root has all that are left.
        last = switch == tree.root and place == len(own) - 1
        bits = EVERYBODY >> place << place if last else 1 << place
        return Action("stand_for", bits=bits, workers=self.here(tree, child))
