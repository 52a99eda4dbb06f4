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
from gradlane_controller.network.fabric import Fabric
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
    found = desired_entities(FABRIC, [summed(hosts=(4, 1, 2))], Numbers(epochs={"s1": 9}))["s1"]
    assert rows(found, "contributors") == [
        ({"ingress_port": n, "source": f"::ffff:10.0.{n}.2", "job": 1}, {"member": bit})
        for n, bit in ((4, 1), (1, 2), (2, 4))
    ]
    group = next(match["group"] for match, _ in rows(found, "aggregators")) + 3  # behind those of the workers
    at = {"all": 7, "here": 7, "up": 0, "group": group, "slot_base": 0, "slot_mask": 1023, "own": "02:00:00:00:01:01"}
    at |= {"address": "::ffff:10.0.1.1", "epoch": 9}
    assert rows(found, "sum_trees") == [({"job": 1, "bucket": bucket}, at) for bucket in range(16)]
    assert not rows(found, "subtrees")


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
    assert {args["all"] for _, args in rows(found["s1"], "sum_trees")} == {0xFFFFFFFF}


def without(entities: dict[str, list[Entity]]) -> None:
    """Asserts that nothing is there for sums."""
    for found in entities.values():
        assert not rows(found, "contributors") + rows(found, "sum_trees") + rows(found, "subtrees")
        assert not [it for it, _ in rows(found, "ipv4_routes") if str(it["destination"]).startswith("239.1.1.3")]


def test_a_switch_without_the_program_sums_nothing_and_it_is_said_why() -> None:
    plain = fabric_file.parse(fabric_text(), "f.toml")
    it = summed(hosts=(1, 2))
    without(desired_entities(plain, [it]))
    assert place(plain, it) == ((), "switch 's1' has no `aggregation = true` in f.toml")
    assert place(FABRIC, it)[1] == ""


def test_results_come_from_an_address_that_is_no_workers() -> None:
    text = fabric_text(aggregation=True)
    some = fabric_file.parse(text.replace('gateway = "10.0.1.1"', "").replace('gateway = "10.0.2.1"', ""), "f.toml")
    found = desired_entities(some, [summed(hosts=(1, 2, 4))])["s1"]
    assert {args["address"] for _, args in rows(found, "sum_trees")} == {"::ffff:10.0.3.1"}
    none = fabric_file.parse(re.sub("gateway = .*", "", text), "f.toml")
    without(desired_entities(none, [summed(hosts=(1, 2))]))
    reason = "no port of switch 's1' has a `gateway` in f.toml, from which results could come"
    assert place(none, summed(hosts=(1, 2))) == ((), reason)


def over_ipv6(it: Job) -> Job:
    """The same job, by its hosts' other addresses."""
    text = re.sub(r"10\.0\.(\d)\.2", r"fd00:\1::2", it.text).replace('"239.1.1.1"', '"ff18::1:1"')
    return job.parse(text, "j6.toml")


def test_over_ipv6_all_addresses_are_of_that_family() -> None:
    text = leafspine_text().replace('\naddress = "127', '\naggregation = true\naddress = "127')
    fabric = fabric_file.parse(text, "f.toml")
    it = over_ipv6(job.parse(summed(1, (1, 3)).text.replace("mask = 63", "mask = 127"), "j"))
    found = desired_entities(fabric, [it])
    assert [match["source"] for match, _ in rows(found["leaf2"], "contributors")] == ["fd00:3::2"]
    sources = {name: {args["address"] for _, args in rows(at, "sum_trees")} for name, at in found.items()}
    # A spine has no hosts, and so no gateway.
    assert sources == {"leaf1": {"fd00:1::1"}, "leaf2": {"fd00:3::1"}, "spine1": {"100::3"}, "spine2": {"100::4"}}
    for entities in found.values():
        routes = {str(match["destination"]): args for match, args in rows(entities, "ipv6_routes")}
        numbers = [it.multicast_group_id for it in entities if isinstance(it, P4MulticastGroupEntry)]
        assert routes["ff18::1:3/128"]["group"] in numbers
        assert {"destination": "33:33:00:01:00:03"} in [match for match, _ in rows(entities, "stations")]
    leaf = fabric_file.parse(text.replace('gateway6 = "fd00:3::1"', "").replace('gateway6 = "fd00:4::1"', ""), "f.toml")
    reason = "no port of switch 'leaf2' has a `gateway6` in f.toml, from which results could come"
    assert place(leaf, it) == ((), reason)


def test_other_jobs_are_not_summed() -> None:
    it = job.parse(job_text(transport='multicast = "239.1.1.1"'), "j")
    found = desired_entities(FABRIC, [it])
    without(found)
    assert assign(FABRIC, [it]).sums == {}


def bases(jobs: list[Job], known: Numbers | None = None, fabric: Fabric = FABRIC) -> dict[int, int]:
    return {number: it.base for number, it in assign(fabric, jobs, known).sums.items()}


def numbered(known: dict[int, int]) -> Numbers:
    return Numbers(sums={number: Sums(base) for number, base in known.items()})


def test_jobs_have_disjoint_slots_and_keep_them() -> None:
    first, second, third = summed(1, slots=2048), summed(2, slots=512), summed(3, slots=1024)
    assert bases([first, second, third]) == {1: 0, 2: 2048, 3: 3072}
    known = {2: 512, 3: 2048}
    assert bases([third, second], numbered(known)) == known
    assert bases([summed(4, slots=512), third, second], numbered(known))[4] == 0, "the lowest that are free"


def test_jobs_share_slots_where_no_switch_has_both() -> None:
    text = leafspine_text().replace('\naddress = "127', '\naggregation = true\naddress = "127')
    fabric = fabric_file.parse(text, "f.toml")
    left, right, across = (
        summed(1, (1, 2)),
        summed(2, (3, 4)),
        job.parse(
            summed(3, (1, 3)).text.replace("mask = 63", "mask = 127").replace("base = 192", "base = 256"), "j3.toml"
        ),
    )
    assert bases([left, right, across], fabric=fabric) == {1: 0, 2: 0, 3: 1024}
    assert bases([left, right, across], numbered({3: 0}), fabric) == {1: 1024, 2: 1024, 3: 0}
    large = job.parse(across.text.replace("sum_slots = 1024", "sum_slots = 4096"), "j3.toml")
    with pytest.raises(
        JobError, match=r"each of 'leaf1', 'leaf2', 'spine1', 'spine2' has for sums, beside 1024 of job"
    ):
        assign(fabric, [left, large])


@pytest.mark.parametrize(
    "known",
    [
        {1: 512},  # not a multiple of its size, as after its file has changed
        {1: 4096},
        {1: -1024},
        {9: 1024},  # of another job
        {1: 0, 2: 512},  # switches may answer anything
    ],
)
def test_slots_that_do_not_suit_are_given_anew(known: dict[int, int]) -> None:
    jobs = [summed(1, slots=1024), summed(2, slots=512)]
    assert bases(jobs, numbered(known)) == {1: 0, 2: 1024}


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
    line = jobs[2].text[: jobs[2].text.index("sum_slots")].count("\n") + 1
    assert str(caught.value) == (
        f"j3.toml:{line}: transport.sum_slots: is 2048, but so many in a row are not free of the 4096 slots that "
        "switch 's1' has for sums, beside 2048 of job 'j1', 1024 of job 'j2'; take fewer, or another collective than "
        "'switch'"
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
