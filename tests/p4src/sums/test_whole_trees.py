# SPDX-License-Identifier: Apache-2.0
"""Two leaves and two spines that sum for four workers, over links that lose, repeat and reorder.

Each switch is compared with the model, frame by frame. What comes out is compared with what the workers gave.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

import pytest
from finsy import P4Schema

from gradlane.wire import HEADER_BYTES, Kind
from gradlane_switch.state.pipeline import Pipeline
from tests.p4src.packet_bench import Bench
from tests.p4src.packet_targets import InProcess
from tests.p4src.sums.sum_bench import EPOCH, EVERY, GROUPS, Place, SumBench, bits_of, contribution, datagram_of, member
from tests.p4src.sums.tofino_sums import TofinoSums
from tests.support.effort import tries
from tests.support.gradlane_packets import H1, H2, H3, H4, HOSTS, U5, U6, Host, Uplink
from tests.support.sum_switch import Event, SumHeader

LEAVES = {"left": (H1, H2), "right": (H3, H4)}
SPINES = ("even", "odd")
# A leaf has its spines, and a spine its leaves, in this order at these ports.
PORTS = (U5, U6)


def _leaf(hosts: tuple[Host, ...]) -> Place:
    ports = tuple(host.port for host in hosts)
    return Place(hosts, 0, 3, 7, ports, ups=(5, 6), beyond=bits_of(set(HOSTS) - set(hosts)))


def _leaf_of_many(hosts: tuple[Host, ...]) -> Place:
    """As if there were more workers than bits."""
    return replace(_leaf(hosts), beyond=EVERY & ~bits_of(hosts))


SPINE = Place((), 0, 3, 7, (5, 6), beneath={5: bits_of(LEAVES["left"]), 6: bits_of(LEAVES["right"])})
SPINE_OF_MANY = replace(SPINE, beneath={5: 0x0000FFFF, 6: 0xFFFF0000}, stands_for=SPINE.beneath)
PLACES = {name: _leaf(hosts) for name, hosts in LEAVES.items()} | dict.fromkeys(SPINES, SPINE)
OF_MANY = {name: _leaf_of_many(hosts) for name, hosts in LEAVES.items()} | dict.fromkeys(SPINES, SPINE_OF_MANY)


class Tree:
    """The switches, what is on its way between them, and what has come to each worker."""

    def __init__(
        self,
        new: Callable[[], Bench],
        random: Random,
        disorder: bool = True,
        version: int = 4,
        of: Mapping[str, Place] = PLACES,
    ) -> None:
        """`version`: of IP."""
        self.group = GROUPS[version]
        places = {name: replace(place, version=version) for name, place in of.items()}
        self.switches = {name: SumBench(new(), {1: place}) for name, place in places.items()}
        for it in self.switches.values():
            it.install()
        self.random, self.disorder = random, disorder
        self.network: list[tuple[str, Host | Uplink, bytes]] = []
        self.results: dict[tuple[Host, int], set[bytes]] = {}

    def send(self, source: Host, number: int, value: int, **fields: int) -> None:
        """A worker's contribution, of one lane for each number."""
        lanes = (value + number).to_bytes(4, "big") * 32
        leaf = next(name for name, hosts in LEAVES.items() if source in hosts)
        frame = contribution(source, lanes, number=number, destination=self.group, **fields)
        self.network.append((leaf, source, frame))

    def move(self) -> None:
        """Something on its way arrives, or not."""
        index = self.random.randrange(len(self.network)) if self.disorder else 0
        fate = self.random.random() if self.disorder else 0.5
        name, source, frame = self.network[index] if fate > 0.9 else self.network.pop(index)
        if fate < 0.3:
            return  # lost
        for sent in self.switches[name].process(source, frame)[1]:
            if name in LEAVES and sent.port < U5.port:
                self._arrive(HOSTS[sent.port - 1], datagram_of(sent.frame))
                continue
            nexts, own = (SPINES, tuple(LEAVES)) if name in LEAVES else (tuple(LEAVES), SPINES)
            self.network.append((nexts[sent.port - U5.port], PORTS[own.index(name)], sent.frame))

    def _arrive(self, host: Host, datagram: bytes) -> None:
        number = int.from_bytes(datagram[HEADER_BYTES + 8 : HEADER_BYTES + 10], "big")
        self.results.setdefault((host, number), set()).add(datagram[HEADER_BYTES:])

    def has(self, host: Host, number: int) -> bool:
        return (host, number) in self.results

    def settle(self) -> None:
        """All that is on its way arrives or is lost."""
        while self.network:
            self.move()

    def events(self, name: str) -> dict[Event, int]:
        """What became of all that has come to a switch."""
        return {event: count for (_, event), count in self.switches[name].events.items()}


@pytest.fixture(params=["v1model", "tna"])
def new(
    request: pytest.FixtureRequest, sum_schema: P4Schema, sum_pipeline: Pipeline, sum_tofino_pipeline: Pipeline
) -> Callable[[], Bench]:
    if request.param == "v1model":
        return lambda: Bench(InProcess(sum_schema, sum_pipeline), sum_schema)
    return lambda: Bench(TofinoSums(sum_schema, sum_tofino_pipeline), sum_schema)


@pytest.fixture(params=[PLACES, OF_MANY], ids=["bits of workers", "bits of children"])
def places(request: pytest.FixtureRequest, new: Callable[[], Bench]) -> Mapping[str, Place]:
    if request.param is OF_MANY and isinstance(new().target, TofinoSums):
        pytest.skip("the program for Tofino sums jobs of up to 32 workers")
    return request.param


