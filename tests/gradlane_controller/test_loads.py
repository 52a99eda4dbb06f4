# SPDX-License-Identifier: Apache-2.0
"""What each port sends by queue class: rates of what switches have counted. What is right is what was sent here."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import SimpleNamespace

import pytest
from finsy import P4Schema
from finsy.proto import p4r
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_controller.network.loads import Loads
from gradlane_controller.session.port_counts import PortCounts, read_port_counts
from tests.gradlane_controller.test_sum_trees import End, leafspine
from tests.support.effort import tries
from tests.support.paths import P4INFO

SCHEMA = P4Schema(P4INFO)
RATE = 100_000_000  # of every port
LINK, HOST = ("leaf1", 5), ("leaf1", 1)
CLASSES = 8


class World:
    """A leaf-spine, and time. Switches count, by port, class by class what follows no tree and then what does."""

    def __init__(self) -> None:
        self.time = 50.0
        self.fabric = leafspine()
        self.loads = Loads(self.fabric, lambda: self.time)
        self.counted: dict[End, list[float]] = {LINK: [9e9] * 16, HOST: [0.0] * 16}

    def read(self) -> None:
        for (switch, port), counts in self.counted.items():
            self.loads.take_sent(switch, {port: [int(it) for it in counts]})

    def run(self, rates: Mapping[End, Sequence[float]], seconds: float = 30.0, step: float = 2.0) -> None:
        """Sends so much, in bit/s, and reads it every `step` seconds."""
        for _ in range(round(seconds / step)):
            self.time += step
            for end, its in rates.items():
                self.counted[end] = [
                    count + rate * step / 8 for count, rate in zip(self.counted[end], its, strict=True)
                ]
            self.read()


def paths(**classes: float) -> list[float]:
    """What follows no tree, by class as c0 to c7; no trees."""
    return [classes.get(f"c{n}", 0.0) for n in range(CLASSES)] + [0.0] * CLASSES


def test_each_class_of_each_port_has_what_it_sends_and_trees_are_in_it() -> None:
    world = World()
    world.read()
    of_link = [0, 1e6, 0, 0, 5e6, 0, 40e6, 2e6, *(0, 0, 0, 0, 3e6, 0, 20e6, 0)]
    world.run({LINK: of_link, HOST: paths(c0=7e6)}, seconds=60)
    assert world.loads.sent(LINK) == [0, 1e6, 0, 0, 8e6, 0, 60e6, 2e6]
    assert world.loads.trees(LINK) == 23e6
    assert (world.loads.sent(HOST), world.loads.trees(HOST)) == ([7e6, *[0] * 7], 0)
    assert world.loads.now() == {}, "what lays trees is told apart"


@settings(max_examples=tries(40), deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0.5, 9.0), st.lists(st.floats(0, 5e6), min_size=16, max_size=16)), min_size=2)
)
def test_what_is_known_lies_between_the_least_and_the_most_that_was_sent(
    steps: list[tuple[float, list[float]]],
) -> None:
    world = World()
    world.read()
    for step, rates in steps:
        world.run({LINK: rates}, step, step)
    found = world.loads.sent(LINK)
    assert found is not None
    for n, bits in enumerate(found):
        assert -1 <= bits <= max(rates[n] + rates[8 + n] for _, rates in steps) + 100, "bytes are whole"


def test_half_of_what_is_known_is_from_the_last_two_seconds() -> None:
    world = World()
    world.read()
    world.run({LINK: paths(c3=80e6)}, seconds=60)
    world.run({LINK: paths()}, seconds=2)
    assert world.loads.sent(LINK) == [0, 0, 0, pytest.approx(40e6, rel=1e-3), 0, 0, 0, 0]
    world.run({LINK: paths()}, seconds=2, step=0.5)
    assert world.loads.sent(LINK) == [0, 0, 0, pytest.approx(20e6, rel=1e-3), 0, 0, 0, 0]


def test_nothing_is_known_before_the_second_reading_nor_of_ports_that_are_not_there() -> None:
    world = World()
    world.read()
    assert (world.loads.sent(LINK), world.loads.trees(LINK)) == (None, None)
    world.read()
    assert world.loads.sent(LINK) is None, "at the same time"
    for switch, port in (("leaf1", 400), ("nobody", 5)):
        world.loads.take_sent(switch, {port: [1] * 16})
        assert world.loads.sent((switch, port)) is None


def test_a_port_of_which_a_switch_has_said_nothing_for_long_is_not_known() -> None:
    world = World()
    world.read()
    world.run({LINK: paths(c1=8e6), HOST: paths(c1=8e6)})
    del world.counted[LINK]
    world.run({HOST: paths(c1=8e6)}, seconds=10)
    assert world.loads.sent(LINK) is not None
    world.run({HOST: paths(c1=8e6)}, seconds=2)
    assert (world.loads.sent(LINK), world.loads.trees(LINK)) == (None, None)
    assert world.loads.sent(HOST) is not None


def test_a_switch_that_counts_anew_changes_nothing_and_goes_on() -> None:
    world = World()
    world.read()
    world.run({LINK: paths(c2=10e6)}, seconds=60)
    before = world.loads.sent(LINK)
    world.counted[LINK] = [0.0] * 16
    world.run({LINK: paths(c2=10e6)}, seconds=2)
    assert world.loads.sent(LINK) == before
    world.run({LINK: paths(c2=30e6)}, seconds=60)
    assert world.loads.sent(LINK) == [0, 0, 30e6, *[0] * 5]


@pytest.mark.parametrize("count", [10**30, 2**63 - 1, -(2**63)])
def test_whatever_a_switch_says_a_port_sends_no_more_than_its_rate(count: int) -> None:
    world = World()
    world.read()
    world.run({LINK: paths(c2=10e6)}, seconds=4)
    for factor in (1, 2, 3):
        world.time += 2
        world.loads.take_sent("leaf1", {5: [factor * count] * 16})
    found = world.loads.sent(LINK)
    assert found is not None
    assert 0 <= sum(found) <= RATE + CLASSES
    assert min(found) >= 0


def test_of_more_than_the_rate_each_class_has_its_share() -> None:
    world = World()
    world.read()
    world.run({LINK: paths(c1=100e6, c6=300e6)}, seconds=60)
    assert world.loads.sent(LINK) == [0, 25e6, 0, 0, 0, 0, 75e6, 0]


def test_what_is_known_goes_with_its_port_and_others_stay() -> None:
    world = World()
    world.counted["leaf1", 6] = [0.0] * 16
    world.read()
    world.run({LINK: paths(c1=8e6), ("leaf1", 6): paths(c1=8e6)})
    world.loads.follow(leafspine(spines=1))
    assert world.loads.all_ports("leaf1") == [5, 1, 2]
    assert world.loads.sent(LINK) is not None
    assert world.loads.sent(("leaf1", 6)) is None
    world.loads.follow(world.fabric)
    assert world.loads.sent(("leaf1", 6)) is None


def read(answer: Iterable[p4r.Entity], asked: list[int], schema: object = SCHEMA) -> PortCounts:
    """What is taken of this answer of a switch to the question for ports 1 and 2, of which 2 has a link."""

    class Client:
        async def request_iter(self, request: p4r.ReadRequest) -> AsyncIterator[p4r.ReadResponse]:
            asked.append(len(request.entities))
            yield p4r.ReadResponse(entities=answer)

    switch = SimpleNamespace(p4info=schema, device_id=1, _p4client=Client())
    return asyncio.run(read_port_counts(switch, [2], [1, 2]))  # pyright: ignore[reportArgumentType]


def cell(counter: str, index: int, octets: int, packets: int = 0) -> p4r.Entity:
    entity = p4r.Entity()
    entry = entity.counter_entry
    entry.counter_id, entry.index.index = SCHEMA.counters[counter].id, index
    entry.data.byte_count, entry.data.packet_count = octets, packets
    return entity


def test_only_what_was_asked_for_is_taken_of_an_answer() -> None:
    asked: list[int] = []
    port1 = [cell("sent", 32 + n, n) for n in range(16)] + [cell("sent", 32 + n, 10**9, 1) for n in (23, 31)]
    routed = cell("routed", 2, 77)
    other = [cell("routed", 1, 5), cell("sent", 3 << 5, 5), cell("drop_map", 32, 9), p4r.Entity()]
    other[3].table_entry.table_id = 3
    ports = {1: [*range(7), 7 + 78 + 98, *range(8, 16)]}
    assert read([*port1, routed, *other], asked) == PortCounts({2: 77}, ports)
    assert read([*other, routed, *port1[:-1]], asked) == PortCounts({2: 77}, {}), "a part of a port"
    assert read([*other * 1000, *port1, routed], asked) == PortCounts({}, {}), "more than there can be"
    assert read([], asked) == PortCounts({}, {})
    assert asked == [2 * 18 + 1] * 4


def test_of_a_program_that_counts_nothing_of_this_nothing_is_asked() -> None:
    asked: list[int] = []
    assert read([], asked, SimpleNamespace(counters={})) == PortCounts({}, {})
    assert asked == []
