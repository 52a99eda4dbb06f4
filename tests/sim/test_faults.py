# SPDX-License-Identifier: Apache-2.0
"""Whatever fails, a simulated run ends: complete, or with an error that names who is gone. No guarantee is broken."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradlane_sim import fabrics
from gradlane_sim.carriers import Gradlane
from gradlane_sim.document import document
from gradlane_sim.errors import SimulationError
from gradlane_sim.specification import SECOND, HostStops, Job, LinkChanges, Specification, SwitchDies, Tensor
from tests.sim.simulator import (
    MILLISECOND,
    RATE,
    all_reduce,
    leaf_spine,
    needs_simulator,
    run,
    run_document,
)
from tests.support.effort import tries

pytestmark = needs_simulator
SILENCE = 7.5  # s after which a rank is dead
SPINE, OTHER_SPINE = 6, 7
EXACT = Gradlane()
LOSSY = Gradlane(push=0.1, pull=0.05, slots=4096)


def lossy_spine(loss: float) -> Specification:
    """All links of a spine lose packets."""
    fabric = leaf_spine()
    for leaf in (4, 5):
        fabric = fabric.with_link(leaf, SPINE, loss=loss)
    return Specification(fabric, (all_reduce(),))


@pytest.mark.parametrize("loss", [0.0001, 0.001, 0.01, 0.1])
@pytest.mark.parametrize("carrier", [EXACT, LOSSY, replace(LOSSY, trim=True)], ids=["exact", "lossy", "trim"])
def test_random_loss(loss: float, carrier: Gradlane) -> None:
    fabric = leaf_spine()
    fabric = replace(fabric, links=tuple(replace(link, loss=loss) for link in fabric.links))
    specification = Specification(fabric, (all_reduce(carrier),))
    found = run(specification)
    found.assert_complete(specification)
    lost = sum(link["lost"] for link in found.told["links"])
    sent = sum(link["packets"] - link["dropped"] for link in found.told["links"])
    assert 0.5 * loss * sent - 5 < lost < 2 * loss * sent + 5


@pytest.mark.parametrize("algorithm", ["ring", "stragglar", "grid"])
def test_other_algorithms_are_exact_under_loss(algorithm: str) -> None:
    specification = lossy_spine(0.01)
    job = replace(specification.jobs[0], algorithm=algorithm)
    specification = replace(specification, jobs=(job,))
    run(specification).assert_complete(specification)


def test_the_straggler_that_stragglar_expects_is_the_last_worker() -> None:
    """From its arrival on little is left to do, and all of it if another one is that late. No port overflows."""
    late, size = 80 * MILLISECOND, 4_000_000
    took: dict[int, int] = {}
    for rank in (7, 0, 3):
        delays = (tuple(late if worker == rank else 0 for worker in range(8)),)
        job = Job(1, tuple(range(8)), EXACT, (Tensor(0, size, 0),), algorithm="stragglar", delays=delays, check=True)
        specification = Specification(fabrics.single(8, RATE, 512_000, 10_000), (job,))
        found = run(specification)
        found.assert_complete(specification)
        took[rank] = found.job["step_ends"][0] - late
    assert took[7] < 0.7 * min(took[0], took[3])


def test_a_server_is_exact_under_loss() -> None:
    specification = replace(lossy_spine(0.01), jobs=(all_reduce(servers=1),))
    run(specification).assert_complete(specification)


def test_a_spine_that_dies_is_gone_around() -> None:
    job = all_reduce(steps=30)
    whole = run(Specification(leaf_spine(), (job,)))
    at = round(whole.told["simulated"] * SECOND / 2)
    faults = tuple(LinkChanges(leaf, SPINE, at, up=False) for leaf in (4, 5))
    specification = Specification(leaf_spine(), (job,), faults=faults)
    found = run(specification)
    found.assert_complete(specification)
    assert sum(link["lost"] for link in found.told["links"]) > 0
    after = [link for link in found.told["links"] if OTHER_SPINE in (link["from"], link["to"])]
    before = [link for link in whole.told["links"] if OTHER_SPINE in (link["from"], link["to"])]
    assert sum(link["bytes"] for link in after) > 1.3 * sum(link["bytes"] for link in before)


def test_leaves_go_around_a_switch_that_dies_at_once() -> None:
    """They do not wait for the controller: what is lost is what was on its way."""
    told = document(Specification(leaf_spine(), (all_reduce(steps=30),)))
    told["faults"] = [{"kind": "switch", "switch": SPINE, "at": 23 * MILLISECOND, "known_after": 100 * SECOND}]
    found = run_document(told)
    assert (found["jobs"][0]["error"], found["jobs"][0]["steps_complete"]) == ("", 30)
    assert sum(link["lost"] for link in found["links"]) < 10
    assert 0 < packets(found, 4, SPINE) < 0.2 * packets(found, 4, OTHER_SPINE)


def packets(told: dict[str, Any], a: int, b: int) -> int:
    """What went from one node to the next."""
    return next(link["packets"] for link in told["links"] if (link["from"], link["to"]) == (a, b))


def test_nothing_more_goes_towards_a_far_link_that_is_down_when_the_controller_knows() -> None:
    """The leaf's own link works: it hears of the other one, half a second later."""
    fault = LinkChanges(5, SPINE, 50 * MILLISECOND, up=False)
    sent: list[int] = []
    for steps in (50, 100):
        job = replace(all_reduce(steps=steps), compute=20 * MILLISECOND)
        specification = Specification(leaf_spine(), (job,), faults=(fault,))
        found = run(specification)
        found.assert_complete(specification)
        sent.append(packets(found.told, 4, SPINE))
    assert sent[0] == sent[1] > 0


