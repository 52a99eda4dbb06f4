# SPDX-License-Identifier: Apache-2.0
"""Jobs that several switches sum: a slice of each worker is followed through the entries of all switches.

Who is in what is counted by worker, so that one who is added twice, or a result that comes twice, is seen. The entries
are all that is used: neither trees nor ways are asked.
"""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from finsy import P4MulticastGroupEntry, P4TableEntry
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane import job
from gradlane.job import Job, JobError
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy import Entity, assign, desired_entities, summed_jobs
from gradlane_controller.policy.sums import place
from tests.gradlane_controller.texts import leafspine_text, summed_text
from tests.support.effort import tries

BUCKETS = 16
End = tuple[str, int]


@dataclass
class Slot:
    """Of the slice at one switch: whose contributions are in it, by rank, and who is accounted for."""

    words: Counter[int] = field(default_factory=Counter[int])
    covered: int = 0
    final: bool = False


class Walk:
    """One slice, from every worker to every worker."""

    def __init__(self, fabric: Fabric, planned: dict[str, list[Entity]], it: Job, bucket: int) -> None:
        self.peers: dict[End, End] = {(p.switch, p.number): (p.peer, p.peer_number) for p in fabric.link_ports}
        self.tables = {name: rows(entities, it.id, bucket) for name, entities in planned.items()}
        self.groups = {
            name: {
                each.multicast_group_id: each.replicas for each in entities if isinstance(each, P4MulticastGroupEntry)
            }
            for name, entities in planned.items()
        }
        self.slots: dict[str, Slot] = {}
        self.used: set[End] = set()  # ports between switches by which something has left
        self.got: dict[End, list[Counter[int]]] = {}
        # To which switch and port, bits of members, ranks, whether it is the result.
        self.queue: deque[tuple[str, int, int, Counter[int], bool]] = deque()
        self.roots: set[str] = set()
        for worker, port in zip(it.workers, fabric.host_ports(w.host for w in it.workers), strict=True):
            key = (port.number, f"::ffff:{worker.address}")
            member = self.tables[port.switch]["contributors"][key]["member"]
            self.contribute(port.switch, member, Counter([worker.rank]))
            self.run()

    def run(self) -> None:
        while self.queue:
            switch, port, members, words, result = self.queue.popleft()
            if result:
                self.replicate(switch, words)
                continue
            row = self.tables[switch]["subtrees"][port,]
            assert members == row["workers"], "a partial sum is of others than its port is for"
            self.contribute(switch, row.get("bits", members), words)

    def contribute(self, switch: str, bits: int, words: Counter[int]) -> None:
        slot, tree = self.slots.setdefault(switch, Slot()), self.tables[switch]["sum_trees"][()]
        assert slot.covered & bits == 0, f"somebody is added twice at {switch}"
        slot.words += words
        slot.covered |= bits
        assert slot.covered & ~tree["here"] == 0
        if slot.covered == tree["here"]:
            if tree["here"] == tree["all"]:
                self.roots.add(switch)
                self.replicate(switch, slot.words)
            else:
                assert tree["up"] != 0
                self.leave(switch, tree["up"], slot.covered, slot.words, False)

    def replicate(self, switch: str, words: Counter[int]) -> None:
        slot = self.slots[switch]
        assert not slot.final, f"a second result at {switch}"
        slot.final = True
        group = self.tables[switch]["sum_trees"][()]["group"]
        for port in self.groups[switch][group]:
            self.leave(switch, port, slot.covered, words, True)

    def leave(self, switch: str, port: int, members: int, words: Counter[int], result: bool) -> None:
        peer = self.peers.get((switch, port))
        if peer is None:
            assert result
            self.got.setdefault((switch, port), []).append(words)
        else:
            self.used.add((switch, port))
            self.queue.append((*peer, members, words, result))


