# SPDX-License-Identifier: Apache-2.0
"""Where trees go beside other traffic. What is right is found by trying all ways to share 16 buckets."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane import job
from gradlane.job import Job
from gradlane_controller.desired.balance import LOOK_SECONDS, REST_SECONDS, Balance
from gradlane_controller.desired.plan import Plan
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.loads import Loads
from gradlane_controller.policy import assign, desired_entities, summed_jobs
from gradlane_controller.policy.sharing import moved, spread
from tests.gradlane_controller.test_sum_trees import BUCKETS, End, fabric_of, leafspine, summed, walk
from tests.gradlane_controller.texts import job_text
from tests.support.effort import tries

RATE = 100e6


def shares(count: int, among: int) -> Iterator[tuple[int, ...]]:
    """All ways to share so many."""
    if among == 1:
        yield (count,)
        return
    for first in range(count + 1):
        for rest in shares(count - first, among - 1):
            yield (first, *rest)


def fullest(share: Sequence[int], room: Sequence[float]) -> float:
    return max(count / its for count, its in zip(share, room, strict=True))


def best(room: Sequence[float]) -> float:
    """The fullest link of the best share of all buckets."""
    return min(fullest(share, room) for share in shares(BUCKETS, len(room)))


def roots(fabric: Fabric, it: Job, loads: Mapping[End, float], spines: int) -> list[int]:
    """How many buckets each spine has; every bucket is followed through all switches' entries."""
    walks = walk(fabric, desired_entities(fabric, [it], loads=loads), it)
    found = Counter(next(iter(each.roots)) for each in walks)
    return [found[f"spine{n}"] for n in range(1, spines + 1)]


def test_units_are_shared_as_well_as_any_share_of_them_can_be() -> None:
    for room in product((1, 2, 3, 7), repeat=3):
        for count in range(9):
            taken = Counter(spread([[[n] for n in range(3)]] * count, lambda n: float(room[n])))  # noqa: B023
            share = [taken[n] for n in range(3)]
            assert sum(share) == count
            assert fullest(share, room) == min(fullest(each, room) for each in shares(count, 3))