def test_a_faster_link_carries_more() -> None:
    fabric = leaf_spine()
    for leaf in (4, 5):
        fabric = fabric.with_link(leaf, SPINE, rate=3 * RATE)
    specification = Specification(fabric, (all_reduce(),))
    found = run(specification)
    found.assert_complete(specification)
    assert packets(found.told, 4, SPINE) == pytest.approx(3 * packets(found.told, 4, OTHER_SPINE), rel=0.1)


def test_the_only_spine_that_dies_ends_the_job_by_name() -> None:
    faults = tuple(LinkChanges(leaf, SPINE, 10 * MILLISECOND, up=False) for leaf in (4, 5))
    found = run(Specification(leaf_spine(1), (all_reduce(steps=1000),), faults=faults))
    assert found.job["error"] == "rank 2 is dead: host 2 was not heard of"
    assert found.told["simulated"] == pytest.approx(0.01 + SILENCE, abs=0.1)
    assert found.told["violations"] == []


@pytest.mark.parametrize("host", [0, 3])
def test_a_host_that_stops_is_named(host: int) -> None:
    specification = Specification(
        leaf_spine(), (all_reduce(steps=1000),), faults=(HostStops(host, 10 * MILLISECOND, named_after=8 * SECOND),)
    )
    found = run(specification)
    assert found.job["error"] == f"rank {host} is dead: host {host} was not heard of"
    assert found.told["simulated"] == pytest.approx(8.01)
    assert found.told["violations"] == []
    assert 0 < max(found.job["step_ends"]) < 20 * MILLISECOND, "nothing comes of it any more"


@pytest.mark.parametrize(("a", "b"), [(1, 4), (4, SPINE)], ids=["of a host", "of a spine"])
def test_a_link_that_flaps(a: int, b: int) -> None:
    faults = tuple(
        LinkChanges(a, b, MILLISECOND * (5 + 400 * n + part), up=bool(part)) for n in range(5) for part in (0, 200)
    )
    job = replace(all_reduce(steps=110), compute=20 * MILLISECOND)
    specification = Specification(leaf_spine(), (job,), faults=faults)
    found = run(specification)
    found.assert_complete(specification)
    assert sum(link["lost"] for link in found.told["links"]) > 0


def test_a_host_whose_link_stays_down_is_named() -> None:
    faults = (LinkChanges(1, 4, 10 * MILLISECOND, up=False),)
    found = run(Specification(leaf_spine(), (all_reduce(steps=1000),), faults=faults))
    assert found.job["error"] == "rank 1 is dead: host 1 was not heard of"
    assert found.told["simulated"] == pytest.approx(0.01 + SILENCE, abs=0.1)


def test_a_link_that_is_down_for_less_ends_nothing() -> None:
    faults = (
        LinkChanges(1, 4, 10 * MILLISECOND, up=False),
        LinkChanges(1, 4, 4 * SECOND, up=True),
        LinkChanges(1, 4, 6 * SECOND, up=False),
        LinkChanges(1, 4, 9 * SECOND, up=True),
    )
    job = replace(all_reduce(steps=100), compute=100 * MILLISECOND)
    specification = Specification(leaf_spine(), (job,), faults=faults)
    found = run(specification)
    found.assert_complete(specification)
    assert found.told["simulated"] > 10


