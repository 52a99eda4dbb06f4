# SPDX-License-Identifier: Apache-2.0
"""Each rule of the protocol is needed: without it the same schedules break a promise. So those tests can fail."""

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.gradlane.sums.oracle import Wrong
from tests.gradlane.sums.schedules import FORGE, Layout, Weather, calm, layouts, play, schedules, weathers
from tests.gradlane.sums.summing_job import SummingJob
from tests.support.sum_stream import Step, Stream, zeros
from tests.support.sum_switch import Slot, SumSwitch, serial_difference
from tests.support.sum_worker import Worker


class AddsTwice(SumSwitch):
    def is_in(self, covers: int, slot: Slot) -> bool:
        return False


class KnowsNoGeneration(SumSwitch):
    def age(self, new: Slot, old: Slot) -> int:
        return new.job != old.job or serial_difference(new.number, old.number)


class KnowsNoNumber(SumSwitch):
    def age(self, new: Slot, old: Slot) -> int:
        return new.job != old.job or serial_difference(new.generation, old.generation)


class KnowsNoJob(SumSwitch):
    def age(self, new: Slot, old: Slot) -> int:
        return serial_difference(new.generation, old.generation) or serial_difference(new.number, old.number)


class TakesOlder(SumSwitch):
    def age(self, new: Slot, old: Slot) -> int:
        return abs(super().age(new, old))


class ComparesPlainly(SumSwitch):
    def age(self, new: Slot, old: Slot) -> int:
        return new.job != old.job or new.generation - old.generation or new.number - old.number


class HasHalfTheSlots(Worker):
    def slot(self, stream: Stream, number: int) -> int:
        return stream.tensor * 2 * self.window + number % self.window


class SendsAhead(Worker):
    def may_send(self, stream: Stream, s: int) -> bool:
        return True


class SharesSlots(Worker):
    def slot(self, stream: Stream, number: int) -> int:
        return number % (2 * self.window)


class GoesByItsOwnMagnitudes(Worker):
    def summed(self, tensor: int) -> None:
        step = self.streams[tensor].now
        assert step
        step.sums = {s: [q * self.point.workers for q in integers] for s, integers in enumerate(step.integers)}
        super().summed(tensor)


class BelievesEveryResult(Worker):
    def is_result(self, datagram: bytes, stream: Stream, step: Step, s: int) -> bool:
        return True


class OwesWhatItWithdraws(Worker):
    def withdraw(self, stream: Stream, step: Step) -> None:
        owed = stream.owed
        super().withdraw(stream, step)
        stream.owed = owed


class ForgetsWhatItOwes(Worker):
    def summed(self, tensor: int) -> None:
        super().summed(tensor)
        stream = self.streams[tensor]
        stream.owed = zeros(stream.owed)


class WithdrawsEverything(Worker):
    def resume(self, generation: int, reruns: dict[int, int]) -> None:
        super().resume(generation, {})


class KeepsNothing(Worker):
    def summed(self, tensor: int) -> None:
        super().summed(tensor)
        self.streams[tensor].last = None


def breaks(
    schedule: object, switch: Callable[[], SumSwitch], worker: Callable[..., Worker], layout: object = layouts
) -> None:
    @settings(max_examples=2000, deadline=None, database=None, derandomize=True, phases=[Phase.generate])
    @given(layout, schedule)  # pyright: ignore
    def played(layout: Layout, happenings: list[Weather | str]) -> None:
        play(layout, happenings, switch, worker)

    played()


@pytest.mark.parametrize("switch", [AddsTwice, KnowsNoGeneration, KnowsNoNumber, KnowsNoJob])
def test_every_rule_of_the_switch_is_needed(switch: type[SumSwitch]):
    with pytest.raises(Wrong):
        breaks(calm, switch, Worker)


def test_numbers_wrap():
    layout = Layout(partitions=((3,),), done=2**32 // 3 - 2)
    play(layout, [])
    with pytest.raises(Wrong, match="wait for ever"):
        play(layout, [], ComparesPlainly)


@pytest.mark.parametrize(("switch", "ends"), [(SumSwitch, True), (TakesOlder, False)])
def test_an_old_duplicate_does_not_take_the_slot_of_a_finished_slice(switch: type[SumSwitch], ends: bool):
    job = SummingJob(Layout(window=1, partitions=((3,),)), switch)
    for rank in range(2):
        job.begin(rank, 0, 2)
    for rank in range(2):
        job.by_hosts(rank, 0)
        job.begin(rank, 0, 2)
    job.send(0, 0)
    old = job.network[0]
    for _ in range(2):  # slices 0 and 1
        job.send(1, 0)
        while job.network:
            job.deliver(0)
        job.send(0, 0)
    job.send(1, 0)
    for _ in range(3):  # both contributions to slice 2, and its result at rank 0
        job.deliver(0)
    job.deliver(0, lost=True)
    job.network.append(old)
    if ends:
        job.settle(2)
    else:
        with pytest.raises(Wrong, match="wait for ever"):
            job.settle(2)


@pytest.mark.parametrize(
    "worker",
    [HasHalfTheSlots, SendsAhead, SharesSlots, GoesByItsOwnMagnitudes, ForgetsWhatItOwes],
)
def test_every_rule_of_the_workers_is_needed(worker: type[Worker]):
    with pytest.raises(Wrong):
        breaks(calm, SumSwitch, worker)


def test_forged_results_are_to_be_refused():
    forging = st.lists(weathers | st.just(FORGE), min_size=6, max_size=14)
    with pytest.raises(Wrong, match="is taken"):
        breaks(forging, SumSwitch, BelievesEveryResult)


@pytest.mark.parametrize("worker", [OwesWhatItWithdraws, WithdrawsEverything, KeepsNothing])
def test_every_rule_is_needed_of_what_workers_do_when_the_switch_fails(worker: type[Worker]):
    with pytest.raises(Wrong):
        breaks(schedules, SumSwitch, worker)
