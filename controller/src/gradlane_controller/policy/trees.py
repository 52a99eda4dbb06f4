# SPDX-License-Identifier: Apache-2.0
"""Along which trees of switches a job is summed: partial sums go up, and results down.

A tree leads from the workers' switches, its edges, over shortest paths to one root, as in ATP (NSDI 2021). A job has
several, and each slice takes one, by its number: its bucket. At each switch all trees have the same children, so what
it waits for is the same for all slices, and a bucket can change its tree at any time.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from gradlane_controller.data_plane import BUCKETS
from gradlane_controller.network.fabric import Fabric, LinkPort
from gradlane_controller.network.links import End
from gradlane_controller.network.topology import Topology
from gradlane_controller.policy.sharing import Room, moved, spread


@dataclass(frozen=True)
class Tree:
    """`parents`: of every switch in it but the root; `edges`: those with workers."""

    root: str
    parents: Mapping[str, str]
    edges: frozenset[str]

    @cached_property
    def beneath(self) -> Mapping[str, frozenset[str]]:
        """The edges at and below each switch in it."""
        found = {name: {name} & self.edges for name in (self.root, *self.parents)}
        for edge in self.edges:
            above = edge
            while above != self.root:
                above = self.parents[above]
                found[above].add(edge)
        return {name: frozenset(edges) for name, edges in found.items()}

    @cached_property
    def children(self) -> Mapping[str, frozenset[str]]:
        """Of each switch in it: those whose partial sums it adds."""
        found: dict[str, set[str]] = {name: set() for name in self.beneath}
        for child, parent in self.parents.items():
            found[parent].add(child)
        return {name: frozenset(below) for name, below in found.items()}


def find_trees(fabric: Fabric, edges: Collection[str]) -> tuple[Tree, ...]:
    """The trees over switches that sum, to every root that is as close to all edges as any; none if there is no such.

    All edges must sum; one alone is the root. The trees do not depend on what is down.
    """
    return _find_trees(fabric, frozenset(edges))


@lru_cache(maxsize=1024)
def _find_trees(fabric: Fabric, edges: frozenset[str]) -> tuple[Tree, ...]:
    topology = _among_summing(fabric)
    far: dict[str, tuple[int, int]] = {}
    for switch in fabric.switches:
        away = [topology.distance(edge, switch.name) for edge in edges]
        distances = [it for it in away if it is not None]
        if len(distances) == len(away):
            far[switch.name] = sum(distances), max(distances)
    closest = min(far.values(), default=None)
    found: list[Tree] = []
    children: dict[str, frozenset[str]] = {}
    for turn, root in enumerate(name for name, it in far.items() if it == closest):
        tree = _tree(topology, root, edges, turn)
        if all(children.get(name, below) == below for name, below in tree.children.items()):
            found.append(tree)
            children |= tree.children
    return tuple(found)


@lru_cache(maxsize=4)
def _among_summing(fabric: Fabric) -> Topology:
    others = {
        (port.switch, port.number)
        for port in fabric.link_ports
        if not (fabric.aggregates(port.switch) and fabric.aggregates(port.peer))
    }
    return Topology(fabric, others)


def _tree(topology: Topology, root: str, edges: frozenset[str], turn: int) -> Tree:
    """Where several switches could be the parent, roots take them in turn."""
    parents: dict[str, str] = {}
    front = sorted(edges - {root})
    while front:
        for name in front:
            ups = sorted({port.peer for port in topology.next_ports(name, root)})
            parents[name] = ups[turn % len(ups)]
        front = sorted({parents[name] for name in front} - parents.keys() - {root})
    return Tree(root, parents, edges)


class Ways:
    """Which tree each bucket takes, and which link between two switches of it.

    `down`: ends of links, as switch and port, that do not work; `lacking`: switches that do not hold their entries of
    the job; `avoided`: switches that no tree shall lead through; those of workers can't be avoided. Used are the trees
    with the fewest such flaws, as other traffic (`loads`) leaves them room.
    """

    def __init__(
        self,
        fabric: Fabric,
        trees: Sequence[Tree],
        down: Collection[End],
        lacking: Collection[str],
        loads: Mapping[End, float],
        avoided: Collection[str] = (),
    ) -> None:
        dead = set(down)
        self._links: dict[tuple[str, str], list[LinkPort]] = defaultdict(list)
        self._alive: dict[tuple[str, str], list[LinkPort]] = defaultdict(list)
        for port in fabric.link_ports:
            self._links[port.switch, port.peer].append(port)
            if not {(port.switch, port.number), (port.peer, port.peer_number)} & dead:
                self._alive[port.switch, port.peer].append(port)
        self._flaws = {tree.root: self._flaws_of(tree, lacking, avoided) for tree in trees}
        self._best_first = sorted(trees, key=lambda it: len(self._flaws[it.root]))
        self._room = Room(fabric, loads)
        self._buckets = self._spread(trees, Room(fabric, {}))
        before = Counter[str]()
        self._turns = [before.update([it.root]) or before[it.root] - 1 for it in self._buckets]
        self._in_turn: dict[tuple[str, str], Sequence[LinkPort]] = {}

    @property
    def flaws(self) -> Sequence[str]:
        """Why no tree is whole; nothing if one is."""
        return self._flaws[self._best_first[0].root]

    @property
    def roots(self) -> Mapping[str, int]:
        """How many buckets each has, of those that have any."""
        return Counter(tree.root for tree in self._buckets)

    @property
    def in_use(self) -> Mapping[str, tuple[int, frozenset[LinkPort]]]:
        """By root: how many buckets it has, and the links of these, as the child's ends."""
        links: dict[str, set[LinkPort]] = {root: set() for root in self.roots}
        for bucket, tree in enumerate(self._buckets):
            links[tree.root].update(self.link(*ends, bucket) for ends in tree.parents.items())
        return {root: (buckets, frozenset(links[root])) for root, buckets in self.roots.items()}

    @property
    def carried(self) -> Mapping[End, int]:
        """How many buckets each end of a link sends, up or down."""
        links = (self.link(*ends, bucket) for bucket, tree in enumerate(self._buckets) for ends in tree.parents.items())
        return Counter(end for it in links for end in ((it.switch, it.number), (it.peer, it.peer_number)))

    def tree(self, switch: str, bucket: int) -> Tree:
        """That of a bucket; if it is not the switch's, another one that is, for what is still on its way."""
        return next(tree for tree in (self._buckets[bucket], *self._best_first) if switch in tree.beneath)

    def link(self, child: str, parent: str, bucket: int) -> LinkPort:
        """The child's end. The buckets of a tree are spread over those that work."""
        if (child, parent) not in self._in_turn:
            ports = self._usable(child, parent)
            turns = spread([[[port] for port in ports]] * BUCKETS, self._room.both_ways)
            self._in_turn[child, parent] = [ports[turn] for turn in turns]
        return self._in_turn[child, parent][self._turns[bucket]]

    def links(self, child: str, parent: str) -> Sequence[LinkPort]:
        """All of them, as the child's ends."""
        return self._links[child, parent]

    def _usable(self, child: str, parent: str) -> Sequence[LinkPort]:
        return self._alive[child, parent] or self._links[child, parent]

    def _flaws_of(self, tree: Tree, lacking: Collection[str], avoided: Collection[str]) -> list[str]:
        apart = [ends for ends in tree.parents.items() if not self._alive[ends]]
        return [
            *(f"{child!r} has no link to {parent!r} now" for child, parent in apart),
            *(f"{name!r} does not hold its entries yet" for name in tree.beneath if name in lacking),
            *(f"{name!r} is drained" for name in tree.beneath if name in avoided and name not in tree.edges),
        ]

    def _spread(self, trees: Sequence[Tree], empty: Room) -> Sequence[Tree]:
        """Over all as if they had neither flaws nor load, and from there as few as need be over the best: who has a
        good one keeps it."""
        best = [number for number, tree in enumerate(trees) if len(self._flaws[tree.root]) == len(self.flaws)]
        options = [list(tree.parents.items()) for tree in trees]
        whole = {ends: sum(map(empty.both_ways, self._links[ends])) for it in options for ends in it}
        left = {ends: sum(map(self._room.both_ways, self._usable(*ends))) for it in options for ends in it}
        before = spread([options] * BUCKETS, whole.__getitem__)
        wanted = spread([[options[number] for number in best]] * BUCKETS, left.__getitem__)
        return [trees[number] for number in moved(before, [best[turn] for turn in wanted])]