links = st.sampled_from([(0, 4), (3, 5), (4, 6), (4, 7), (5, 6), (5, 7)])
changes = st.builds(
    lambda link, at, up: LinkChanges(*link, at=at * MILLISECOND, up=up), links, st.integers(0, 60), st.booleans()
)
stops = st.builds(lambda host, at: HostStops(host, at * MILLISECOND, 8 * SECOND), st.integers(0, 3), st.integers(0, 60))
restarts = st.builds(
    lambda switch, at, away: SwitchDies(switch, at * MILLISECOND, back=(at + away) * MILLISECOND),
    st.integers(4, 7),
    st.integers(0, 60),
    st.sampled_from([0, 1, 5, 500]),
)


@settings(max_examples=tries(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    faults=st.lists(st.one_of(changes, changes, changes, restarts, stops), max_size=6),
    loss=st.sampled_from([0.0, 0.01, 0.1]),
    carrier=st.sampled_from([EXACT, LOSSY, replace(LOSSY, trim=True)]),
    algorithm=st.sampled_from(["direct", "ring", "stragglar", "grid", "switch"]),
    seed=st.integers(1, 1000),
)
def test_every_run_ends(
    faults: list[LinkChanges | HostStops | SwitchDies], loss: float, carrier: Gradlane, algorithm: str, seed: int
) -> None:
    fabric = leaf_spine().with_link(4, SPINE, loss=loss)
    carrier = carrier if algorithm == "direct" else EXACT
    job = replace(all_reduce(carrier, steps=6), algorithm=algorithm)
    specification = Specification(fabric, (job,), seed=seed, faults=tuple(faults), limit=30 * SECOND)
    found = run(specification)
    assert found.told["violations"] == []
    assert found.job["wrong"] == 0
    if found.job["error"]:
        assert found.job["error"].endswith(" was not heard of"), "never that it was not over in time"
        assert faults
        assert found.told["simulated"] < 20
    else:
        found.assert_complete(specification)


def strip(told: dict[str, Any]) -> dict[str, Any]:
    """Without how long it took."""
    return {key: value for key, value in told.items() if key != "wall"}


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    def once(seed: int) -> dict[str, Any]:
        return strip(run(replace(lossy_spine(0.01), seed=seed)).told)

    assert once(5) == once(5)
    assert once(5) != once(6)


def incast(carrier: Gradlane) -> Specification:
    """Eight hosts of two racks send to one at once."""
    fabric = fabrics.leaf_spine(2, 4, 2, RATE, RATE // 4, 32_000, 1000)
    job = replace(all_reduce(carrier, servers=1, size=800_000), members=tuple(range(8)))
    return Specification(fabric, (job,))


@pytest.mark.parametrize("trim", [False, True], ids=["drop", "trim"])
def test_switches_that_take_more_than_the_budget_are_seen(trim: bool) -> None:
    """The ledger counts what they take, so it would see it if they were wrong."""
    specification = incast(Gradlane(push=0.05, droppable=1.0, trim=trim, slots=4096))
    found = run(specification)
    found.assert_complete(specification)
    assert sum(count for switch in found.told["switches"] for *_, count in switch["drops"]) > 0
    told = document(specification)
    for policy in told["policies"]:
        policy["budget_shares"] = [["whole", "whole"], ["whole", "whole"]]
    violations = run_document(told)["violations"]
    assert any("; its budget is " in it for it in violations)


def test_switches_that_take_what_is_protected_are_seen() -> None:
    told = document(incast(Gradlane(push=0.05, droppable=0.2, slots=4096)))
    for policy in told["policies"]:
        for job in policy["jobs"]:
            job["precedences"] = job["precedences"] and [[0, 65535, 0, 255, 3]]
    violations = run_document(told)["violations"]
    assert any("took a protected slice" in it for it in violations)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "fire", "at": 1}, 'fault "fire": it must be host, switch or link'),
        ({"kind": "host", "host": 4, "at": 1, "named_after": 1}, "there is no host 4 that could stop"),
        ({"kind": "switch", "switch": 3, "at": 1}, "there is no switch 3 that could die"),
    ],
)
def test_faults_that_make_no_sense_are_refused(fault: dict[str, Any], said: str) -> None:
    told = document(Specification(leaf_spine(), (all_reduce(),)))
    with pytest.raises(SimulationError, match=said):
        run_document({**told, "faults": [fault]})
