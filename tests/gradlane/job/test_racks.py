# SPDX-License-Identifier: Apache-2.0
"""Racks: what the job file says of them, and which algorithm the model chooses where the core between them is thin."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane import job
from gradlane.job import JobError, costs
from gradlane.job.costs import Conditions, choose, seconds
from gradlane.job.plans import Plan, Situation, plain
from gradlane.job.racks import Racks, rows
from tests.gradlane.job.texts import ranks
from tests.support.grids import rows_of

MB = 1 << 20
NET = Conditions(rate=10e9, latency=10e-6)


def in_racks(count: int, members: int, oversubscription: float = 1.0) -> Racks:
    return Racks(tuple(rack for rack in range(count) for _ in range(members)), oversubscription)


def with_racks(of: list[int | None], transport: str = "") -> str:
    """A job file whose workers are in these racks."""
    found = ranks(len(of), transport)
    for rank, rack in enumerate(of):
        if rack is not None:
            found = found.replace(f"rank = {rank}\n", f"rank = {rank}\nrack = {rack}\n", 1)
    return found


@given(st.lists(st.integers(0, 9), min_size=1, max_size=200))
def test_the_core_makes_the_rows_that_the_model_counts_with(of: list[int]) -> None:
    assert rows(len(of), Racks(tuple(of))) == [len(row) for row in rows_of(len(of), sorted(of))]


def test_the_file_says_in_which_rack_workers_are() -> None:
    parsed = job.parse(with_racks([3, 0, 3, 1], "oversubscription = 2.5"), "j.toml")
    assert parsed.racks == Racks((3, 0, 3, 1), 2.5)
    assert job.parse(with_racks([0, 0, 1]), "j.toml").racks == Racks((0, 0, 1), 1.0)
    assert job.parse(ranks(3, ""), "j.toml").racks is None
    others = (with_racks([3, 0, 3, 2], "oversubscription = 2.5"), with_racks([3, 0, 3, 1], "oversubscription = 2"))
    assert parsed.digest not in {job.parse(it, "j.toml").digest for it in others}, "ranks would make other rows"


@pytest.mark.parametrize(
    ("of", "transport", "key", "says"),
    [
        ([0, None, 1], "", "worker[1].rack", "each worker"),
        ([None, None], "oversubscription = 2", "transport.oversubscription", "`rack`"),
        ([0, 65536], "", "worker[1].rack", "65535"),
        ([0, 1], "oversubscription = 0", "transport.oversubscription", "above 0"),
        ([0, 1], "oversubscription = 2000", "transport.oversubscription", "1000"),
    ],
)
def test_mistakes_are_named(of: list[int | None], transport: str, key: str, says: str) -> None:
    with pytest.raises(JobError) as caught:
        job.parse(with_racks(of, transport), "j.toml")
    assert key in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("count", "members", "times", "chosen"),
    [(4, 8, 4.0, "ring"), (9, 16, 4.0, "grid"), (2, 16, 8.0, "ring")],
)
def test_where_the_core_is_thin_tensors_go_by_racks(count: int, members: int, times: float, chosen: str) -> None:
    """Directly the core carries all that leaves racks; else their sums, so the hosts' links are the limit again."""
    thin = replace(NET, racks=in_racks(count, members, times))
    workers, size = count * members, 64 * MB
    assert seconds("direct", size, workers, thin) == pytest.approx(
        2 * (1 - 1 / count) * times * size * 8 / 10e9, rel=0.05
    )
    assert seconds("grid", size, workers, thin) == pytest.approx(2 * size * 8 / 10e9, rel=0.1)
    choice = choose(4 * MB, workers, thin)
    assert choice.algorithm == chosen
    assert f"in {count} racks, oversubscription {times:g}" in choice.reason
    assert choose(size, workers, thin).algorithm != "direct"


def test_where_rows_are_short_and_the_core_very_thin_a_ring_is_the_best() -> None:
    """Two hosts in a rack add up to half of what they have."""
    thin = replace(NET, racks=in_racks(2, 16, 60.0))
    assert choose(64 * MB, 32, thin).algorithm == "ring"
    assert costs.between_racks("ring", 32, thin.racks) < costs.between_racks("grid", 32, thin.racks)


def test_where_it_is_not_thin_racks_change_nothing_but_rows() -> None:
    wide = replace(NET, racks=in_racks(4, 8, 1.0))
    for size in (MB, 4 * MB, 64 * MB):
        assert seconds("direct", size, 32, wide) == seconds("direct", size, 32, NET)
        assert seconds("ring", size, 32, wide) == seconds("ring", size, 32, NET)


def test_of_a_group_its_own_racks_count() -> None:
    """Of 32 hosts the first 8 are in one rack."""
    thin = replace(NET, racks=in_racks(4, 8, 4.0))
    inside, one_of_each = thin.among(range(8)), thin.among(range(0, 32, 8))
    assert seconds("direct", 64 * MB, 8, inside) == seconds("direct", 64 * MB, 8, NET)
    assert seconds("direct", 64 * MB, 4, one_of_each) > 3 * seconds("direct", 64 * MB, 4, NET)


def test_what_tolerates_loss_is_direct_whatever_the_core() -> None:
    thin = replace(NET, racks=in_racks(4, 8, 4.0))
    assert choose(64 * MB, 32, thin, tolerance=0.01).algorithm == "direct"


def test_plans_know_of_a_thin_core_too() -> None:
    even = replace(NET, contention=0.0)
    thin, unknown = Situation(replace(even, racks=in_racks(4, 8, 4.0)), 32), Situation(even, 32)
    assert plain(thin).algorithm == "ring"
    direct = Plan((1,) * 32)
    grid = replace(direct, algorithm="grid")
    assert thin.by(direct, 64 * MB) > 2.5 * thin.by(grid, 64 * MB)
    assert unknown.by(direct, 64 * MB) < 1.1 * unknown.by(grid, 64 * MB)