def test_units_that_share_a_link_do_not_make_it_full_while_others_are_idle() -> None:
    options = [("common", "a"), ("common", "b"), ("c", "d")]
    assert Counter(spread([options] * 12, lambda _: 1.0)) == {0: 3, 1: 3, 2: 6}
    assert Counter(spread([options] * 12, {"common": 2.0, "a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0}.__getitem__)) == {
        0: 4, 1: 4, 2: 4
    }  # fmt: skip


def test_as_few_move_as_can_be() -> None:
    for before, wanted in product(product(range(3), repeat=5), repeat=2):
        after = moved(before, wanted)
        assert Counter(after) == Counter(wanted)
        stay = sum(a == b for a, b in zip(before, after, strict=True))
        assert stay == sum((Counter(before) & Counter(wanted)).values())


@pytest.mark.parametrize(
    ("loads", "buckets"),
    [
        ({}, [8, 8]),
        ({("leaf1", 5): 60e6}, [4, 12]),  # up
        ({("spine1", 2): 60e6}, [4, 12]),  # down
        ({("leaf1", 5): 60e6, ("leaf2", 6): 60e6}, [8, 8]),
        ({("leaf1", 6): 100e6}, [16, 0]),
        ({("leaf1", 6): 1e12}, [16, 0]),
        ({("leaf1", port): 100e6 for port in (5, 6)}, [8, 8]),
    ],
)
def test_buckets_go_where_other_traffic_leaves_room(loads: dict[End, float], buckets: list[int]) -> None:
    assert roots(leafspine(), summed(1, (1, 2, 3, 4)), loads, 2) == buckets


@settings(max_examples=tries(40), deadline=None)
@given(spines=st.integers(2, 4), data=st.data())
def test_whatever_the_load_no_share_of_the_buckets_is_better(spines: int, data: st.DataObject) -> None:
    ends = [(leaf, 4 + n) for leaf in ("leaf1", "leaf2") for n in range(1, spines + 1)]
    ends += [(f"spine{n}", port) for n in range(1, spines + 1) for port in (1, 2)]
    loads = data.draw(st.dictionaries(st.sampled_from(ends), st.integers(0, int(RATE) * 9 // 10)))
    fabric, it = leafspine(spines=spines), summed(1, (1, 2, 3, 4))
    found = roots(fabric, it, loads, spines)
    room = [
        RATE
        - max(loads.get(end, 0) for end in [("leaf1", 4 + n), ("leaf2", 4 + n), (f"spine{n}", 1), (f"spine{n}", 2)])
        for n in range(1, spines + 1)
    ]
    assert sum(found) == BUCKETS
    assert fullest(found, room) == pytest.approx(best(room))


def test_a_dead_link_counts_more_than_a_busy_one() -> None:
    fabric, it = leafspine(), summed(1, (1, 2, 3, 4))
    down = {("leaf1", 6), ("spine2", 1)}
    planned = desired_entities(fabric, [it], None, down, loads={("leaf1", 5): RATE})
    assert {next(iter(each.roots)) for each in walk(fabric, planned, it)} == {"spine1"}


def test_links_beside_one_another_are_used_as_they_have_room() -> None:
    text = [("a", "s")] * 2 + [("b", "s")] * 2
    fabric, it = fabric_of(["a", "b"], text), summed(1, (1, 2))
    planned = desired_entities(fabric, [it], loads={("s", 100): 0.75 * RATE})
    used = Counter(end for each in walk(fabric, planned, it) for end in each.used)
    assert (used["a", 100], used["a", 101], used["b", 102], used["b", 103]) == (3, 13, 8, 8)


def multicast_spines(loads: Mapping[End, float], *jobs: Job) -> dict[tuple[int, int], str]:
    """Over which spine the results of each aggregator go, by job and rank."""
    fabric, found = leafspine(), dict[tuple[int, int], str]()
    for name, entities in desired_entities(fabric, jobs, loads=loads).items():
        for entry in entities:
            address = str(getattr(entry, "match", None) and entry.match.get("destination"))  # pyright: ignore
            if name.startswith("spine") and address.startswith("239."):
                _, number, _, rank = address.removesuffix("/32").split(".")
                key = int(number), int(rank) - 1
                assert key not in found
                found[key] = name
    return found


def multicast_job(number: int, *hosts: int) -> Job:
    text = job_text(f"m{number}", number, hosts, base=64 * number, mask=63, transport=f'multicast = "239.{number}.0.1"')
    return job.parse(text, f"m{number}.toml")


def test_results_by_multicast_are_spread_over_the_spines_and_leave_busy_ones() -> None:
    it = multicast_job(1, 1, 2, 3, 4)
    alike = multicast_spines({}, it)
    for leaf in ((0, 1), (2, 3)):
        assert {alike[1, rank] for rank in leaf} == {"spine1", "spine2"}
    busy = multicast_spines({("leaf1", 5): 0.6 * RATE}, multicast_job(1, 1, 3))
    assert busy[1, 0] == "spine2", "its results go up there"
    busy = multicast_spines({("leaf1", 6): 0.6 * RATE}, multicast_job(1, 1, 3))
    assert busy[1, 0] == "spine1"
    full = multicast_spines({("leaf1", 5): RATE, ("leaf2", 5): RATE}, it)
    assert set(full.values()) == {"spine2"}


def test_the_trees_of_all_jobs_are_spread_together() -> None:
    """Each alone would take the first spine."""
    found = multicast_spines({}, multicast_job(1, 1, 3), multicast_job(2, 2, 4))
    assert Counter(spine for (_, rank), spine in found.items() if rank == 0) == {"spine1": 1, "spine2": 1}
    assert Counter(spine for (_, rank), spine in found.items() if rank == 1) == {"spine1": 1, "spine2": 1}


class World:
    """A leaf-spine of two racks, and time. Switches count what other traffic sends; every two seconds they are read,
    and the controller looks."""

    def __init__(self, *jobs: Job, spines: int = 2) -> None:
        self.fabric, self.spines = leafspine(spines=spines), spines
        self.jobs = jobs or (summed(1, (1, 2, 3, 4)),)
        self.time = 1000.0
        self.counted: dict[End, float] = {(port.switch, port.number): 7e9 for port in self.fabric.link_ports}
        self.moves: list[float] = []
        self.loads = Loads(self.fabric, lambda: self.time)
        plan = Plan(self.fabric, {it.name: it for it in self.jobs}, assign(self.fabric, self.jobs), {}, {})
        self.balance = Balance(self.loads, lambda: (plan, (), (), ()), self.note, lambda: self.time)
        self.run({}, 1)

    def note(self) -> None:
        self.moves.append(self.time)

    def read(self) -> None:
        for name in ("leaf1", "leaf2", *(f"spine{n}" for n in range(1, self.spines + 1))):
            self.loads.take(name, {port: int(self.counted[name, port]) for port in self.loads.ports(name)})

    def run(self, traffic: Mapping[End, float], looks: int) -> None:
        """In bit/s."""
        for _ in range(looks):
            self.time += LOOK_SECONDS
            for end, rate in traffic.items():
                self.counted[end] += LOOK_SECONDS * rate / 8
            self.read()
            self.balance.look()

    @property
    def buckets(self) -> list[int]:
        (it,) = summed_jobs(self.fabric, self.jobs, assign(self.fabric, self.jobs), loads=self.balance.loads)
        assert sum(it.ways.roots.values()) == BUCKETS
        return [it.ways.roots.get(f"spine{n}", 0) for n in range(1, self.spines + 1)]


BUSY = {("leaf1", 5): 60e6, ("spine1", 2): 60e6}


def test_buckets_leave_a_busy_spine_within_seconds_and_come_back_when_it_is_quiet() -> None:
    world = World()
    world.run(BUSY, 4)
    assert world.buckets[0] < 8, "within 8 s"
    world.run(BUSY, 10)
    assert world.buckets == [4, 12]
    world.run({}, 10)
    assert world.buckets[0] >= 7
    world.run({}, 30)
    assert world.buckets == [8, 8], "a small gain is enough if it lasts"
    assert len(world.moves) <= 5
    assert all(b - a >= REST_SECONDS for a, b in zip(world.moves, world.moves[1:], strict=False))


def test_bursts_of_two_seconds_move_nothing() -> None:
    world = World()
    for _ in range(10):
        world.run(BUSY, 1)
        world.run({}, 20)
    assert world.moves == []


def test_as_much_traffic_everywhere_moves_nothing() -> None:
    world = World()
    world.run(dict.fromkeys(world.counted, 80000000.0), 30)
    assert world.moves == []


@settings(max_examples=tries(25), deadline=None)
@given(spines=st.integers(2, 3), data=st.data())
def test_under_constant_load_all_comes_to_rest_near_the_best(spines: int, data: st.DataObject) -> None:
    world = World(spines=spines)
    traffic = data.draw(st.dictionaries(st.sampled_from(list(world.counted)), st.integers(0, 95_000_000)))
    world.run(traffic, 60)
    moves = len(world.moves)
    world.run(traffic, 60)
    assert len(world.moves) == moves <= 4, "no flapping"
    known = {end: round(64 * it / RATE) * RATE / 64 for end, it in traffic.items()}  # to a 64th of the rate
    room = [
        RATE
        - max(known.get(end, 0) for end in [("leaf1", 4 + n), ("leaf2", 4 + n), (f"spine{n}", 1), (f"spine{n}", 2)])
        for n in range(1, spines + 1)
    ]
    assert fullest(world.buckets, room) <= 1.051 * best(room)


@settings(max_examples=tries(25), deadline=None)
@given(noise=st.lists(st.floats(0.75, 1.25), min_size=30, max_size=60), part=st.floats(0.1, 0.75))
def test_traffic_that_varies_by_a_quarter_moves_buckets_seldom(noise: list[float], part: float) -> None:
    world = World()
    for factor in noise:
        world.run({("leaf1", 5): factor * part * RATE}, 1)
    assert len(world.moves) <= 5


def test_what_comes_and_goes_moves_buckets_at_most_once_in_ten_seconds() -> None:
    world = World()
    for _ in range(10):
        world.run(BUSY, 4)
        world.run({}, 4)
    assert len(world.moves) <= 10 * 2 * 4 * LOOK_SECONDS / REST_SECONDS
    assert all(b - a >= REST_SECONDS for a, b in zip(world.moves, world.moves[1:], strict=False))


def test_a_fabric_without_trees_moves_nothing() -> None:
    world = World(job.parse(job_text(hosts=(1, 2, 3)), "j"))
    world.run(BUSY, 20)
    assert world.moves == []


def test_multicast_alone_moves_too() -> None:
    world = World(multicast_job(1, 1, 3))
    world.run({("leaf1", 5): 60e6, ("leaf2", 5): 60e6}, 10)
    assert len(world.moves) == 1
    assert set(multicast_spines(world.balance.loads, *world.jobs).values()) == {"spine2"}


def test_loads_are_those_of_the_counters() -> None:
    world = World()
    world.run(BUSY, 20)
    measured = world.loads.now()
    assert measured.keys() == world.counted.keys()
    assert all(abs(load - BUSY.get(end, 0)) <= RATE / 128 for end, load in measured.items()), "to a 64th"


def test_counters_that_begin_anew_and_switches_that_say_nothing_or_nonsense_change_nothing() -> None:
    world = World()
    world.run(BUSY, 20)
    before = world.loads.now()
    world.counted = dict.fromkeys(world.counted, 0.0)
    world.time += 2
    world.read()  # restarted
    assert world.loads.now() == before
    world.time += 2
    world.loads.take("leaf1", {})
    world.loads.take("leaf1", {1: 10**12, 400: 10**12})  # hosts' ports, and none
    world.loads.take("nobody", {5: 10**12})
    assert world.loads.now() == before
    world.time += 2
    world.loads.take("leaf1", {5: 10**30})
    assert max(world.loads.now().values()) <= RATE, "no link is more than full"


def test_at_the_first_reading_nothing_is_known() -> None:
    world = World()
    loads = Loads(world.fabric, lambda: world.time)
    loads.take("leaf1", {5: 10**12})
    assert loads.now() == {}
    loads.take("leaf1", {5: 2 * 10**12})
    assert loads.now() == {}, "at the same time"


def test_what_is_known_of_links_goes_with_them() -> None:
    world = World()
    world.run(BUSY, 5)
    world.loads.follow(leafspine(spines=1))
    assert world.loads.now().keys() == {("leaf1", 5), ("leaf2", 5), ("spine1", 1), ("spine1", 2)}
    assert world.loads.ports("leaf1") == [5]