def of_all(
    number: int, values: dict[Host, int], who: tuple[Host, ...] = HOSTS, of: Mapping[str, Place] = PLACES
) -> set[bytes]:
    """The one result that everybody must have."""
    total = sum(values[host] + number for host in who)
    members = EVERY if of is OF_MANY else bits_of(who)
    return {SumHeader(1, members, number, -3, EPOCH).pack() + total.to_bytes(4, "big") * 32}


@pytest.mark.parametrize("seed", range(tries(6)))
def test_all_get_the_same_sum_of_all_whatever_the_links_do(
    new: Callable[[], Bench], places: Mapping[str, Place], seed: int
) -> None:
    tree = Tree(new, random := Random(seed), version=(4, 6)[seed % 2], of=places)
    values = {host: random.randrange(1 << 20) for host in HOSTS}
    for number in range(8):
        while lacking := [host for host in HOSTS if not tree.has(host, number)]:
            for host in lacking:
                tree.send(host, number, values[host], kind=random.choice([Kind.DATA, Kind.REPAIR]))
            for _ in range(random.randrange(30)):
                if tree.network:
                    tree.move()
        for host in HOSTS:
            assert tree.results[host, number] == of_all(number, values, of=places)
    tree.settle()
    for (host, number), found in tree.results.items():
        assert found == of_all(number, values, of=places), (host, number)


def test_without_loss_every_link_carries_each_slice_once(new: Callable[[], Bench]) -> None:
    tree = Tree(new, Random(0), disorder=False)
    for number in range(4):
        for host in HOSTS:
            tree.send(host, number, host.port)
    tree.settle()
    for name in LEAVES:
        assert tree.events(name) == {Event.CONTRIBUTION: 8, Event.PARTIAL: 4, Event.RESULT: 4}
    for name in SPINES:
        assert tree.events(name) == {Event.CONTRIBUTION: 4, Event.RESULT: 2}, "each has half of the slices"
    assert len(tree.results) == 16


@pytest.mark.parametrize("who", [None, "left", "right"])
def test_a_leaf_that_has_forgotten_its_slots_has_the_result_again(
    new: Callable[[], Bench], places: Mapping[str, Place], who: str | None
) -> None:
    """It fills its slot anew; what it sends up is known there, and answered."""
    tree = Tree(new, Random(0), disorder=False, of=places)
    for again in range(2):
        for host in HOSTS:
            if not again or who is None or host in LEAVES[who]:
                tree.send(host, 0, host.port)
        tree.settle()
        for name in LEAVES if who is None else [who]:
            tree.switches[name].model.restart()
            tree.switches[name].install()
    assert {host: found for (host, _), found in tree.results.items()} == dict.fromkeys(
        HOSTS, of_all(0, {host: host.port for host in HOSTS}, of=places)
    )


def test_a_worker_that_its_leaf_leaves_out_is_missing_for_all(new: Callable[[], Bench]) -> None:
    tree = Tree(new, Random(0), disorder=False)
    values = {host: 10 * host.port for host in HOSTS}
    for host in (H1, H3, H4):
        tree.send(host, 0, values[host])
    tree.settle()
    assert not tree.results
    tree.send(H1, 0, values[H1], kind=Kind.REPAIR, members=member(H2), epoch=EPOCH)
    tree.settle()
    tree.send(H2, 0, values[H2])
    tree.settle()
    assert tree.events("left")[Event.LATE] == 1
    for host in HOSTS:
        assert tree.results[host, 0] == of_all(0, values, (H1, H3, H4))


def test_a_closer_waits_for_those_of_other_leaves(new: Callable[[], Bench]) -> None:
    tree = Tree(new, Random(0), disorder=False)
    for host in (H1, H2, H3):
        tree.send(host, 0, host.port)
    tree.send(H1, 0, 1, members=member(H4), epoch=EPOCH)
    tree.settle()
    assert not tree.results
    tree.send(H4, 0, H4.port)
    tree.settle()
    assert len(tree.results) == 4


def test_slices_move_to_another_root_with_their_tables(new: Callable[[], Bench], places: Mapping[str, Place]) -> None:
    """The first root has one leaf's sum when it dies; the leaves' tables change one after the other."""
    tree = Tree(new, Random(0), disorder=False, of=places)
    values = {host: host.port for host in HOSTS}
    tree.send(H1, 0, 1)
    tree.send(H2, 0, 2)
    tree.settle()
    for name in ("right", "left"):
        leaf = tree.switches[name]
        leaf.jobs = {1: replace(leaf.jobs[1], ups=(6, 6))}
        leaf.bench.change(*leaf.jobs[1].entries(1))
        for host in HOSTS:
            tree.send(host, 0, values[host])
        tree.settle()
    for host in HOSTS:
        assert tree.results[host, 0] == of_all(0, values, of=places)


def test_a_sum_of_others_than_the_switch_above_knows_stays_away(new: Callable[[], Bench]) -> None:
    """The tables of a leaf and of the root change one after the other."""
    if isinstance(new().target, TofinoSums):
        pytest.skip("the program for Tofino sums jobs of up to 32 workers")
    tree = Tree(new, Random(0), disorder=False, of=OF_MANY)
    spine = tree.switches["even"]
    before = spine.jobs[1]
    spine.jobs = {1: replace(before, stands_for={**before.stands_for, 5: before.stands_for[5] | 1})}
    spine.bench.change(*spine.jobs[1].entries(1))
    for host in HOSTS:
        tree.send(host, 0, host.port)
    tree.settle()
    assert tree.events("even") == {Event.STALE: 1, Event.CONTRIBUTION: 1}
    assert not tree.results
    spine.jobs = {1: before}
    spine.bench.change(*before.entries(1))
    tree.send(H1, 0, H1.port)
    tree.settle()
    values = {host: host.port for host in HOSTS}
    assert {host: tree.results[host, 0] for host in HOSTS} == dict.fromkeys(HOSTS, of_all(0, values, of=OF_MANY))
