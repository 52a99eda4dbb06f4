# SPDX-License-Identifier: Apache-2.0
"""Switches that sum, one above the other: what each has in its tables, and what it sends where."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gradlane import wire
from tests.support.sum_switch import EVERYBODY, Contributor, SumSwitch

BUCKETS = 16
SWITCHES = 100  # ranks are places below it, switches from it on


@dataclass(frozen=True)
class Packet:
    """On its way to a worker or a switch; `by`: its sender, None for a stranger."""

    to: int
    by: int | None
    datagram: bytes


@dataclass(frozen=True)
class Shape:
    """Each worker's switch, and trees: the switch above each but the root. Numbers of switches are without SWITCHES."""

    homes: tuple[int, ...]
    trees: tuple[tuple[tuple[int, int], ...], ...] = ((),)


def shapes(workers: int) -> Mapping[str, Shape]:
    """By name, those that make sense for so many workers."""

    def spread(leaves: int, *trees: Mapping[int, int]) -> Shape:
        homes = (*(rank * leaves // workers for rank in range(workers - 1)), leaves - 1)
        used = [set(homes) | {tree[leaf] for leaf in set(homes) if leaf in tree} for tree in trees]
        return Shape(
            homes, tuple(tuple((a, b) for a, b in t.items() if a in u) for t, u in zip(trees, used, strict=True))
        )

    return {
        "one switch": Shape((0,) * workers),
        "leaf-spine": spread(2, {0: 10, 1: 10}, {0: 11, 1: 11}),
        "hosts at the root": spread(2, {1: 0}),
        "three tiers": spread(
            3, {0: 10, 1: 10, 2: 11, 10: 20, 11: 20}, {0: 10, 1: 10, 2: 11, 10: 21, 11: 21},
            {0: 12, 1: 12, 2: 13, 12: 22, 13: 22},
        ),
    }  # fmt: skip


class Fabric:
    """The switches. What comes to one leaves it as packets for others and for workers."""

    def __init__(
        self,
        shape: Shape,
        workers: int,
        base: int,
        slots: int,
        switch: Callable[[], SumSwitch] = SumSwitch,
        by_children: bool = False,
    ) -> None:
        """`base`, `slots`: the job's, at all switches. `by_children`: each switch has bits of its own, of the hosts at
        its ports and the switches next beneath it, and not of workers."""
        self.base, self.slots, self.by_children = base, slots, by_children
        self.everyone = EVERYBODY if by_children else (1 << workers) - 1
        self.homes = [SWITCHES + home for home in shape.homes]
        self.trees = [{SWITCHES + a: SWITCHES + b for a, b in tree} for tree in shape.trees]
        # Of each switch: the bits beneath it, and the switches next beneath it. They are the same in all trees.
        self.here: dict[int, int] = {}
        self.children: dict[int, set[int]] = {home: set() for home in self.homes}
        for tree in self.trees:
            for rank, home in enumerate(self.homes):
                at: int | None = home
                while at is not None:
                    self.here[at] = self.here.get(at, 0) | 1 << rank
                    above = tree.get(at)
                    if above is not None:
                        self.children.setdefault(above, set()).add(at)
                    at = above
        # By switch and child: its bits.
        self.bits = {at: self._divided(at) for at in self.here} if by_children else {}
        self.switches = {at: switch() for at in self.here}
        self.spines = self.here.keys() - self.homes
        self.epochs = dict.fromkeys(self.here, 1)
        # By switch and bucket: the switch above.
        self.above: dict[tuple[int, int], int] = {}
        self.agree()

    def _divided(self, at: int) -> dict[int, int]:
        """Of a root all bits are, and its last child has what is left; others leave some for who is above."""
        own = [*(rank for rank, home in enumerate(self.homes) if home == at), *sorted(self.children.get(at, ()))]
        bits = {child: 1 << place for place, child in enumerate(own)}
        if all(at not in tree for tree in self.trees):
            bits[own[-1]] = EVERYBODY & ~sum(bits[child] for child in own[:-1])
        return bits

    def agree(self) -> None:
        """Each bucket has its own tree at all switches."""
        for bucket in range(BUCKETS):
            self.move(list(self.here), bucket, bucket)

    def move(self, switches: Sequence[int], bucket: int, tree: int) -> None:
        """These send a bucket's slices up another tree; one that is not in it, up the first that it is in."""
        for at in switches:
            known = [it[at] for it in (self.trees[tree % len(self.trees)], *self.trees) if at in it]
            if known:
                self.above[at, bucket] = known[0]

    def restart(self, at: int) -> None:
        """It forgets its slots, and the controller notices."""
        self.switches[at].restart()
        self.epochs[at] = self.epochs[at] % 255 + 1

    def row(self, at: int, by: int | None, bucket: int) -> Contributor | None:
        """What the tables of a switch say of a sender of the job, for a bucket's slices."""
        if by is None:
            return None
        stands_for, here = 0, self.here[at]
        if self.by_children:
            member, here = self.bits[at].get(by, 0), sum(self.bits[at].values())
            stands_for = sum(self.bits[by].values()) if by >= SWITCHES else 0
        elif by < SWITCHES:
            member = 1 << by if self.homes[by] == at else 0
        else:
            member = self.here[by] if by in self.children[at] else 0
        return Contributor(
            member, self.everyone, self.base, self.slots - 1, here, self.epochs[at], by >= SWITCHES,
            above=by == self.above.get((at, bucket)), stands_for=stands_for,
        )  # fmt: skip

    def take(self, packet: Packet) -> list[Packet]:
        """What a switch makes of what comes to it."""
        at, by = packet.to, packet.by
        bucket = wire.Header.unpack(packet.datagram).message % BUCKETS
        outcome = self.switches[at].take(self.row(at, by, bucket), packet.datagram)
        if outcome.datagram is None:
            return []
        assert by is not None
        if outcome.up:
            to = [self.above[at, bucket]]
        elif outcome.to_all:
            to = [*(rank for rank, home in enumerate(self.homes) if home == at), *sorted(self.children[at])]
        else:
            to = [by]
        return [Packet(it, at, outcome.datagram) for it in to]
