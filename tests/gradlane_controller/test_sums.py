# SPDX-License-Identifier: Apache-2.0
"""Which jobs are summed in a switch, in which of its slots, and what it has to hold for them."""

import random
import re
from collections.abc import Callable

import pytest
from finsy import P4MulticastGroupEntry, P4TableEntry

from gradlane import job
from gradlane.job import Job, JobError
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric_file import FabricError
from gradlane_controller.policy import Entity, Numbers, assign, desired_entities
from gradlane_controller.policy.sums import Sums, place
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text, summed_text

Row = tuple[dict[str, object], dict[str, object]]
FABRIC = fabric_file.parse(fabric_text(aggregation=True), "f.toml")


def summed(number: int = 1, hosts: tuple[int, ...] = (1, 2, 3), slots: int = 1024, lines: str = "") -> Job:
    return job.parse(summed_text(number, f"sum_slots = {slots}\n{lines}", hosts), f"j{number}.toml")


def rows(entities: list[Entity], table: str) -> list[Row]:
    return [
        (dict(it.match or {}), it.action.args)
        for it in entities
        if isinstance(it, P4TableEntry) and it.table_id == table
    ]


def test_every_worker_contributes_by_its_own_bit_at_its_own_port() -> None:
    found = desired_entities(FABRIC, [summed(hosts=(4, 1, 2))])["s1"]
    assert rows(found, "contributors") == [
        (
            {"ingress_port": n, "source": f"::ffff:10.0.{n}.2", "job": 1},
            {"member": bit, "all": 7, "slot_base": 0, "slot_mask": 1023, "own": f"02:00:00:00:0{n}:01"}
            | {"address": f"10.0.{n}.1"},
        )
        for n, bit in ((4, 1), (1, 2), (2, 4))
    ]


def test_the_sum_goes_to_all_workers_from_its_own_address() -> None:
    found = desired_entities(FABRIC, [summed(hosts=(1, 2, 4))])["s1"]
    groups = {it.multicast_group_id: it.replicas for it in found if isinstance(it, P4MulticastGroupEntry)}
    routes = {match["destination"]: args.get("group") for match, args in rows(found, "ipv4_routes")}
    assert len(groups) == 4  # of three aggregators, and of the sums
    assert groups[routes["239.1.1.4/32"]] == (1, 2, 4)
    assert {"destination": "01:00:5e:01:01:04"} in [match for match, _ in rows(found, "stations")]
    assert routes["239.1.1.4/32"] not in [match["group"] for match, _ in rows(found, "aggregators")], "nobody's own"


def test_32_workers_have_32_bits() -> None:
    text = fabric_text(aggregation=True)
    one = text[text.index("\n[[port]]\nnumber = 4") : text.index("\n[[dscp]]")]
    for n in range(5, 33):
        text += (
            one.replace("number = 4", f"number = {n}")
            .replace("h4", f"h{n}")
            .replace("0.4.", f"0.{n}.")
            .replace("00:04:", f"00:{n:02x}:")
        )
    it = job.parse(summed(hosts=tuple(range(1, 33))).text.replace("mask = 63", "mask = 4095"), "j")
    found = desired_entities(fabric_file.parse(text, "f"), [it])
    contributions = [args for _, args in rows(found["s1"], "contributors")]
    assert [args["member"] for args in contributions] == [1 << n for n in range(32)]
    assert {args["all"] for args in contributions} == {0xFFFFFFFF}


def without(entities: dict[str, list[Entity]]) -> None:
    """Asserts that nothing is there for sums."""
    for found in entities.values():
        assert not rows(found, "contributors")
        assert not [it for it, _ in rows(found, "ipv4_routes") if str(it["destination"]).startswith("239.1.1.3")]


def test_a_switch_without_the_program_sums_nothing_and_it_is_said_why() -> None:
    plain = fabric_file.parse(fabric_text(), "f.toml")
    it = summed(hosts=(1, 2))
    without(desired_entities(plain, [it]))
    assert place(plain, it) == (None, "switch 's1' has no `aggregation = true` in f.toml")
    assert place(FABRIC, it) == ("s1", "")


def test_results_come_from_an_address_that_is_no_workers() -> None:
    text = fabric_text(aggregation=True)
    some = fabric_file.parse(text.replace('gateway = "10.0.1.1"', "").replace('gateway = "10.0.2.1"', ""), "f.toml")
    found = desired_entities(some, [summed(hosts=(1, 2, 4))])["s1"]
    assert [args["address"] for _, args in rows(found, "contributors")] == ["10.0.3.1", "10.0.3.1", "10.0.4.1"]
    none = fabric_file.parse(re.sub("gateway = .*", "", text), "f.toml")
    without(desired_entities(none, [summed(hosts=(1, 2))]))
    reason = "no port of switch 's1' has a `gateway` in f.toml, from which results could come"
    assert place(none, summed(hosts=(1, 2))) == (None, reason)


