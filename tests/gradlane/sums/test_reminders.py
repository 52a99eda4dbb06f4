# SPDX-License-Identifier: Apache-2.0
"""What only some have got of a switch that has lost it, all get: who has it reminds the switches, and no host sums.

Each rule of that is then left out, and workers wait until hosts take over.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane import wire
from tests.gradlane.sums.fabric import SWITCHES, Packet
from tests.gradlane.sums.oracle import Layout
from tests.gradlane.sums.schedules import ECHO, FALSE_ALARM, FORGE, MOVE, RESTART, Weather, layouts, play, weathers
from tests.gradlane.sums.summing_job import SummingJob
from tests.gradlane.sums.test_closing_mutants import (
    HeedsNobody,
    begun,
    carry,
    send,
    spines_restart,
    tree_moves,
)
from tests.support.effort import tries
from tests.support.sum_switch import Contributor, Slot, SumHeader, SumSwitch
from tests.support.sum_worker import Worker


class HeedsNoResults(SumSwitch):
    def reminds(self, new: Slot, summed: SumHeader, row: Contributor) -> bool:
        return not row.fabric and super().reminds(new, summed, row)


class HeedsPartialSums(SumSwitch):
    def reminds(self, new: Slot, summed: SumHeader, row: Contributor) -> bool:
        return row.beneath != row.all and not row.above and summed.members & row.member != 0


class RemindsNobody(Worker):
    def reminders(self, tensor: int, step: int) -> list[bytes]:
        return []


class WantsAnswers(Worker):
    def reminders(self, tensor: int, step: int) -> list[bytes]:
        def unsigned(datagram: bytes) -> bytes:
            head, rest = datagram[: wire.HEADER_BYTES], datagram[wire.HEADER_BYTES :]
            return head + replace(SumHeader.unpack(rest), members=0).pack() + rest[wire.SUM_BYTES :]

        return [unsigned(datagram) for datagram in super().reminders(tensor, step)]


failures = st.lists(weathers | st.sampled_from([RESTART, MOVE, FALSE_ALARM, FORGE, ECHO]), min_size=3, max_size=8)


@settings(max_examples=tries(20), deadline=None)
@given(layouts, failures)
def test_whatever_switches_forget_and_wherever_slices_move_no_host_sums(layout: Layout, schedule: list[Weather | str]):
    """As long as nobody may be missing: then contributions are the same to a switch that has forgotten them."""
    assert play(replace(layout, push=Fraction(0)), schedule).given_up == 0


def comes(job: SummingJob, packet: Packet, s: int) -> bool:
    """Of slice 1 no result comes to another leaf than the first."""
    others = set(job.fabric.homes) - {job.fabric.homes[0]}
    return s != 1 or packet.by not in job.fabric.spines or packet.to not in others


def known_to_one_leaf(
    trouble: Callable[[SummingJob], None],
    switch: Callable[[], SumSwitch] = SumSwitch,
    worker: Callable[..., Worker] = Worker,
    shape: str = "leaf-spine",
    push: Fraction = Fraction(1, 2),
) -> SummingJob:
    """The result of slice 1 reaches one leaf alone; then its root forgets it, or another one is to have it."""
    job = begun(switch, worker, shape=shape, push=push)
    send(job, 4)
    carry(job, lambda packet, s: comes(job, packet, s))
    trouble(job)
    job.failures += 1
    job.settle(2)
    return job


@pytest.mark.parametrize("shape", ["leaf-spine", "three tiers"])
@pytest.mark.parametrize("trouble", [spines_restart, tree_moves])
@pytest.mark.parametrize("push", [Fraction(0), Fraction(1, 2)])
def test_a_root_gets_from_a_leaf_what_it_has_lost(
    shape: str, trouble: Callable[[SummingJob], None], push: Fraction
) -> None:
    assert known_to_one_leaf(trouble, shape=shape, push=push).given_up == 0


@pytest.mark.parametrize("trouble", [spines_restart, tree_moves])
@pytest.mark.parametrize(
    ("switch", "worker", "shape"),
    [
        (HeedsNobody, Worker, "leaf-spine"),
        (SumSwitch, RemindsNobody, "leaf-spine"),
        (SumSwitch, WantsAnswers, "leaf-spine"),
        (HeedsNoResults, Worker, "three tiers"),
    ],
)
def test_without_a_rule_hosts_take_over(
    trouble: Callable[[SummingJob], None],
    switch: Callable[[], SumSwitch],
    worker: Callable[..., Worker],
    shape: str,
) -> None:
    assert known_to_one_leaf(trouble, switch, worker, shape=shape).given_up == 1


def known_to_one_worker(worker: Callable[..., Worker]) -> SummingJob:
    """Of a single switch, which then forgets it."""
    job = begun(worker=worker, push=Fraction(0))
    send(job, 4)
    carry(job, lambda packet, s: s != 1 or packet.to in (0, SWITCHES))
    job.restart()
    job.settle(2)
    return job


def test_a_switch_gets_from_workers_what_it_has_lost() -> None:
    assert known_to_one_worker(Worker).given_up == 0
    assert known_to_one_worker(RemindsNobody).given_up == 1


def partial_again(switch: Callable[[], SumSwitch]) -> SummingJob:
    """In three tiers a leaf restarts when the switch above it has the result, and one worker there lacks it."""
    job = begun(switch, shape="three tiers", push=Fraction(0))
    send(job, 4)
    carry(job, lambda packet, s: s != 1 or packet.to != 0)
    job.restart(job.fabric.homes[0])
    job.settle(2)
    return job


def test_a_leaf_that_has_lost_a_result_has_it_from_the_switch_above() -> None:
    """What it sends up is a partial sum, and no reminder, though who is beneath is in it."""
    assert partial_again(SumSwitch).given_up == 0
    assert partial_again(HeedsPartialSums).given_up == 1
