# SPDX-License-Identifier: Apache-2.0
"""Jobs that simulated switches sum: what they get, how fast, and that every run ends, whatever fails."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gradlane_sim import fabrics
from gradlane_sim.carriers import Gradlane
from gradlane_sim.document import document
from gradlane_sim.errors import SpecificationError
from gradlane_sim.fabrics import single
from gradlane_sim.specification import Fabric, HostStops, Job, LinkChanges, Specification, SwitchDies
from tests.sim.simulator import MILLISECOND, RATE, SECOND, Run, all_reduce, leaf_spine, needs_simulator, run

pytestmark = needs_simulator

LEAF, SPINE = 4, 6
Fault = HostStops | LinkChanges | SwitchDies


def job(carrier: Gradlane | None = None, steps: int = 4, compute: int = 0) -> Job:
    return replace(all_reduce(carrier, steps=steps), algorithm="switch", compute=compute)


def simulated(job: Job, fabric: Fabric | None = None, faults: Sequence[Fault] = ()) -> tuple[Run, Specification]:
    specification = Specification(fabric or leaf_spine(), (job,), faults=tuple(faults), limit=40 * SECOND)
    return run(specification), specification


def lossy(loss: float) -> Fabric:
    """On every link."""
    fabric = leaf_spine()
    return replace(fabric, links=tuple(replace(link, loss=loss) for link in fabric.links))


def test_all_but_the_first_step_are_sums_of_switches() -> None:
    found, specification = simulated(job(steps=5))
    found.assert_complete(specification)
    said = found.job["statistics"]
    slices = 143 + 1  # 704 elements each: 100,000, and 11
    assert said["sums_sent"] == said["sums_received"] == 4 * 4 * slices
    assert said["sums_repaired"] == found.job["sums"]["fallbacks"] == 0
    assert found.told["sums"] == {"results": 4 * slices, "missing": 0}
    began, ended = found.job["step_ends"][0], found.told["messages"]
    assert all(0 <= start < end <= began for *_, start, end in ended), "the first step's messages, and no others"


@pytest.mark.parametrize(("loss", "lanes"), [(0.0001, "int16"), (0.01, "int32"), (0.1, "int16")])
def test_losses_are_repaired(loss: float, lanes: str) -> None:
    found, specification = simulated(job(Gradlane(lanes=lanes)), lossy(loss))
    found.assert_complete(specification)
    assert found.told["sums"]["missing"] == 0
    assert loss < 0.001 or found.job["statistics"]["sums_repaired"] > 0


def test_within_the_budget_slices_are_finished_without_some() -> None:
    found, specification = simulated(job(Gradlane(push=0.1)), lossy(0.01))
    found.assert_complete(specification)
    said = found.job["statistics"]
    assert found.told["sums"]["missing"] == said["sums_left_out"] > 0
    assert said["sums_over_budget"] == 0


@pytest.mark.parametrize("node", [LEAF, SPINE])
@pytest.mark.parametrize("away", [0, MILLISECOND, 2 * SECOND])
def test_a_switch_restarts_in_the_middle_of_a_step(node: int, away: int) -> None:
    """It has forgotten its slots. A spine that is away for long is done without; a leaf's hosts can't be."""
    at = 15 * MILLISECOND
    found, specification = simulated(job(steps=8), faults=[SwitchDies(node, at, back=at + away)])
    found.assert_complete(specification)
    assert (found.job["sums"]["fallbacks"] > 0) == (away > SECOND and node == SPINE)


def test_a_switch_that_comes_back_sums_again() -> None:
    """Ten seconds after it has been lost."""
    at = 15 * MILLISECOND
    found, specification = simulated(
        job(steps=130, compute=100 * MILLISECOND), faults=[SwitchDies(SPINE, at, 2 * SECOND)]
    )
    found.assert_complete(specification)
    assert found.job["sums"] == {"halts": 2, "fallbacks": 1, "by_switch": True}


def test_a_host_that_stops_is_named() -> None:
    found, _ = simulated(job(steps=1000), faults=[HostStops(3, 15 * MILLISECOND, named_after=8 * SECOND)])
    assert found.job["error"] == "rank 3 is dead: host 3 was not heard of"
    assert found.told["violations"] == []


def test_a_step_takes_as_long_with_many_workers_as_with_few() -> None:
    """It is the time of a worker's own link."""
    seconds: dict[int, float] = {}
    for hosts in (4, 32):
        it = replace(job(steps=2), members=tuple(range(hosts)))
        found, specification = simulated(it, single(hosts, RATE, 64_000, 1000))
        found.assert_complete(specification)
        first, second = found.job["step_ends"]
        seconds[hosts] = second - first
    assert seconds[32] < 1.1 * seconds[4]


MANY = {
    "two tiers": fabrics.leaf_spine(2, 20, 2, RATE, 10 * RATE, 64_000, 1000),
    "three tiers": fabrics.pods(3, 2, 6, RATE, 10 * RATE, 64_000, 1000),
}


def many(fabric: Fabric, steps: int = 3, known: bool = False, size: int = 40_000) -> Job:
    """Of more workers than a sum's members have bits."""
    job = all_reduce(Gradlane(lanes="int32", known=known), size=size, steps=steps)
    return replace(job, algorithm="switch", members=tuple(range(fabric.hosts)))


@pytest.mark.parametrize("tiers", MANY)
def test_switches_sum_more_workers_than_have_bits(tiers: str) -> None:
    fabric = MANY[tiers]
    found, specification = simulated(many(fabric), fabric)
    found.assert_complete(specification)
    slices = 29 + 1  # 352 elements each: 10,000, and 11
    assert found.told["sums"] == {"results": 2 * slices, "missing": 0}
    assert found.job["statistics"]["sums_sent"] == fabric.hosts * 2 * slices
    assert found.job["statistics"]["sums_refused"] == 0


@pytest.mark.parametrize("tiers", MANY)
def test_of_many_workers_losses_are_repaired_and_a_switch_may_forget(tiers: str) -> None:
    fabric = MANY[tiers]
    lossy = replace(fabric, links=tuple(replace(link, loss=0.002) for link in fabric.links))
    at = MILLISECOND + MILLISECOND // 5
    for node in (fabric.tiers[0][0], fabric.tiers[-1][0]):
        found, specification = simulated(many(fabric, 8, known=True), lossy, [SwitchDies(node, at, back=at)])
        found.assert_complete(specification)
        assert found.told["sums"]["missing"] == 0
        assert found.job["statistics"]["sums_repaired"] > 0


def test_without_the_first_step_the_others_take_as_long() -> None:
    fabric, size = MANY["two tiers"], 1_600_000  # so much that the end of the hosts' step does not matter
    whole, specification = simulated(many(fabric, 3, size=size), fabric)
    whole.assert_complete(specification)
    found, specification = simulated(many(fabric, 2, known=True, size=size), fabric)
    found.assert_complete(specification)
    first, *others = whole.job["step_ends"]
    assert found.job["step_ends"] == pytest.approx([it - first for it in others], rel=0.01)


@pytest.mark.parametrize(
    ("hosts", "said"), [(33, "it must be 'int32'"), (1, "it takes 2 to 1024")], ids=["too many", "alone"]
)
def test_what_the_agent_refuses_is_not_simulated(hosts: int, said: str) -> None:
    it = replace(job(), members=tuple(range(hosts)))
    with pytest.raises(SpecificationError, match=said):
        document(Specification(single(hosts, RATE, 64_000, 1000), (it,)))
