# SPDX-License-Identifier: Apache-2.0
"""Jobs of more workers than a slot has bits: each switch gives its bits to its own children."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

import pytest
from finsy import P4MulticastGroupEntry, P4TableEntry
from hypothesis import given, settings

from gradlane import job
from gradlane.job import Job, transport
from gradlane_controller.desired.pipeline import DEFAULT_FOLDER, Programs
from gradlane_controller.desired.plan import make_plan
from gradlane_controller.desired.sums_at_switches import SumsAtSwitches
from gradlane_controller.errors import PipelineError
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy import Entity, Numbers, assign, desired_entities
from gradlane_controller.policy.sums import HeldSums, Sums, place
from tests.gradlane_controller.test_sum_trees import End, Slot, Walk, both, can_be_summed, cases, rows, walk
from tests.support.effort import tries

ALL = 0xFFFFFFFF
Link = tuple[str, str]


def fabric_of(hosts: Mapping[str, int], links: Sequence[Link], plain: Collection[str] = ()) -> Fabric:
    """So many hosts at each of those switches, and links between these and others; all sum but the plain ones."""
    names = list(dict.fromkeys([*hosts, *(end for link in links for end in link)]))
    parts = [
        f'[[switch]]\nname = "{name}"\naddress = "a:{n}"\naggregation = {str(name not in plain).lower()}\n'
        for n, name in enumerate(names, 1)
    ]
    n = 0
    for name, many in hosts.items():
        for number in range(1, many + 1):
            n += 1
            mac, net = f"02:00:00:{n >> 8:02x}:{n & 255:02x}", f"10.{n >> 8}.{n & 255}"
            parts.append(
                f'[[port]]\nswitch = "{name}"\nnumber = {number}\nhost = "h{n}"\nmac = "{mac}:01"\n'
                f'host_mac = "{mac}:02"\naddress = "{net}.2"\nprefix = "{net}.0/24"\ngateway = "{net}.1"\n'
                'rate = "1gbit"\nbuffer = "64kB"\n'
            )
    for number, (a, b) in enumerate(links, 100):
        parts.append(
            f'[[link]]\nends = ["{a}:{port(number)}", "{b}:{port(number)}"]\nrate = "1gbit"\nbuffer = "64kB"\n'
        )
    return fabric_file.parse("".join(parts), "f.toml")


def port(number: int) -> int:
    """Of the links of a large fabric some have the same, at other switches."""
    return 100 + number % 397 if number % 397 != 155 else 99


def job_of(workers: Iterable[int], number: int = 1, name: str = "large") -> Job:
    """Of those hosts."""
    text = f'[job]\nname = "{name}"\nid = {number}\nkey = "00112233445566ff00112233445566ff"\n'
    text += "".join(
        f'[[worker]]\nrank = {rank}\nhost = "h{n}"\naddress = "10.{n >> 8}.{n & 255}.2"\n'
        for rank, n in enumerate(workers)
    )
    text += (
        '[transport]\nrate = "1gbit"\ncollective = "switch"\nwire = "int32"\nmulticast = "239.1.0.1"\n'
        f"[slots]\nbase = {4096 * number}\nmask = 4095\n"
    )
    return job.parse(text, "j.toml")


def leafspine(leaves: int, hosts: int, spines: int) -> tuple[dict[str, int], list[Link]]:
    names = [f"leaf{n}" for n in range(leaves)]
    return dict.fromkeys(names, hosts), [(leaf, f"spine{n}") for leaf in names for n in range(spines)]


def three_tiers(pods: int, leaves: int, hosts: int, cores: int) -> tuple[dict[str, int], list[Link]]:
    """Two switches above the leaves of each pod, each with half of the cores."""
    at = {f"leaf{pod}.{n}": hosts for pod in range(pods) for n in range(leaves)}
    links = [(leaf, f"agg{leaf[4:].split('.')[0]}.{side}") for leaf in at for side in range(2)]
    links += [(f"agg{pod}.{core % 2}", f"core{core}") for pod in range(pods) for core in range(cores)]
    return at, links


@cache
def large(kind: str) -> tuple[Fabric, Job]:
    """One of the fabrics, and a job of all its hosts."""
    hosts, links = {
        "leaf-spine": lambda: leafspine(9, 16, 4),
        "hosts at the root": lambda: ({"top": 20, "below": 31}, [("below", "top")]),
        "three tiers": lambda: three_tiers(3, 4, 12, 4),
        "1024 hosts": lambda: three_tiers(8, 8, 16, 4),
    }[kind]()
    return fabric_of(hosts, links), job_of(range(1, sum(hosts.values()) + 1))


@cache
def planned(kind: str) -> dict[str, list[Entity]]:
    fabric, it = large(kind)
    return desired_entities(fabric, [it])


KINDS = ("leaf-spine", "hosts at the root", "three tiers", "1024 hosts")


@pytest.mark.parametrize("kind", KINDS)
def test_everybody_gets_everybody_once(kind: str) -> None:
    fabric, it = large(kind)
    walk(fabric, planned(kind), it)


@pytest.mark.parametrize("kind", KINDS)
def test_each_switch_gives_its_bits_to_its_own_children(kind: str) -> None:
    fabric, it = large(kind)
    peers = {(link.switch, link.number): link.peer for link in fabric.link_ports}
    heres: dict[str, set[int]] = {}
    for name, entities in planned(kind).items():
        for bucket in range(16):
            for row in rows(entities, it.id, bucket)["sum_trees"].values():
                assert row["all"] == ALL
                assert (row["here"] == ALL) == (row["up"] == 0)
                heres.setdefault(name, set()).add(row["here"])
    for name, (here,) in heres.items():
        tables = rows(planned(kind)[name], it.id, 0)
        bits = [row["member"] for row in tables["contributors"].values()]
        assert all(bit.bit_count() == 1 for bit in bits)
        below: dict[str, set[int]] = {}
        for (number,), row in tables["subtrees"].items():
            below.setdefault(peers[name, number], set()).add(row["bits"])
            assert {row["workers"]} == heres[peers[name, number]], "what a whole sum of that switch names"
        assert all(len(it) == 1 for it in below.values()), "by whatever link it comes"
        bits += [bit for (bit,) in below.values()]
        assert sum(bits) == here, "all of them, and none twice"
        assert sum(bits) | here == here
    assert sum(here == {ALL} for here in heres.values()) >= 1


def test_a_job_of_32_workers_has_the_bits_of_these() -> None:
    fabric, _ = large("leaf-spine")
    it = job_of(range(1, 33))
    found = desired_entities(fabric, [it])
    assert {row["all"] for row in rows(found["spine0"], 1, 0)["sum_trees"].values()} == {ALL}
    assert sorted(row["workers"] for row in rows(found["spine0"], 1, 0)["subtrees"].values()) == [0xFFFF, 0xFFFF0000]
    assert [row["here"] for row in rows(found["leaf1"], 1, 0)["sum_trees"].values()] == [0xFFFF0000]


def test_few_slots_number_the_groups_of_its_sums() -> None:
    """Its aggregators have none."""
    fabric, it = large("leaf-spine")
    few = job.parse(it.text.replace("mask = 4095", "mask = 63"), "j.toml")
    found = desired_entities(fabric, [few])
    walk(fabric, found, few)
    groups = {
        each.multicast_group_id
        for entities in found.values()
        for each in entities
        if isinstance(each, P4MulticastGroupEntry)
    }
    assert {(number - 1) * 2 // 64 for number in groups} == {4096 // 64}, "those of its half of its slots"
    tables = {each.table_id for entities in found.values() for each in entities if isinstance(each, P4TableEntry)}
    assert "aggregators" not in tables


def test_a_failure_changes_where_sums_go_and_what_no_bit_stands_for() -> None:
    fabric, it = large("three tiers")
    ends = [(link.switch, link.number) for link in fabric.link_ports if link.switch in ("core1", "agg0.1")]
    after = desired_entities(fabric, [it], down=both(fabric, *ends), lacking={"core2"})
    walk(fabric, after, it)
    ups = 0
    for name, entities in planned("three tiers").items():
        was, now = (HeldSums.of(some).parts for some in (entities, after[name]))
        assert was == now
        ups += entities != after[name]
    assert ups > 10


class Changing(Walk):
    """While the tables of some switches have changed and those of others have not: results may come twice."""

    def replicate(self, switch: str, words: Counter[int]) -> None:
        slot = self.slots.setdefault(switch, Slot())
        if not slot.final:
            super().replicate(switch, words)


@pytest.mark.parametrize("kind", ["leaf-spine", "three tiers"])
def test_while_tables_change_one_after_the_other_a_sum_is_of_all_or_there_is_none(kind: str) -> None:
    fabric, it = large(kind)
    before, random = planned(kind), Random(kind)
    everybody = Counter(worker.rank for worker in it.workers)
    some = none = 0
    for _ in range(tries(6)):
        ends = random.sample([(link.switch, link.number) for link in fabric.link_ports], 4)
        root = random.choice([name for name in before if name.startswith(("spine", "core"))])
        after = desired_entities(fabric, [it], down=both(fabric, *ends), lacking={root})
        mixed = {name: random.choice((before, after))[name] for name in before}
        for bucket in range(16):
            got = Changing(fabric, mixed, it, bucket).got
            assert all(words == everybody for copies in got.values() for words in copies)
            some, none = some + bool(got), none + (not got)
    assert some
    assert none, "nothing was on its way between two tables"


def place_of(hosts: Mapping[str, int], links: Sequence[Link]) -> tuple[int, str]:
    """How many trees there are, and why there is none."""
    trees, reason = place(fabric_of(hosts, links), job_of(range(1, sum(hosts.values()) + 1)))
    return len(trees), reason


def test_a_switch_with_too_many_children_is_named() -> None:
    two = [("a", "top"), ("b", "top")]
    assert place_of({"a": 31, "b": 31}, two) == (1, "")
    assert place_of({"a": 32, "b": 2}, two) == (
        0,
        "switch 'a' would add what 32 workers at its ports and 0 switches send; of a job of more than 32 workers it "
        "can tell 31 apart: spread them over more switches",
    )
    assert place_of({"top": 31, "b": 31}, two[1:]) == (1, "")
    assert place_of({"top": 32, "b": 31}, two[1:]) == (
        0,
        "switch 'top' would add what 32 workers at its ports and 1 switches send; of a job of more than 32 workers it "
        "can tell 32 apart: spread them over more switches",
    )
    assert place_of({"top": 33}, [])[1].startswith("switch 'top' would add what 33 workers at its ports")
    leaves = {f"leaf{n}": 1 for n in range(33)}
    assert place_of(leaves, [(leaf, "top") for leaf in leaves])[1].startswith("switch 'top' would add what 0 workers")


def test_trees_through_a_switch_with_too_many_children_are_left_out() -> None:
    """Of two cores one has 33 switches beneath it, the other one has three that have 11 leaves each."""
    leaves = {f"leaf{n}": 2 for n in range(33)}
    links = [(leaf, f"agg{n % 3}") for n, leaf in enumerate(leaves)]
    links += [(f"agg{n}", "core") for n in range(3)] + [(leaf, f"x{leaf}") for leaf in leaves]
    links += [(f"x{leaf}", "crowded") for leaf in leaves]
    fabric = fabric_of(leaves, links)
    it = job_of(range(1, 67))
    trees, reason = place(fabric, it)
    assert ([tree.root for tree in trees], reason) == (["core"], "")
    walk(fabric, desired_entities(fabric, [it]), it)


@settings(max_examples=tries(30), deadline=None)
@given(case=cases())
def test_whatever_the_fabric_everybody_gets_everybody_once(case: tuple[Fabric, list[Job], set[End], set[str]]) -> None:
    """Jobs of a few workers, as if that were more than there are bits; not those of one switch, which never are."""
    fabric, jobs, down, lacking = case
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transport, "SUM_MEMBERS", 1)
        found = desired_entities(fabric, jobs, None, down, lacking)
        sums = assign(fabric, jobs).sums
        for it in jobs:
            assert (it.id in sums) == can_be_summed(fabric, it)
            if it.id in sums and len(sums[it.id].switches) > 1:
                walk(fabric, found, it)
                assert all(
                    row["all"] == ALL
                    for entities in found.values()
                    for row in rows(entities, it.id, 0)["sum_trees"].values()
                )


# What bits stand for never changes under a job.

PODS = three_tiers(2, 2, 10, 2)


def moved(fabric_links: Sequence[Link]) -> list[Link]:
    """Leaf 0.1 goes to the other pod."""
    return [(a, b.replace("agg0", "agg1") if a == "leaf0.1" else b) for a, b in fabric_links]


def test_a_job_whose_switches_get_other_children_is_not_summed_until_it_was_taken_out() -> None:
    hosts, links = PODS
    it, fabric, changed = job_of(range(1, 41)), fabric_of(hosts, links), fabric_of(hosts, moved(links))
    first = assign(fabric, [it])
    assert (set(first.sums), first.withheld) == ({1}, frozenset())
    then = assign(changed, [it], first)
    assert (set(then.sums), then.withheld) == (set(), {1})
    plan = make_plan(Programs(DEFAULT_FOLDER), changed, {it.name: it}, then)
    assert plan.not_summed()[it.name].startswith("its trees have become others")
    assert assign(fabric, [it], then).withheld == {1}, "nor when all is as it was"
    without = assign(changed, [], then)
    assert without.withheld == frozenset()
    assert set(assign(changed, [it], without).sums) == {1}


def test_a_job_that_had_no_trees_for_a_while_is_not_summed_either() -> None:
    """Who knows what they were before."""
    hosts, links = PODS
    it, fabric = job_of(range(1, 41)), fabric_of(hosts, links)
    apart = fabric_of(hosts, links, plain=("agg0.0", "agg0.1"))
    then = assign(apart, [it], assign(fabric, [it]))
    assert (set(then.sums), then.withheld) == (set(), {1})
    plan = make_plan(Programs(DEFAULT_FOLDER), apart, {it.name: it}, then)
    assert plan.not_summed()[it.name].startswith("no path leads from"), "what is to be mended first"
    assert assign(fabric_of(hosts, moved(links)), [it], then).withheld == {1}


def test_what_leaves_children_as_they_are_changes_nothing() -> None:
    hosts, links = PODS
    it, fabric = job_of(range(1, 41)), fabric_of(hosts, links)
    first = assign(fabric, [it])
    more = fabric_of(hosts, [*links, ("leaf0.0", "agg0.0"), ("agg0.0", "core2"), ("agg1.0", "core2")])
    assert set(assign(more, [it], first).sums) == {1}
    other = job_of([*range(1, 40), 40], name="large")
    assert set(assign(fabric, [other], first).sums) == {1}


def test_a_job_of_other_hosts_has_begun_anew() -> None:
    hosts, links = PODS
    fabric = fabric_of(hosts, links)
    first = assign(fabric, [job_of(range(1, 35))])
    assert assign(fabric, [job_of(range(2, 36))], first).withheld == frozenset()


def test_a_smaller_job_goes_on_whatever_changes() -> None:
    hosts, links = PODS
    it = job_of(range(9, 32))
    first = assign(fabric_of(hosts, links), [it])
    assert set(assign(fabric_of(hosts, moved(links)), [it], first).sums) == {1}


@pytest.mark.parametrize("name", ["leaf0.0", "agg0.0", "core0"])
def test_a_controller_that_starts_anew_asks_the_switches_what_bits_stand_for(name: str) -> None:
    hosts, links = PODS
    programs, it = Programs(DEFAULT_FOLDER), job_of(range(1, 41))
    before = make_plan(programs, fabric_of(hosts, links), {it.name: it})
    where = next(each for each in before.fabric.switches if each.name == name)
    held = HeldSums.of(before.entities[name])

    def read(fabric: Fabric, held: HeldSums, it: Job = it) -> Numbers:
        plan = make_plan(programs, fabric, {it.name: it})
        return assign(fabric, [it], SumsAtSwitches().read(where, held, plan, started=False))

    assert set(read(before.fabric, held).sums) == {1}
    part = HeldSums(held.bases, held.epoch, frozenset(sorted(held.parts, key=str)[::2]))
    assert set(read(before.fabric, part).sums) == {1}, "it has not got all of them"
    elsewhere = make_plan(programs, before.fabric, {it.name: it}, Numbers(sums={1: Sums(1024)})).entities[name]
    assert read(before.fabric, HeldSums.of(elsewhere)).sums[1].base == 1024, "where its slots are is another matter"
    found = read(fabric_of(hosts, moved(links)), held)
    assert found.withheld == (frozenset() if name == "leaf0.0" else {1}), "that one has the same children"
    swapped = fabric_of({"leaf0.1": 10, "leaf0.0": 10, **hosts}, links)
    found = read(swapped, held)
    assert found.withheld == ({1} if name == "leaf0.0" else frozenset()), "it has as many, but others"
    small = job_of(range(9, 32))
    old = make_plan(programs, fabric_of(hosts, links), {small.name: small}).entities[name]
    assert read(fabric_of(hosts, moved(links)), HeldSums.of(old), small).withheld == frozenset()


def test_more_links_to_switches_beneath_than_the_table_holds_are_refused_by_its_name() -> None:
    hosts = {f"leaf{n}": 2 for n in range(31)}
    links = [(leaf, "top") for leaf in hosts for _ in range(12)]
    jobs = [job_of(range(1, 63), number, f"j{number}") for number in range(1, 5)]
    changed = [job.parse(it.text.replace("239.1.0.1", f"239.1.{it.id}.1"), f"j{it.id}.toml") for it in jobs]
    fabric = fabric_of(hosts, links)
    make_plan(Programs(DEFAULT_FOLDER), fabric, {it.name: it for it in changed[:2]})
    with pytest.raises(PipelineError, match=r"table subtrees of switch 'top' holds 1024 entries and \d+ are needed"):
        make_plan(Programs(DEFAULT_FOLDER), fabric, {it.name: it for it in changed})


def test_a_program_without_bits_of_children_takes_small_jobs_alone(tmp_path: Path) -> None:
    """As that for Tofino."""
    for file in DEFAULT_FOLDER.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    p4info = tmp_path / "gradlane-aggregation.p4info.txtpb"
    number = re.search(r"actions \{\s+preamble \{\s+id: (\d+)\s+name: \S+stand_for", p4info.read_text())
    assert number
    text = re.sub(rf"  action_refs \{{\s+id: {number[1]}\s+\}}\n", "", p4info.read_text())
    assert text != p4info.read_text()
    p4info.write_text(text)
    fabric, it = large("leaf-spine")
    small = job_of(range(1, 33))
    make_plan(Programs(tmp_path), fabric, {small.name: small})
    told = r"table subtrees of switch 'spine0' has no action stand_for in .*; it takes at most 32 workers in a job"
    with pytest.raises(PipelineError, match=told):
        make_plan(Programs(tmp_path), fabric, {it.name: it})
