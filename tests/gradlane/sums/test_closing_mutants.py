# SPDX-License-Identifier: Apache-2.0
"""Each rule of closing and of trees is needed: without it a slice has two sums, somebody waits for ever, and so on."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from gradlane import wire
from tests.gradlane.sums.fabric import BUCKETS, SWITCHES, Packet
from tests.gradlane.sums.oracle import Layout, Wrong
from tests.gradlane.sums.schedules import rough, tolerant
from tests.gradlane.sums.summing_job import SummingJob
from tests.gradlane.sums.test_mutants import breaks
from tests.support.sum_stream import Step, Stream
from tests.support.sum_switch import Contributor, Slot, SumHeader, SumSwitch
from tests.support.sum_worker import Worker


class ClosesWhileOthersAreMissing(SumSwitch):
    def closed(self, slot: Slot, summed: SumHeader, row: Contributor) -> Slot:
        return replace(slot, covered=row.beneath) if summed.members and not row.fabric else slot


class IsARootEverywhere(SumSwitch):
    def is_final(self, slot: Slot, row: Contributor) -> bool:
        return slot.covered & row.beneath == row.beneath


class KnowsNoEpoch(SumSwitch):
    def is_outdated(self, summed: SumHeader, row: Contributor) -> bool:
        return False


class AddsToWhatIsComplete(SumSwitch):
    def is_in(self, covers: int, slot: Slot) -> bool:
        return slot.members & covers != 0


class HeedsNobody(SumSwitch):
    def reminds(self, new: Slot, summed: SumHeader, row: Contributor) -> bool:
        return False


class SeesNobody(Worker):
    def may_send(self, stream: Stream, s: int) -> bool:
        stream.seen = [1 << 60 for _ in stream.seen]
        return super().may_send(stream, s)


class LeavesOutWhoIsNotThere(Worker):
    def was_there(self, step: Step, s: int, rank: int) -> bool:
        return True


class LeavesOutForAWholeWindow(Worker):
    def was_there(self, step: Step, s: int, rank: int) -> bool:
        return any(not missing >> rank & 1 for missing in step.missing.values())


class CountsNoBudget(Worker):
    def has_budget(self, stream: Stream, step: Step, s: int, rank: int) -> bool:
        return True

    def is_over_budget(self, stream: Stream, step: Step, s: int, missing: int) -> bool:
        return False


class CountsOnlyResults(CountsNoBudget):
    def has_budget(self, stream: Stream, step: Step, s: int, rank: int) -> bool:
        return sum(step.missing.get(k, 0) >> rank & 1 for k in stream.message(s)) < self.budget(stream, s)


class ClosesWhatItSentWithoutAnEpoch(Worker):
    def is_closable(self, step: Step, s: int) -> bool:
        return True

    def repair(self, tensor: int, s: int, may_miss: int = 0) -> bytes:
        step = self.streams[tensor].now
        assert step
        step.epochs[s] = self.epoch
        return super().repair(tensor, s, may_miss)


class NamesTheLatestEpoch(Worker):
    def receive(self, datagram: bytes) -> bool:
        taken = super().receive(datagram)
        if taken:
            self.epoch = SumHeader.unpack(datagram[wire.HEADER_BYTES :]).epoch
        return taken

    def repair(self, tensor: int, s: int, may_miss: int = 0) -> bytes:
        step = self.streams[tensor].now
        assert step
        step.epochs[s] = self.epoch if step.epochs[s] else 0
        return super().repair(tensor, s, may_miss)


class OwesNothing(Worker):
    def owe(self, stream: Stream, step: Step, s: int) -> None:
        pass


class GivesAllAgain(Worker):
    def of_rerun(self, tensor: int, step: int, missing: object) -> list[list[int]]:
        return self.kept(tensor, step).integers


class AgreesOnNothing(Worker):
    def missing_in(self, tensor: int, step: int) -> list[int]:
        return [0 for _ in super().missing_in(tensor, step)]


@pytest.mark.parametrize("switch", [ClosesWhileOthersAreMissing, IsARootEverywhere])
def test_every_rule_of_the_switches_is_needed(switch: type[SumSwitch]):
    with pytest.raises(Wrong):
        breaks(rough, switch, Worker, tolerant)


@pytest.mark.parametrize(
    "worker",
    [SeesNobody, LeavesOutWhoIsNotThere, LeavesOutForAWholeWindow, OwesNothing],
)
def test_every_rule_of_the_workers_is_needed(worker: type[Worker]):
    with pytest.raises(Wrong):
        breaks(rough, SumSwitch, worker, tolerant)


def begun(
    switch: Callable[[], SumSwitch] = SumSwitch, worker: Callable[..., Worker] = Worker, **layout: object
) -> SummingJob:
    """All have begun the first step that the switch sums: three workers, four slices, each may be missing in two."""
    job = SummingJob(
        replace(Layout(3, window=4, partitions=((4,),), push=Fraction(1, 2)), **layout),  # pyright: ignore
        switch, worker,
    )  # fmt: skip
    for rank in range(3):
        job.begin(rank, 0, 2)
    for rank in range(3):
        job.by_hosts(rank, 0)
        job.begin(rank, 0, 2)
    return job


LEFT_OUT, LOYAL, CLOSER = range(3)  # of that step


def everything(packet: Packet, s: int) -> bool:
    return True


def carry(job: SummingJob, wanted: Callable[[Packet, int], bool] = everything) -> None:
    """What is on its way comes or, unless it is `wanted`, is lost; said by packet and slice."""
    while job.network:
        packet = job.network[0]
        job.deliver(0, lost=not wanted(packet, wire.Header.unpack(packet.datagram).slice))


def send(job: SummingJob, slices: int) -> None:
    """All workers send so many."""
    for rank in range(3):
        for _ in range(slices):
            job.send(rank, 0)


def close(job: SummingJob, s: int, left_out: int = LEFT_OUT, closer: int = CLOSER) -> None:
    """What one has sent is lost, and a slice is closed without it; the result is on its way."""
    carry(job, lambda it, _: it.to >= SWITCHES and it.by != left_out)
    job.repair(closer, 0, s, 1 << left_out)


def to_one(packet: Packet, s: int) -> bool:
    return packet.to >= SWITCHES or packet.to == LOYAL


def again(job: SummingJob, *by: int) -> None:
    """What these have ever sent upwards comes once more; then all goes well."""
    job.network += [it for it in job.past if it.to >= SWITCHES and it.by in by]
    job.settle(2)


def closed_and_forgotten(switch: Callable[[], SumSwitch], worker: Callable[..., Worker]) -> None:
    """The switch has closed a slice that was sent with its epoch, and restarts when one worker has the result."""
    job = begun(switch, worker)
    send(job, 1)
    carry(job)
    send(job, 3)
    close(job, 1)
    carry(job, to_one)
    job.restart()
    again(job, *range(3))


def closed_without_an_epoch_and_forgotten(switch: Callable[[], SumSwitch], worker: Callable[..., Worker]) -> None:
    """It was sent before any epoch was known."""
    job = begun(switch, worker)
    send(job, 4)
    carry(job, lambda it, s: s == 0 or (it.to >= SWITCHES and it.by != LEFT_OUT))
    close(job, 1)
    carry(job, to_one)
    job.restart()
    again(job, *range(3))


def closed_and_then_another_epoch(switch: Callable[[], SumSwitch], worker: Callable[..., Worker]) -> None:
    """What was sent before any epoch was known is summed after the restart, so that all learn the new one."""
    job = begun(switch, worker)
    send(job, 3)
    carry(job, lambda it, s: s == 0)
    send(job, 1)
    close(job, 3)
    carry(job, to_one)
    job.restart()
    for rank in range(3):
        job.repair(rank, 0, 2)
    carry(job)
    job.repair(LEFT_OUT, 0, 3)
    job.repair(CLOSER, 0, 3, 1 << LOYAL)
    again(job)


SCENES = [closed_and_forgotten, closed_without_an_epoch_and_forgotten, closed_and_then_another_epoch]
WITHOUT: list[tuple[Callable[[], SumSwitch], Callable[..., Worker]]] = [
    (KnowsNoEpoch, Worker), (SumSwitch, ClosesWhatItSentWithoutAnEpoch), (SumSwitch, NamesTheLatestEpoch),
]  # fmt: skip


@pytest.mark.parametrize(("scene", "mutant"), list(zip(SCENES, WITHOUT, strict=True)))
def test_a_switch_that_forgets_what_it_has_closed_does_not_close_it_otherwise(
    scene: Callable[..., None], mutant: tuple[Callable[[], SumSwitch], Callable[..., Worker]]
):
    scene(SumSwitch, Worker)
    with pytest.raises(Wrong, match="two results"):
        scene(*mutant)


def spines_restart(job: SummingJob) -> None:
    for at in job.fabric.spines:
        job.restart(at)


def tree_moves(job: SummingJob) -> None:
    for bucket in range(BUCKETS):
        job.fabric.move(job.fabric.homes, bucket, bucket + 1)
    job.failures += 1


def closed_at_a_leaf_and_gone_above(
    switch: Callable[[], SumSwitch], trouble: Callable[[SummingJob], None], worker: Callable[..., Worker] = Worker
) -> None:
    """Who was left out comes when the sum without it has gone up, and its result has reached the other leaf alone.

    Then whoever made that has forgotten it, or another spine is to make it.
    """
    job = begun(switch, worker, shape="leaf-spine", done=1)
    left_out, other = 1, 2
    here, there = job.fabric.homes[left_out], job.fabric.homes[other]
    send(job, 1)
    carry(job)
    send(job, 3)
    close(job, 1, left_out, closer=0)
    carry(job, lambda it, _: it.to != here or it.by not in job.fabric.spines)
    trouble(job)
    again(job, left_out, there)
    assert job.oracle.steps[0, 3].missing[1] == 1 << left_out


def test_what_a_leaf_has_sent_up_stays_as_it_is():
    closed_at_a_leaf_and_gone_above(SumSwitch, spines_restart)
    with pytest.raises(Wrong, match="two results"):
        closed_at_a_leaf_and_gone_above(AddsToWhatIsComplete, spines_restart)


def test_a_slice_that_was_closed_ends_alike_when_its_tree_moves():
    closed_at_a_leaf_and_gone_above(SumSwitch, tree_moves)
    closed_at_a_leaf_and_gone_above(HeedsNobody, tree_moves)
    with pytest.raises(Wrong):
        closed_at_a_leaf_and_gone_above(HeedsNobody, tree_moves, AgreesOnNothing)


def closed_one_after_the_other(worker: Callable[..., Worker]) -> None:
    """Before the first result comes."""
    job = begun(worker=worker)
    send(job, 1)
    carry(job)
    send(job, 3)
    carry(job, lambda it, _: it.to >= SWITCHES and it.by != LEFT_OUT)
    for s in (1, 2, 3):
        job.repair(CLOSER, 0, s, 1 << LEFT_OUT)
    job.settle(2)


@pytest.mark.parametrize("worker", [CountsNoBudget, CountsOnlyResults])
def test_closing_datagrams_under_way_use_up_budgets(worker: type[Worker]):
    closed_one_after_the_other(Worker)
    with pytest.raises(Wrong, match="missing in 3 of 4"):
        closed_one_after_the_other(worker)


def closed_and_broken(worker: Callable[..., Worker]) -> None:
    """One worker alone has completed a step when the switch fails, and a slice of it was closed."""
    job = begun(worker=worker)
    send(job, 1)
    carry(job)
    send(job, 3)
    carry(job, lambda it, s: it.to >= SWITCHES and (s != 1 or it.by != LEFT_OUT))
    for rank, s in ((CLOSER, 1), (LOYAL, 2), (LOYAL, 3)):
        job.repair(rank, 0, s, 1 << LEFT_OUT)
    carry(job, to_one)
    assert not job.workers[LOYAL].streams[0].now
    job.restart()
    job.settle(2)
    assert job.oracle.steps[0, 2].missing == [0, 1 << LEFT_OUT, 0, 0]


@pytest.mark.parametrize("worker", [GivesAllAgain, AgreesOnNothing])
def test_every_rule_of_what_hosts_do_again_is_needed(worker: type[Worker]):
    closed_and_broken(Worker)
    with pytest.raises(Wrong):
        closed_and_broken(worker)