def test_workers_at_several_switches_are_not_summed_and_it_is_said_why() -> None:
    leaves = fabric_file.parse(
        leafspine_text().replace("device", "#").replace('\naddress = "127', '\naggregation = true\naddress = "127'),
        "f.toml",
    )
    apart, together = summed(hosts=(1, 3)), summed(2, hosts=(3, 4))
    without(desired_entities(leaves, [apart]))
    assert place(leaves, apart) == (
        None,
        "'h1' is at switch 'leaf1' and 'h3' at 'leaf2'; all workers must be at one",
    )
    found = desired_entities(leaves, [apart, together])
    assert {name for name, entities in found.items() if rows(entities, "contributors")} == {"leaf2"}
    assert [match["ingress_port"] for match, _ in rows(found["leaf2"], "contributors")] == [1, 2]


def test_other_jobs_are_not_summed() -> None:
    it = job.parse(job_text(transport='multicast = "239.1.1.1"'), "j")
    found = desired_entities(FABRIC, [it])
    without(found)
    assert assign(FABRIC, [it]).sums == {}


def test_jobs_have_disjoint_slots_and_keep_them() -> None:
    first, second, third = summed(1, slots=2048), summed(2, slots=512), summed(3, slots=1024)
    assert assign(FABRIC, [first, second, third]).sums == {
        1: Sums("s1", 0), 2: Sums("s1", 2048), 3: Sums("s1", 3072)
    }  # fmt: skip
    known = Numbers({}, {2: Sums("s1", 512), 3: Sums("s1", 2048)})
    assert assign(FABRIC, [third, second], known).sums == {2: Sums("s1", 512), 3: Sums("s1", 2048)}
    fourth = summed(4, slots=512)
    assert assign(FABRIC, [fourth, third, second], known).sums[4] == Sums("s1", 0), "the lowest that are free"


@pytest.mark.parametrize(
    "known",
    [
        {1: Sums("s1", 512)},  # not a multiple of its size, as after its file has changed
        {1: Sums("s1", 4096)},
        {1: Sums("s1", -1024)},
        {1: Sums("s9", 1024)},  # of another switch
        {1: Sums("s1", 0), 2: Sums("s1", 512)},  # switches may answer anything
    ],
)
def test_slots_that_do_not_suit_are_given_anew(known: dict[int, Sums]) -> None:
    jobs = [summed(1, slots=1024), summed(2, slots=512)]
    assert assign(FABRIC, jobs, Numbers({}, known)).sums == {1: Sums("s1", 0), 2: Sums("s1", 1024)}


def test_slots_are_disjoint_whatever_comes_and_goes() -> None:
    rng = random.Random(1)
    there: dict[int, Job] = {}
    known = Numbers()
    refused = 0
    for number in range(1, 400):
        if there and rng.random() < 0.45:
            del there[rng.choice(list(there))]
        tried = {**there, number: summed(number % 250 + 1, slots=1 << rng.randrange(8, 13), lines="sum_window = 4")}
        try:
            found = assign(FABRIC, tried.values(), known)
        except JobError:
            refused += 1
            continue
        there = tried
        used: set[int] = set()
        for it in there.values():
            base, size = found.sums[it.id].base, it.transport.sum_slots
            assert base % size == 0
            assert used.isdisjoint(range(base, base + size))
            used |= set(range(base, base + size))
            if it.id in known.sums and it is not tried[number]:
                assert known.sums[it.id].base == base, "a running job has moved"
        assert max(used) < 4096
        known = found
    assert refused > 20


def test_a_job_that_does_not_fit_is_refused_by_name() -> None:
    jobs = [summed(1, slots=2048), summed(2, slots=1024), summed(3, slots=2048)]
    with pytest.raises(JobError) as caught:
        assign(FABRIC, jobs)
    assert str(caught.value) == (
        "j3.toml: transport.sum_slots: is 2048, but so many in a row are not free of the 4096 slots that switch 's1' "
        "has for sums: it has 2048 of job 'j1', 1024 of job 'j2'; take fewer, or another collective than 'switch'"
    )


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        (lambda text: text.replace("mask = 63", "mask = 7"), "slots.mask", "has 4 multicast groups"),
        (lambda text: text.replace("239.1.1.1", "239.1.1.6"), "transport.multicast", "overlap in multicast addresses"),
    ],
)
def test_the_address_of_sums_counts(change: Callable[[str], str], key: str, reason: str) -> None:
    other = job.parse(job_text("other", 9, hosts=(1,), base=8192, transport='multicast = "239.1.1.9"'), "other.toml")
    it = summed()
    desired_entities(FABRIC, [it, other])
    with pytest.raises(JobError) as caught:
        desired_entities(FABRIC, [other, job.parse(change(it.text), "j.toml")])
    assert (caught.value.key, reason in caught.value.reason) == (key, True)


def test_sums_are_in_the_registers_of_one_pipe() -> None:
    with pytest.raises(FabricError, match=r"switch\[0\].aggregation: is true, but the switch has 2 pipes"):
        fabric_file.parse(fabric_text(aggregation=True).replace("device_id = 1", "device_id = 1\npipes = 2"), "f")
    with pytest.raises(FabricError, match=r"aggregation: is 1; it must be true or false"):
        fabric_file.parse(fabric_text().replace("device_id = 1", "device_id = 1\naggregation = 1"), "f")
