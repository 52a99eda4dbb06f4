# SPDX-License-Identifier: Apache-2.0
"""The group generator: a model of workers that ask, wait and pause at any time, and what each rule is good for."""

import heapq

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.sync.generator import Decision, Generator, Known
from gradlane.sync.schedule import Places
from tests.support.effort import tries


class Workers:
    """Each computes, asks, waits in its group until all members have come, and computes again; or pauses."""

    def __init__(self, size: int, members: int, slack: int) -> None:
        self.now = 0.0
        self.generator = Generator(size, members, slack, lambda: self.now)
        self.size, self.members, self.slack = size, members, slack
        self.steps = [0] * size
        self.waits: list[Places | None] = [None] * size
        self.pausing = [False] * size
        self.paused = [False] * size
        self.averaged = 0

    def may_go(self) -> list[int]:
        """Who does not wait for another."""
        return [worker for worker in range(self.size) if self.waits[worker] is None and not self.paused[worker]]

    def go(self, worker: int) -> None:
        """The worker's next question."""
        if self.pausing[worker]:
            group = self.generator.pause(worker).group
            self.paused[worker] = group == (worker,)
        else:
            group = self.generator.ask(worker, self.steps[worker]).group
            self.steps[worker] += 1
        if group == (worker,):
            return
        assert worker in group
        assert 2 <= len(group) <= self.members
        assert list(group) == sorted(set(group))
        self.waits[worker] = group
        if all(self.waits[member] == group for member in group):
            self.averaged += 1
            for member in group:
                self.waits[member] = None


@settings(max_examples=tries(100), deadline=None)
@given(st.data())
def test_whoever_is_slow_or_stops_no_worker_waits_for_ever(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 9) | st.integers(10, 64))
    workers = Workers(size, data.draw(st.integers(2, 5)), data.draw(st.integers(0, 3)))
    random = data.draw(st.randoms(use_true_random=size > 9))  # a few hypothesis makes simpler where they fail
    for _ in range(random.randrange(8 * size)):
        able = workers.may_go()
        if not able:
            break
        worker = random.choice(able)
        if random.randrange(10) == 0:
            workers.pausing[worker] = True
        workers.now += random.uniform(0, 5)
        workers.go(worker)
    # Then all pause; each question is answered, in whatever order, until nobody has anything left to do.
    workers.pausing = [True] * size
    while able := workers.may_go():
        workers.go(random.choice(able))
    assert workers.waits == [None] * size, "a deadlock"
    assert all(workers.paused)


def test_a_question_divides_all_who_have_nothing_to_do() -> None:
    generator = Generator(7, 3, 0)
    first = generator.ask(4, 0).group
    decided = {worker: generator.pause(worker).group for worker in range(7) if worker != 4}
    groups = {first, *(group for group in decided.values() if len(group) > 1)}
    members = [worker for group in groups for worker in group]
    assert [len(group) for group in groups] == [3, 3]
    assert len(set(members)) == 6
    for worker, group in decided.items():
        assert worker in group
        assert (worker in members) == (len(group) > 1)


def test_who_lags_is_not_waited_for_and_comes_in_by_itself() -> None:
    generator = Generator(4, 2, 2)
    for step in range(20):
        for worker in range(3):
            group = generator.ask(worker, step).group
            if step > 3:
                assert 3 not in group, "it is at step 0"
    while len(generator.pause(3).group) > 1:
        pass  # what was decided before it lagged
    slow = generator.ask(3, 1).group
    assert len(slow) == 2
    partner = next(worker for worker in slow if worker != 3)
    assert slow in [generator.ask(partner, 20).group for _ in range(2)], "the next, or what follows one decided before"


def test_who_pauses_gets_what_was_decided_and_no_more() -> None:
    generator = Generator(2, 2, 5)
    assert generator.ask(0, 0) == Decision(1, (0, 1))
    assert generator.pause(1) == Decision(1, (0, 1))
    assert generator.pause(1) == Decision(1, (1,))
    assert generator.ask(0, 1) == Decision(1, (0,))
    assert generator.ask(1, 1) == Decision(2, (0, 1))
    assert generator.ask(0, 2) == Decision(2, (0, 1))


def test_of_a_dead_worker_nothing_is_left_in_any_buffer() -> None:
    generator = Generator(3, 3, 5)
    assert generator.ask(0, 0).group == (0, 1, 2)
    generator.drop(2)
    assert generator.ask(1, 0) == Decision(2, (0, 1)), "not the group that was decided with it"
    assert generator.ask(0, 1) == Decision(2, (0, 1))


@pytest.mark.parametrize("asked", [False, True])
def test_a_dead_worker_comes_into_no_group_any_more(asked: bool) -> None:
    generator = Generator(3, 3, 5)
    if asked:
        assert [generator.ask(worker, 0).group for worker in range(3)] == [(0, 1, 2)] * 3
    generator.drop(2)
    assert [generator.ask(worker, 1).group for worker in range(2)] == [(0, 1)] * 2


def test_who_goes_on_in_its_place_decides_nothing_before_what_others_wait_in() -> None:
    """Worker 2 has got nothing yet, 0 and 1 each wait for it; worker 3 has died with what it had."""
    generator = Generator(5, 2, 9)
    generator.drop(3)
    nothing = Decision(0, (4,))
    generator.restore({
        1: Known(4, False, [Decision(8, (1, 2))]),
        0: Known(3, False, [Decision(7, (0, 2))]),
        2: Known(2, False, [Decision(6, (2, 3))]),
        4: Known(0, True, [nothing]),
    })  # fmt: skip
    assert [generator.ask(2, 3) for _ in range(2)] == [Decision(7, (0, 2)), Decision(8, (1, 2))]
    assert generator.pause(4) == nothing
    assert generator.ask(0, 4).number == 9, "numbers go on, too"


@pytest.mark.parametrize("later", [Decision(7, (0,)), Decision(8, (0, 2))])
def test_a_group_that_a_worker_waits_in_when_it_asks_again_is_not_lost(later: Decision) -> None:
    generator = Generator(3, 2, 9)
    generator.restore({
        0: Known(4, False, [Decision(7, (0, 1)), later]),
        1: Known(3, False, [Decision(6, (1, 2)), Decision(6, (1,))]),
        2: Known(3, False, [Decision(6, (1, 2))]),
    })  # fmt: skip
    assert generator.ask(1, 4) == Decision(7, (0, 1))


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("members", [2, 3])
@pytest.mark.parametrize("slow", [1, 2, 5])
def test_a_slow_worker_holds_up_nobody(size: int, members: int, slow: int) -> None:
    """An exchange takes no time here; each computes for about 1, by chance, the last one `slow` times as long."""
    workers, random, steps = Workers(size, members, 2), np.random.default_rng(size), 200
    alone = [1.0] * (size - 1) + [float(slow)]
    asks = [(alone[worker], worker) for worker in range(size)]
    while workers.now < steps:
        workers.now, worker = heapq.heappop(asks)
        waited = [other for other in range(size) if workers.waits[other] is not None]
        workers.go(worker)
        for other in {worker, *waited}:
            if workers.waits[other] is None:
                heapq.heappush(asks, (workers.now + alone[other] * random.uniform(0.9, 1.1), other))
    for worker, taken in enumerate(workers.steps):
        assert taken > 0.7 * steps / alone[worker]
    assert workers.averaged * members / sum(workers.steps) > 0.5, "they do not go on alone instead"
