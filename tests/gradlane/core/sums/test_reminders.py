# SPDX-License-Identifier: Apache-2.0
"""A switch loses what some ranks have the sums of: these remind it, and nobody need sum by hosts."""

from collections import Counter

import pytest

from gradlane.wire import Header, Kind
from tests.gradlane.core.sums.summing import GENERATION, Summed, Tensor
from tests.gradlane.core.sums.test_fall_back import Training, slices_of
from tests.gradlane.core.sums.test_trees import Treed
from tests.support.sum_switch import SumHeader


def stuck(cluster: Summed, slices: int, lost: int, step: int = 3) -> Training:
    """Rank 0 alone has that step; of its last slices all others lack the sums. The switches have forgotten them all."""
    tensor = Tensor(0, [slices * cluster.per_slice])
    training = Training(cluster, [tensor], 5)
    assert slices_of(cluster, tensor) == slices
    numbers = range(step * slices - lost, step * slices)
    cluster.lost_results = {(rank, number) for rank in range(1, cluster.workers) for number in numbers}
    assert not cluster.run_for(300_000, training.go_on)
    assert [row[0] for row in training.step] == [step + 1, *[step] * (cluster.workers - 1)]
    cluster.lost_results.clear()
    return training


def reminders(cluster: Summed, since: int) -> Counter[tuple[int, int]]:
    """By rank and number, those that have been sent."""

    def is_one(rank: int, header: Header, summed: SumHeader) -> bool:
        return summed.members == 1 << rank and header.kind == Kind.REPAIR

    return Counter(
        (rank, header.message) for rank, header, summed in cluster.sent[since:] if is_one(rank, header, summed)
    )


def no_hosts(cluster: Summed, training: Training) -> None:
    """All goes on, by the switch alone."""
    assert cluster.run_for(200_000, training.go_on)
    training.check([2, 3, 4, 5])
    assert [cluster.statistics(rank).sum_reruns for rank in range(cluster.workers)] == [0] * cluster.workers


@pytest.mark.parametrize("slices", [3, 40])
def test_a_switch_that_was_restarted_is_told_again_of_the_last_window_and_twice(slices: int) -> None:
    cluster = Summed(3, window=4)
    training = stuck(cluster, slices, 3)
    cluster.restart()
    assert not cluster.run_for(300_000, training.go_on), "nobody tells it"
    since = len(cluster.sent)
    assert training.give_up(GENERATION, by_switch=True) == [(0, 3)]
    no_hosts(cluster, training)
    sent = reminders(cluster, since)
    first = 2 * slices + max(0, slices - 4)
    assert {number: count for (rank, number), count in sent.items() if rank == 0} == dict.fromkeys(
        range(first, 3 * slices), 2
    )
    assert all(number < 3 * slices - 3 for rank, number in sent if rank), "what they have no sums of they repeat anyway"


def test_in_the_middle_of_a_step_the_last_sums_there_are_told_again() -> None:
    slices, step, window = 40, 3, 4
    cluster = Summed(3, window=window)
    training = Training(cluster, [Tensor(0, [slices * cluster.per_slice])], 5)
    lost = range((step - 1) * slices + 10, (step - 1) * slices + 10 + window)  # none is sent that comes after them
    cluster.lost_results = {(rank, number) for rank in (1, 2) for number in lost}
    assert not cluster.run_for(300_000, training.go_on)
    assert [row[0] for row in training.step] == [step] * 3
    cluster.lost_results.clear()
    cluster.restart()
    since = len(cluster.sent)
    assert training.give_up(GENERATION, by_switch=True) == [(0, step)]
    no_hosts(cluster, training)
    sent = reminders(cluster, since)
    assert {number: count for (rank, number), count in sent.items() if rank == 0} == dict.fromkeys(lost, 2)


def test_a_reminder_says_what_was_contributed_and_that_no_answer_is_needed() -> None:
    cluster = Summed(2, window=4)
    training = stuck(cluster, 6, 1)
    before = {header.message: (header, summed) for rank, header, summed in cluster.sent if rank == 0}
    since = len(cluster.sent)
    training.give_up(GENERATION, by_switch=True)
    assert cluster.run_for(200_000, training.go_on)
    again = [(header, summed) for rank, header, summed in cluster.sent[since:] if (rank, summed.members) == (0, 1)]
    assert len(again) == 8
    for header, summed in again:
        first, its = before[header.message]
        assert (header.step, header.tensor, header.slice, header.length) == (
            first.step, first.tensor, first.slice, first.length
        )  # fmt: skip
        assert (summed.generation, summed.slot, summed.exponent, summed.epoch) == (
            its.generation, its.slot, its.exponent, its.epoch
        )  # fmt: skip


def test_where_workers_may_be_missing_two_windows_are_told() -> None:
    """Whoever is missing in a sum may lack those of the window before it."""
    cluster = Summed(3, window=4, loss=0.1)
    training = stuck(cluster, 40, 3)
    since = len(cluster.sent)
    training.give_up(GENERATION, by_switch=True)
    assert cluster.run_for(300_000, training.go_on)
    assert {number for rank, number in reminders(cluster, since) if rank == 0} == set(range(3 * 40 - 8, 3 * 40))


def test_of_a_later_step_nobody_is_reminded() -> None:
    """Nor of one that this rank has no sums of, nor of a tensor that there is not."""
    cluster = Summed(2, window=4)
    training = stuck(cluster, 6, 1)
    since = len(cluster.sent)
    for rank in range(2):
        cluster.halt(rank)
    for rank in range(2):
        assert cluster.resume(rank, GENERATION, True, [(0, 2), (0, 4), (7, 3), (9999, 1)]) == 0
    cluster.run_for(100_000, training.go_on)
    assert not reminders(cluster, since)
    no_hosts(cluster, training)


@pytest.mark.parametrize("shape", ["leaf-spine", "three tiers"])
@pytest.mark.parametrize("trouble", ["restarted", "moved"])
@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_roots_that_have_lost_a_result_or_never_had_it_get_it_from_a_leaf(
    shape: str, trouble: str, loss: float
) -> None:
    """With a loss budget, too: the leaves remember what they have closed."""
    cluster = Treed(shape, 4, window=4, loss=loss)
    training = Training(cluster, [Tensor(0, [6 * cluster.per_slice])], 5)
    fabric = cluster.fabric
    home, *others = sorted(set(fabric.homes))
    cluster.lost_at = {(leaf, number) for leaf in others for number in (16, 17)}  # the last ones of step 3
    assert not cluster.run_for(300_000, training.go_on)
    assert [row[0] for row in training.step] == [4 if at == home else 3 for at in fabric.homes]
    cluster.lost_at.clear()
    for at in fabric.spines if trouble == "restarted" else ():
        fabric.restart(at)
    for bucket in range(16 if trouble == "moved" else 0):
        fabric.move(list(fabric.switches), bucket, bucket + 1)
    assert not cluster.run_for(300_000, training.go_on), "nobody tells them"
    assert training.give_up(GENERATION, by_switch=True) == [(0, 3)]
    no_hosts(cluster, training)