def rows(entities: Iterable[Entity], number: int, bucket: int) -> dict[str, dict[tuple[object, ...], dict[str, int]]]:
    """Of the job and the bucket, by table and what else is in the key."""
    found: dict[str, dict[tuple[object, ...], dict[str, int]]] = {
        "sum_trees": {}, "contributors": {}, "subtrees": {}
    }  # fmt: skip
    for it in entities:
        if isinstance(it, P4TableEntry) and it.table_id in found:
            key = dict(it.match)
            if key.pop("job") == number and key.pop("bucket", bucket) == bucket:
                assert tuple(key.values()) not in found[it.table_id]
                found[it.table_id][tuple(key.values())] = it.action.args
    return found


def walk(fabric: Fabric, planned: dict[str, list[Entity]], it: Job) -> list[Walk]:
    """A slice of each bucket, all of which must come to everybody, once."""
    walks = [Walk(fabric, planned, it, bucket) for bucket in range(BUCKETS)]
    everybody = Counter(worker.rank for worker in it.workers)
    for each in walks:
        ports = {(port.switch, port.number) for port in fabric.host_ports(w.host for w in it.workers)}
        assert {end: list(got) for end, got in each.got.items()} == {end: [everybody] for end in ports}
        assert len(each.roots) == 1
    return walks


def summed(number: int, hosts: Sequence[int], lines: str = "") -> Job:
    text = summed_text(number, lines, tuple(hosts)).replace("mask = 63", "mask = 255")
    return job.parse(text.replace(f"base = {64 * number}", f"base = {256 * number}"), f"j{number}.toml")


def fabric_of(hosts: Sequence[str], links: Sequence[tuple[str, str]], plain: Collection[str] = ()) -> Fabric:
    """Host n + 1 at the nth switch, so many links; all switches sum but the plain ones."""
    names = list(dict.fromkeys([*hosts, *(end for link in links for end in link)]))
    text = "".join(
        f'[[switch]]\nname = "{name}"\naddress = "a:{n + 1}"\naggregation = {str(name not in plain).lower()}\n'
        for n, name in enumerate(names)
    )
    for n, name in enumerate(hosts, 1):
        text += (
            f'[[port]]\nswitch = "{name}"\nnumber = {n}\nhost = "h{n}"\nmac = "02:00:00:00:{n:02x}:01"\n'
            f'host_mac = "02:00:00:00:{n:02x}:02"\naddress = "10.0.{n}.2"\nprefix = "10.0.{n}.0/24"\n'
            f'gateway = "10.0.{n}.1"\nrate = "1gbit"\nbuffer = "64kB"\n'
        )
    for n, (a, b) in enumerate(links, 100):
        text += f'[[link]]\nends = ["{a}:{n}", "{b}:{n}"]\nrate = "1gbit"\nbuffer = "64kB"\n'
    return fabric_file.parse(text.replace('rate = "1gbit"', 'rate = "100mbit"'), "f.toml")


def leafspine(rates: Sequence[str] = (), spines: int = 2) -> Fabric:
    text = leafspine_text(spines, rates=rates).replace('\naddress = "127', '\naggregation = true\naddress = "127')
    return fabric_file.parse(text, "f.toml")


def both(fabric: Fabric, *ends: End) -> set[End]:
    """Links, each by one of its ends, as what is down is told."""
    peers = {(port.switch, port.number): (port.peer, port.peer_number) for port in fabric.link_ports}
    return {*ends, *(peers[end] for end in ends)}


def test_racks_are_summed_at_all_spines_alike() -> None:
    fabric, it = leafspine(), summed(1, (1, 2, 3, 4))
    planned = desired_entities(fabric, [it])
    walks = walk(fabric, planned, it)
    assert Counter(root for each in walks for root in each.roots) == {"spine1": 8, "spine2": 8}
    for each in walks:
        (root,) = each.roots
        number = int(root[-1])
        up = {(leaf, 4 + number) for leaf in ("leaf1", "leaf2")}
        assert each.used == up | {(root, 1), (root, 2)}, "a link carries a slice once in each direction"


def test_a_job_of_one_rack_stays_there() -> None:
    fabric, it = leafspine(), summed(1, (3, 4))
    planned = desired_entities(fabric, [it])
    assert all(each.roots == {"leaf2"} and not each.used for each in walk(fabric, planned, it))
    assert [name for name, entities in planned.items() if rows(entities, 1, 0)["sum_trees"]] == ["leaf2"]


