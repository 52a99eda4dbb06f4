# SPDX-License-Identifier: Apache-2.0
"""Engines at several switches, which lose and restart, and whose tree moves: all ends as with one switch."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.wire import HEADER_BYTES, SUM_BYTES, Flag, Header, Lanes
from tests.gradlane.core.protocol.network import Impairment
from tests.gradlane.core.sums.summing import NOBODY, Summed, Tensor
from tests.gradlane.core.sums.test_closing import SLICES, follow, losing
from tests.gradlane.core.sums.test_storms import Storm, networks, storms, weather
from tests.gradlane.sums.fabric import BUCKETS, SWITCHES, Fabric, Packet, shapes
from tests.support.effort import tries
from tests.support.sum_switch import SumHeader

SHAPES = [name for name, shape in shapes(4).items() if len(set(shape.homes)) > 1]


class Treed(Summed):
    """`shape`: a name of `shapes`. What leaves a switch is lost, comes twice or late, as between hosts."""

    def __init__(self, shape: str, workers: int, **settings: Any) -> None:
        super().__init__(workers, **settings)
        self.fabric = Fabric(shapes(workers)[shape], workers, 0, self.slots, by_children=self.by_children)
        self.between: dict[int, Packet] = {}  # on its way to a switch, by its place in the network's queue
        self.lost_at: set[tuple[int, int]] = set()  # switch, number: this result never comes there

    def receive(self, rank: int, datagram: bytes, congested: bool = False) -> None:
        if rank < NOBODY:
            self._at(self.between.pop(rank))
        else:
            super().receive(rank, datagram, congested)

    def _take(self, source: int, datagram: bytes) -> None:
        self._at(Packet(self.fabric.homes[source], source, datagram))

    def _at(self, packet: Packet) -> None:
        if self.broken:
            return
        for more in self.fabric.take(packet):
            header, summed = Header.unpack(more.datagram), SumHeader.unpack(more.datagram[HEADER_BYTES:])
            if header.flags & Flag.PULL:
                its = summed.members, more.datagram[HEADER_BYTES + SUM_BYTES :]
                key = summed.generation, header.tensor // 16, header.message
                assert self.sums.setdefault(key, its) == its, "a slice has two sums"
                if (more.to, header.message) in self.lost_at:
                    continue
            for at in self.copies():
                to = more.to
                if to >= SWITCHES:
                    to = NOBODY - 1 - self.counter
                    self.between[to] = more
                self.push(at, to, more.datagram)

    def restart(self) -> None:
        """One of the switches forgets everything; and some send a part of the slices up another tree."""
        self.fabric.restart(self.random.choice(list(self.fabric.switches)))
        moved = [at for at in self.fabric.switches if self.random.random() < 0.7]
        for bucket in range(0, BUCKETS, 3):
            self.fabric.move(moved, bucket, self.random.randrange(3))


@settings(max_examples=tries(5), deadline=None)
@given(
    st.sampled_from(SHAPES),
    st.integers(2, 5),
    st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=2), min_size=1, max_size=2),
    st.sampled_from(Lanes),
    networks,
    storms,
    st.sampled_from([0.0, 0.3, 0.9]),
    st.integers(0, 2**32),
)
def test_all_steps_end_alike_and_nothing_is_lost(
    shape: str,
    workers: int,
    sizes: list[list[int]],
    lanes: Lanes,
    network: Impairment,
    happenings: list[Storm],
    budget: float,
    seed: int,
) -> None:
    cluster = Treed(shape, workers, lanes=lanes, impairment=network, seed=seed, loss=budget)
    leader = weather(cluster, sizes, happenings, steps=8)
    if network.loss == 0 and network.jitter < 10_000 and not any(it.restart or it.broken for it in happenings):
        assert leader.falls == 0


def test_a_closer_leaves_out_workers_of_its_own_leaf_alone() -> None:
    """Ranks 0 and 1 are at one leaf, 2 and 3 at the other; the closer of step 2 is rank 2."""
    members = {}
    for rank in (1, 3):
        cluster = Treed("leaf-spine", 4, window=16, slots=32, slice_bytes=144, loss=0.1)
        tensor = Tensor(0, [SLICES * cluster.per_slice])
        cluster.open(tensor)
        losing(cluster, rank, {20, 25})
        follow(cluster, tensor, 2)
        members[rank] = {s: its for s, its in cluster.members_of(2, tensor).items() if its != 0b1111}
    assert members == {1: {}, 3: {20: 0b0111, 25: 0b0111}}


@pytest.mark.parametrize("shape", ["leaf-spine", "three tiers"])
def test_what_is_not_applied_is_owed(shape: str) -> None:
    """Much of what goes to a switch and comes from one is lost; between hosts nothing is."""
    cluster = Treed(shape, 5, window=8, slice_bytes=144, loss=0.3)
    copies, rough = cluster.copies, Impairment(loss=0.05, duplicate=0.1, jitter=400)

    def rougher() -> list[int]:
        smooth, cluster.impairment = cluster.impairment, rough
        ats = copies()
        cluster.impairment = smooth
        return ats

    cluster.copies = rougher
    tensor = Tensor(0, [20 * cluster.per_slice, 7])
    cluster.open(tensor)
    follow(cluster, tensor, 8)
    counts = [cluster.statistics(rank) for rank in range(5)]
    assert sum(count.sums_left_out for count in counts) > 0
    assert sum(count.sums_over_budget for count in counts) == 0
