# SPDX-License-Identifier: Apache-2.0
"""The choice of a plan: what is fastest by the bytes at the ports, and when it changes."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.job.costs import GAIN, Conditions, choose
from gradlane.job.links import LEAST_RATE, MOST_RATE
from gradlane.job.ownership import UNITS
from gradlane.job.plans import ALGORITHMS, Plan, Situation, better, parse, plain
from tests.support.effort import tries

NET = Conditions(rate=1e9, latency=50e-6)
BYTES = 10**8
WIRE = BYTES * 8 / 1e9  # s


def situation(
    workers: int,
    late: Mapping[int, float] | None = None,
    rates: Mapping[int, float] | None = None,
    contention: float = 0.03,
    **more: Any,
) -> Situation:
    given: dict[str, Any] = {"free": BYTES, **more}
    return Situation(replace(NET, contention=contention), workers, late=late, rates=rates, **given)


def chosen(of: Situation) -> Plan:
    """From the plain plan on."""
    found = better(of, plain(of))
    return plain(of) if found is None else found.plan


@pytest.mark.parametrize("workers", [2, 3, 4, 8, 16, 64])
@pytest.mark.parametrize("nbytes", [1, 1000, 10**5, 10**6, 10**7, 10**9])
def test_without_a_straggler_tensors_are_reduced_as_in_any_other_job(workers: int, nbytes: int) -> None:
    of = situation(workers)
    plan = plain(of)
    by = plan.algorithm if nbytes >= plan.least else "direct"
    other = choose(nbytes, workers, of.conditions)
    # A plan has one algorithm beside direct: where a ring is best for the largest tensors, none goes by a grid.
    assert by == other.algorithm or (other.algorithm, plan.algorithm, by) == ("grid", "ring", "direct")
    assert plan.weights == (1,) * workers
    assert better(of, plan) is None


@pytest.mark.parametrize("workers", [3, 4, 8, 16, 64])
def test_a_late_worker_owns_nothing_and_gets_it_back(workers: int) -> None:
    of = situation(workers, {1: 2 * WIRE})
    plan = chosen(of)
    assert plan.algorithm == "direct"
    assert plan.weights[1] == 0
    assert sum(plan.weights) == UNITS
    assert better(of, plan) is None
    back = better(situation(workers), plan)
    assert back is not None
    assert back.plan == plain(of)


@pytest.mark.parametrize("workers", [4, 8, 16])
def test_where_a_port_talks_to_one_peer_at_a_time_stragglar_goes_without_it(workers: int) -> None:
    of = situation(workers, {1: 2 * WIRE}, contention=0.5)
    plan = chosen(of)
    assert (plan.algorithm, plan.straggler) == ("stragglar", 1)
    merge = (workers - 2 + math.ceil(math.log2(workers))) / (workers - 1) * WIRE
    assert of.seconds(plan) == pytest.approx(merge, rel=0.02)
    back = better(situation(workers, contention=0.5), plan)
    assert back is not None
    assert back.plan.algorithm == "ring"


def test_of_several_stragglers_the_last_is_left_out_and_the_others_may_be_late_as_well() -> None:
    of = situation(8, {2: WIRE, 5: 3 * WIRE}, contention=0.5)
    assert chosen(of).straggler == 5
    near = situation(8, {2: 3 * WIRE, 5: 3 * WIRE}, contention=0.5)
    merge = 9 / 7 * WIRE
    reduce = 6 / 7 * WIRE / (1 - 0.5 * (1 - 1 / 6))
    assert near.seconds(Plan((1,) * 8, "stragglar", 5)) == pytest.approx(merge + reduce, rel=0.02)


def test_the_slower_link_gets_less_and_nobody_a_ring() -> None:
    of = situation(4, rates={3: 5e8})
    plan = chosen(of)
    assert plan.algorithm == "direct"
    assert plan.weights[3] == 0
    assert of.seconds(plan) == pytest.approx(2 * WIRE, rel=0.03)
    assert of.seconds(plain(of)) == pytest.approx(3 * WIRE, rel=0.03)


@settings(max_examples=tries(30), deadline=None)
@given(
    late=st.lists(st.sampled_from([0.0, 0.0, 0.3, 1.0]), min_size=3, max_size=3),
    rates=st.lists(st.sampled_from([1e9, 1e9, 5e8, 8e8, 2e8]), min_size=3, max_size=3),
)
def test_no_weights_in_steps_of_a_twentieth_are_better(late: list[float], rates: list[float]) -> None:
    """Counted by itself: what each owner sends and receives, and when it may."""
    last = max(late)

    def end(shares: tuple[float, ...]) -> float:
        worst = 0.0
        for k, share in enumerate(shares):
            wire = WIRE * 1e9 / rates[k]
            crosses = (1 - share) + 2 * share  # own contributions; results to both others
            received = 0.0  # contributions as they come, and the results after the last
            for at, part in sorted([*((late[j], share) for j in range(3) if j != k), (last, 1 - share)]):
                received = max(received, at) + part * wire
            worst = max(worst, late[k] + crosses * wire, last + 2 * share * wire, received)
        return worst

    grid = [(a / 20, b / 20, (20 - a - b) / 20) for a in range(21) for b in range(21 - a)]
    of = Situation(
        Conditions(1e9, 0.0, contention=0.0), 3, fixed=BYTES,
        late={k: it for k, it in enumerate(late) if it}, rates={k: it for k, it in enumerate(rates) if it != 1e9},
    )  # fmt: skip
    (found,) = [plan for plan in of.plans() if plan.algorithm == "direct"]
    shares = tuple(weight / sum(found.weights) for weight in found.weights)
    assert end(shares) <= min(map(end, grid)) * (1 + 2 / UNITS)


@settings(max_examples=tries(40), deadline=None)
@given(
    workers=st.integers(2, 16),
    late=st.dictionaries(st.integers(0, 15), st.floats(0.005, 3), max_size=3),
    rates=st.dictionaries(st.integers(0, 15), st.floats(1e7, 8e8), max_size=3),
    contention=st.floats(0, 0.9),
    fixed=st.integers(0, 10**9),
    free=st.integers(0, 10**9),
)
def test_a_change_always_saves_time_and_is_not_followed_by_another(
    workers: int, late: dict[int, float], rates: dict[int, float], contention: float, fixed: int, free: int
) -> None:
    of = situation(
        workers,
        {rank: it for rank, it in late.items() if rank < workers},
        {rank: it for rank, it in rates.items() if rank < workers},
        contention,
        fixed=fixed,
        free=free,
    )
    before = plain(of)
    found = better(of, before)
    if found is None:
        return
    assert of.seconds(before) > of.seconds(found.plan) * (1 + GAIN)
    assert found.times == pytest.approx(of.seconds(before) / of.seconds(found.plan))
    assert better(of, found.plan) is None
    assert parse(found.plan.packed(), workers, workers) == found.plan


@settings(max_examples=tries(100), deadline=None)
@given(
    workers=st.integers(1, 8),
    servers=st.integers(0, 3),
    late=st.dictionaries(st.integers(0, 7), st.floats(0.005, 3), max_size=2),
    rates=st.dictionaries(st.integers(0, 10), st.floats(LEAST_RATE, MOST_RATE), max_size=3),
    fixed=st.sampled_from([0, 1, 10**8]),
    free=st.sampled_from([0, 1, 10**8]),
    latency=st.sampled_from([0.0, 50e-6]),
    multicast=st.booleans(),
    algorithm=st.sampled_from(ALGORITHMS),
    data=st.data(),
)
def test_from_any_plan_there_is_a_way_whatever_there_is_to_reduce(
    workers: int, servers: int, late: dict[int, float], rates: dict[int, float], fixed: int, free: int, latency: float,
    multicast: bool, algorithm: str, data: st.DataObject,
) -> None:  # fmt: skip
    """Also where all tensors have been forgotten."""
    of = Situation(
        Conditions(1e9, latency), workers, fixed, free, {rank: it for rank, it in late.items() if rank < workers},
        {rank: it for rank, it in rates.items() if rank < workers + servers}, servers, multicast, choice=not servers,
    )  # fmt: skip
    weights = data.draw(st.lists(st.integers(0, 9), min_size=of.owners, max_size=of.owners).filter(any))
    current = Plan(tuple(weights), "direct" if servers or workers < 3 else algorithm, workers - 1)
    found = better(of, current)
    if found is None:
        return
    assert math.isfinite(found.times)
    assert parse(found.plan.packed(), of.owners, workers) == found.plan
    assert better(of, found.plan) is None


@pytest.mark.parametrize(("workers", "free"), [(4, 0), (1, BYTES)])
def test_where_nothing_takes_time_nothing_changes(workers: int, free: int) -> None:
    of = replace(situation(workers, free=free), conditions=Conditions(1e9, 0.0))
    plan = Plan((2,) * workers)
    assert plan != plain(of)
    assert better(of, plan) is None
    assert better(replace(of, late={0: 0.3}), plan) is None


def test_a_little_gain_is_none() -> None:
    assert better(situation(8, {1: 1e-9}), plain(situation(8))) is None
    assert better(situation(8, rates={1: 9.9e8}), plain(situation(8))) is None


def test_what_tolerates_loss_is_always_direct_and_counts_by_its_bytes() -> None:
    of = situation(8, {1: 2 * WIRE}, contention=0.5, fixed=BYTES, free=0)
    assert chosen(of).algorithm == "direct"
    mostly = situation(8, {1: 2 * WIRE}, contention=0.5, fixed=BYTES // 10)
    assert chosen(mostly).algorithm == "stragglar"


def test_without_a_choice_there_are_only_direct_plans() -> None:
    for more in ({"servers": 2}, {"multicast": True}, {}):
        of = situation(8, {1: 2 * WIRE}, {8: 1e8}, 0.5, choice=False, **more)
        assert {plan.algorithm for plan in of.plans()} == {"direct"}
    servers = situation(8, rates={9: 5e8}, servers=2, choice=False)
    assert chosen(servers).weights == (6667, 3333)


def test_stragglar_takes_no_more_than_it_can() -> None:
    of = situation(65, {1: 2 * WIRE}, contention=0.9)
    assert {plan.algorithm for plan in of.plans()} == {"direct", "ring", "grid"}


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [1, 1]}, {"weights": [0, 0, 0]}, {"weights": [1, 1, -1]}, {"weights": [1, 1, 1 << 32]},
        {"algorithm": "tree"}, {"straggler": 3}, {"straggler": -1}, {"least": -1}, {"least": 1 << 60},
        {"generation": -1}, {"generation": 1 << 32},
    ],
)  # fmt: skip
def test_plans_of_others_are_checked(change: dict[str, Any]) -> None:
    good = {"weights": [1, 1, 1], "algorithm": "ring", "straggler": 2, "least": 5, "generation": 7}
    assert parse(good, 3, 3) == Plan((1, 1, 1), "ring", 2, 5, 7)
    with pytest.raises(ValueError, match="for 3 workers with 3 owners"):
        parse({**good, **change}, 3, 3)


def test_a_reason_says_what_was_compared() -> None:
    found = better(situation(4, {1: 2 * WIRE}), plain(situation(4)))
    assert found is not None
    assert found.compared.startswith("direct 8")
    assert found.compared.endswith("ms, ring 1200.2 ms, grid 1220.2 ms for 100000000 bytes")