@pytest.mark.parametrize(
    ("rates", "buckets"),
    [(("100mbit", "100mbit", "100mbit"), [6, 5, 5]), (("300mbit", "100mbit"), [12, 4]), (("10gbit", "1mbit"), [16, 0])],
)
def test_spines_have_slices_in_proportion_to_the_rates_of_their_links(
    rates: tuple[str, ...], buckets: list[int]
) -> None:
    fabric, it = leafspine(rates, len(rates)), summed(1, (1, 2, 3, 4))
    found = Counter(root for each in walk(fabric, desired_entities(fabric, [it]), it) for root in each.roots)
    assert [found[f"spine{n}"] for n in range(1, len(rates) + 1)] == buckets


def test_when_a_link_goes_down_the_slices_of_its_spine_alone_take_others() -> None:
    fabric, it = leafspine(spines=4), summed(1, (1, 3))
    whole, broken = desired_entities(fabric, [it]), desired_entities(fabric, [it], down=both(fabric, ("leaf2", 6)))
    before, after = ([next(iter(each.roots)) for each in walk(fabric, planned, it)] for planned in (whole, broken))
    assert Counter(after).keys() == {"spine1", "spine3", "spine4"}
    assert max(Counter(after).values()) - min(Counter(after).values()) <= 1
    assert all(a == b for a, b in zip(before, after, strict=True) if a != "spine2"), "the others stay"
    # What is in slots says what the entries said when it came in, so only ways may change.
    kept = ("all", "here", "slot_base", "slot_mask", "epoch")
    for name in whole:
        for table in ("contributors", "subtrees"):
            assert rows(whole[name], 1, 0)[table] == rows(broken[name], 1, 0)[table]
        for bucket in range(BUCKETS):
            was, now = (rows(planned[name], 1, bucket)["sum_trees"] for planned in (whole, broken))
            assert [{key: row[key] for key in kept} for row in was.values()] == [
                {key: row[key] for key in kept} for row in now.values()
            ]


def test_a_switch_that_has_not_its_entries_is_gone_around() -> None:
    fabric, it = leafspine(), summed(1, (1, 3))
    planned = desired_entities(fabric, [it], lacking={"spine1"})
    assert {next(iter(each.roots)) for each in walk(fabric, planned, it)} == {"spine2"}
    assert rows(planned["spine1"], 1, 0)["sum_trees"], "it is to get them nevertheless"


def test_links_beside_one_another_are_used_alike_and_stand_in_for_one_another() -> None:
    links = [("a", "s"), ("a", "s"), ("b", "s"), ("b", "s"), ("b", "s")]
    fabric, it = fabric_of(["a", "b"], links), summed(1, (1, 2))
    used = Counter(end for each in walk(fabric, desired_entities(fabric, [it]), it) for end in each.used)
    slices = {100: 8, 101: 8, 102: 6, 103: 5, 104: 5}
    up = {("a" if port < 102 else "b", port): number for port, number in slices.items()}
    assert used == up | {("s", port): number for port, number in slices.items()}
    two = fabric_of(["a", "b"], [(leaf, spine) for leaf in "ab" for spine in "st" for _ in range(2)])
    used = Counter(end for each in walk(two, desired_entities(two, [it]), it) for end in each.used)
    assert set(used.values()) == {4}, "of each spine's slices, too"
    assert len(used) == 2 * 8
    down = both(fabric, ("a", 100), ("s", 103))
    for each in walk(fabric, desired_entities(fabric, [it], down=down), it):
        assert each.used.isdisjoint(down)


