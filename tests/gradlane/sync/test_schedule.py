# SPDX-License-Identifier: Apache-2.0
"""Schedules of groups: disjoint, complete, and mixing all workers' values in few steps, for any number of workers."""

import math

import numpy as np
import pytest

from gradlane.sync.schedule import SCHEDULES, Schedule, mixing_matrix

SIZES = range(2, 65)


def product(schedule: Schedule, start: int) -> np.ndarray:
    """The mixing matrix of one period from that step on, by what each worker finds out about its group."""
    total = np.eye(schedule.size)
    for step in range(start, start + schedule.period):
        groups = {schedule.group(step, worker) for worker in range(schedule.size)}
        total = mixing_matrix(tuple(groups), schedule.size) @ total
    return total


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("size", SIZES)
def test_groups_are_disjoint_cover_all_workers_and_are_the_same_at_all_members(name: str, size: int) -> None:
    schedule = SCHEDULES[name](size)
    for step in range(2 * len(schedule.partitions)):
        groups = [schedule.group(step, worker) for worker in range(size)]
        assert sorted(worker for group in set(groups) for worker in group) == list(range(size))
        for worker, group in enumerate(groups):
            assert worker in group
            assert list(group) == sorted(group)
            assert len(group) == 1 or group in schedule.groups(worker)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("size", SIZES)
def test_a_period_from_any_step_on_is_doubly_stochastic_and_reaches_everyone(name: str, size: int) -> None:
    schedule = SCHEDULES[name](size)
    for start in range(len(schedule.partitions)):
        matrix = product(schedule, start)
        np.testing.assert_allclose(matrix.sum(axis=0), 1)
        np.testing.assert_allclose(matrix.sum(axis=1), 1)
        assert (matrix > 0).all()
        # What workers differ by shrinks, at the least by a tenth in each step.
        assert np.linalg.norm(matrix - 1 / size, 2) < 0.9**schedule.period


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("size", [2, 4, 8, 16, 32, 64])
def test_a_period_of_a_power_of_two_is_an_exact_all_reduce(name: str, size: int) -> None:
    schedule = SCHEDULES[name](size)
    for start in range(len(schedule.partitions)):
        np.testing.assert_allclose(product(schedule, start), np.full((size, size), 1 / size))


@pytest.mark.parametrize("size", SIZES)
def test_how_large_groups_are_and_how_soon_all_have_mixed(size: int) -> None:
    grid, pairs = SCHEDULES["grid"](size), SCHEDULES["pairs"](size)
    root = math.sqrt(size)
    assert max(len(group) for partition in grid.partitions for group in partition) <= max(math.sqrt(2) * root, 2)
    assert grid.period <= 3
    if len({len(group) for group in grid.partitions[0]}) == 1:
        assert grid.period == len(grid.partitions)  # a full grid is an all-reduce
    for partition in pairs.partitions:
        assert sorted(len(group) for group in partition) == [2] * (size // 2 - size % 2) + [3] * (size % 2)
    assert pairs.period <= math.ceil(math.log2(size))
    assert len(pairs.partitions) == int(math.log2(size))


def test_a_worker_by_itself_is_in_no_group() -> None:
    for make in SCHEDULES.values():
        assert make(1).groups(0) == []
        assert make(1).group(5, 0) == (0,)
        assert make(1).period == 1


def test_a_schedule_that_keeps_workers_apart_has_no_period() -> None:
    with pytest.raises(ValueError, match="never hear of one another"):
        _ = Schedule(4, (((0, 1), (2, 3)),)).period