def test_three_tiers_are_summed_at_all_cores() -> None:
    pods = [(f"agg{pod}{n}", [f"leaf{pod}{m}" for m in (1, 2)]) for pod in (1, 2) for n in (1, 2)]
    links = [(leaf, agg) for agg, leaves in pods for leaf in leaves]
    links += [(agg, f"core{2 * int(agg[-1]) - m}") for agg, _ in pods for m in (0, 1)]
    fabric = fabric_of(["leaf11", "leaf11", "leaf12", "leaf21", "leaf22"], links)
    it = summed(1, (1, 2, 3, 4, 5))
    walks = walk(fabric, desired_entities(fabric, [it]), it)
    assert Counter(next(iter(each.roots)) for each in walks) == {f"core{n}": 4 for n in range(1, 5)}
    assert all(len(each.used) == 2 * (4 + 2) for each in walks), "each link of a tree once, both ways"
    # A pod alone does not need the cores; without agg11 it has the other one.
    pod = summed(1, (1, 3))
    ends = [(port.switch, port.number) for port in fabric.link_ports if port.switch == "agg11"]
    for down, roots in ((set[End](), {"agg11", "agg12"}), (both(fabric, *ends), {"agg12"})):
        walks = walk(fabric, desired_entities(fabric, [pod], down=down), pod)
        assert {next(iter(each.roots)) for each in walks} == roots


def test_what_links_carry_is_least() -> None:
    """Of leaf11, leaf12 and leaf21 a core is as far from each, but five links are fewer than six."""
    links = [("leaf11", "agg1"), ("leaf12", "agg1"), ("leaf21", "agg2"), ("agg1", "core"), ("agg2", "core")]
    fabric, it = fabric_of(["leaf11", "leaf12", "leaf21"], links), summed(1, (1, 2, 3))
    for each in walk(fabric, desired_entities(fabric, [it]), it):
        assert (each.roots, len(each.used)) == ({"agg1"}, 2 * 5)


def test_where_roots_have_several_ways_to_the_same_leaves_they_take_them_in_turn() -> None:
    links = [(leaf, f"agg{leaf[-1]}{n}") for leaf in ("leaf1", "leaf2") for n in (1, 2)]
    links += [(agg, f"core{n}") for _, agg in links for n in (1, 2)]
    fabric, it = fabric_of(["leaf1", "leaf2"], links), summed(1, (1, 2))
    used = Counter(name for each in walk(fabric, desired_entities(fabric, [it]), it) for name, _ in each.used)
    assert {name: number for name, number in used.items() if name.startswith("agg")} == {
        f"agg{leaf}{n}": 2 * 8 for leaf in (1, 2) for n in (1, 2)
    }


def test_two_switches_with_one_link_are_summed_at_one_of_them() -> None:
    fabric, it = fabric_of(["a", "b", "b"], [("a", "b")]), summed(1, (1, 2, 3))
    walks = walk(fabric, desired_entities(fabric, [it]), it)
    assert len({next(iter(each.roots)) for each in walks}) == 1


@pytest.mark.parametrize(
    ("plain", "reason"),
    [
        (
            {"spine1", "spine2"},
            "no path leads from 'leaf1' and 'leaf2' to one switch over such with `aggregation = true`",
        ),
        ({"leaf2"}, "switch 'leaf2' has no `aggregation = true` in f.toml"),
    ],
)
def test_without_switches_that_sum_on_the_way_hosts_do(plain: set[str], reason: str) -> None:
    links = [(leaf, spine) for leaf in ("leaf1", "leaf2") for spine in ("spine1", "spine2")]
    fabric, it = fabric_of(["leaf1", "leaf2"], links, plain), summed(1, (1, 2))
    trees, why = place(fabric, it)
    assert trees == ()
    assert why.startswith(reason)
    assert not any(rows(entities, 1, 0)["sum_trees"] for entities in desired_entities(fabric, [it]).values())
    one = fabric_of(["leaf1", "leaf2"], links, {"spine2"})
    assert {next(iter(each.roots)) for each in walk(one, desired_entities(one, [it]), it)} == {"spine1"}


def test_what_a_spine_sends_comes_from_an_address_of_no_host() -> None:
    it = summed(1, (1, 2, 3, 4))
    planned = desired_entities(leafspine(), [it])
    sources = {name: rows(planned[name], 1, 0)["sum_trees"][()]["address"] for name in planned}
    expected = {"leaf1": "10.0.1.1", "leaf2": "10.0.3.1", "spine1": "240.0.0.3", "spine2": "240.0.0.4"}
    assert sources == {name: f"::ffff:{address}" for name, address in expected.items()}


def test_each_group_takes_a_number_of_its_own() -> None:
    links = [("a", "s")] * 3 + [("b", "s")] * 2
    fabric, it = fabric_of(["a", "b"], links), summed(1, (1, 2))
    planned = desired_entities(fabric, [it])["s"]
    numbers = [each.multicast_group_id for each in planned if isinstance(each, P4MulticastGroupEntry)]
    assert len(numbers) == len(set(numbers)) > 3
    assert {(number - 1) * 2 // 256 for number in numbers} == {1}, "of its own half of its slots"
    small = job.parse(it.text.replace("mask = 255", "mask = 31"), "j.toml")
    with pytest.raises(JobError, match=r"slots\.mask: is 31, but the job has 18 multicast groups"):
        desired_entities(fabric, [small])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Fabric, list[Job], set[End], set[str]]:
    """A connected fabric of which some switches sum, jobs of its hosts; links that are down, who lacks entries."""
    count = draw(st.integers(1, 7))
    names = [f"s{n}" for n in range(count)]
    links = [(names[n], names[draw(st.integers(0, n - 1))]) for n in range(1, count)]
    more = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=10))
    links += [(a, b) for a, b in more if a != b]
    hosts = draw(st.lists(st.sampled_from(names), min_size=2, max_size=6))
    fabric = fabric_of(hosts, links, draw(st.sets(st.sampled_from(names), max_size=2)))
    everyone = st.lists(st.integers(1, len(hosts)), min_size=2, unique=True)
    members = draw(st.lists(everyone, min_size=1, max_size=3))
    jobs = [
        summed(n, ranks, f"sum_slots = {draw(st.sampled_from([256, 512, 1024]))}\n")
        for n, ranks in enumerate(members, 1)
    ]
    ends = [(port.switch, port.number) for port in fabric.link_ports]
    down = draw(st.lists(st.sampled_from(ends), max_size=2)) if ends else []
    return fabric, jobs, both(fabric, *down), draw(st.sets(st.sampled_from(names), max_size=1))


@settings(max_examples=tries(30), deadline=None)
@given(case=cases())
def test_whatever_the_fabric_everybody_gets_everybody_once(case: tuple[Fabric, list[Job], set[End], set[str]]) -> None:
    fabric, jobs, down, lacking = case
    planned = desired_entities(fabric, jobs, None, down, lacking)
    numbers = assign(fabric, jobs)
    flaws = {it.job.id: it.ways.flaws for it in summed_jobs(fabric, jobs, numbers, down, lacking)}
    slots: dict[str, set[int]] = {}
    for it in jobs:
        assert (it.id in flaws) == can_be_summed(fabric, it)
        if it.id not in flaws:
            continue
        for each in walk(fabric, planned, it):
            assert flaws[it.id] or (each.used.isdisjoint(down) and lacking.isdisjoint(each.slots))
        for name, entities in planned.items():
            for row in {
                tuple(args.items()): args
                for b in range(BUCKETS)
                for args in rows(entities, it.id, b)["sum_trees"].values()
            }.values():
                own = {row["slot_base"] + n for n in range(row["slot_mask"] + 1)}
                assert max(own) < 4096
                assert row["address"] != "0.0.0.0"
            if rows(entities, it.id, 0)["sum_trees"]:
                assert slots.setdefault(name, set()).isdisjoint(own), "two jobs share a slot"
                slots[name] |= own


def can_be_summed(fabric: Fabric, it: Job) -> bool:
    """Whether all workers' switches sum and hang together by such that do."""
    summing = {switch.name for switch in fabric.switches if switch.aggregation}
    edges = {port.switch for port in fabric.host_ports(w.host for w in it.workers)}
    reached, front = set[str](), [next(iter(edges))]
    while front:
        name = front.pop()
        if name in summing - reached:
            reached.add(name)
            front += [port.peer for port in fabric.link_ports_at(name)]
    return edges <= reached
