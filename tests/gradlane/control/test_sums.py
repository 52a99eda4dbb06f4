# SPDX-License-Identifier: Apache-2.0
"""How workers agree whether a switch sums, on a model with delays: a step that one has is one that all get."""

import json
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.control import plans
from gradlane.control.sums import (
    Decision,
    Leader,
    Member,
    Message,
    Resumed,
    State,
    Stream,
    Waits,
    decide,
)
from tests.support.effort import tries

LEAST = 0.1  # s
TENSORS = 2


def states(*ranks: Mapping[int, tuple[int, int]], waits: tuple[float, ...] = ()) -> dict[int, State]:
    """Of each rank, by tensor: (completed, begun). All have waited for long, unless `waits` says otherwise."""
    return {
        rank: State(waits[rank] if waits else 9.0, {tensor: Stream(*it) for tensor, it in streams.items()})
        for rank, streams in enumerate(ranks)
    }


@pytest.mark.parametrize(
    ("of", "decision"),
    [
        # Nothing is missing: nobody has begun the next step, or all is by hosts.
        (states({0: (3, 3)}, {0: (3, 3)}), Decision()),
        (states({0: (4, 4)}, {0: (3, 3)}), Decision()),
        (states({}, {}), Decision()),
        # A worker has not come to the step yet, nor to the tensor.
        (states({0: (3, 4)}, {0: (3, 3)}, {0: (3, 4)}), Decision(late=(((0, 4), (1,)),))),
        (states({7: (0, 1)}, {}, {}), Decision(late=(((7, 1), (1, 2)),))),
        # A worker by hosts in the step before.
        (states({0: (1, 2)}, {0: (1, 1)}), Decision(late=(((0, 2), (1,)),))),
        # The switch gave nobody the sum, or not everybody.
        (states({0: (3, 4)}, {0: (3, 4)}), Decision(((0, 4),), ((0, 4),))),
        (states({0: (4, 4)}, {0: (3, 4)}), Decision(((0, 4),), ((0, 4),))),
        # Who has it has begun the next step already; that is taken back.
        (states({0: (4, 5)}, {0: (3, 4)}, {0: (4, 5)}), Decision(((0, 4),), ((0, 4),))),
        # Several tensors: those that all have begun are run again; of the others nobody is.
        (
            states({0: (3, 4), 1: (2, 3), 2: (5, 5)}, {0: (3, 4), 1: (2, 2), 2: (5, 5)}),
            Decision(((0, 4),), ((0, 4),), (((1, 3), (1,)),)),
        ),
        # A late worker has only just come: the sum may be on its way.
        (states({0: (3, 4)}, {0: (3, 4)}, waits=(9.0, 0.05)), Decision(reruns=((0, 4),))),
        (states({0: (3, 4)}, {0: (3, 4)}, waits=(9.0, 0.1)), Decision(((0, 4),), ((0, 4),))),
        # Who has the sum does not wait, and that says nothing.
        (states({0: (4, 4)}, {0: (3, 4)}, waits=(0.0, 9.0)), Decision(((0, 4),), ((0, 4),))),
        # One tensor is stuck, of another the sum may be on its way: all go on by hosts, and that is run again, too.
        (
            states({0: (3, 4), 1: (3, 4)}, {0: (3, 3), 1: (3, 4)}, {0: (3, 4), 1: (4, 4)}, waits=(9.0, 9.0, 0.0)),
            Decision(((1, 4),), ((1, 4),), (((0, 4), (1,)),)),
        ),
    ],
)
def test_what_is_decided(of: dict[int, State], decision: Decision) -> None:
    """Where the same was so in the halt before, and all have waited since then."""
    before = {rank: replace(state, waits=max(0.0, state.waits - 2 * LEAST)) for rank, state in of.items()}
    assert decide(of, before, LEAST) == decision


def test_a_switch_is_given_up_only_when_a_step_is_missing_in_two_halts_and_all_have_waited_in_between() -> None:
    stuck, late = Decision(((0, 4),), ((0, 4),)), Decision(reruns=((0, 4),))
    now = states({0: (3, 4)}, {0: (4, 4)}, {0: (3, 4)}, waits=(0.5, 0.0, 0.6))
    for before, decision in (
        ({}, late),  # the first time it has a second chance
        (states({0: (3, 4)}, {0: (4, 4)}, {0: (3, 4)}, waits=(0.3, 0.0, 0.3)), stuck),
        (states({0: (3, 4)}, {0: (3, 4)}, {0: (3, 4)}, waits=(0.3, 0.3, 0.3)), stuck),
        (states({0: (3, 4)}, {0: (4, 5)}, {0: (3, 4)}, waits=(0.3, 0.0, 0.3)), stuck),
        # Rank 2 has had no time since, or got sums: the switch was not asked again for long enough.
        (states({0: (3, 4)}, {0: (4, 4)}, {0: (3, 4)}, waits=(0.3, 0.0, 0.55)), late),
        (states({0: (3, 4)}, {0: (4, 4)}, {0: (3, 4)}, waits=(0.3, 0.0, 2.0)), late),
        # A rank had not come to the step then.
        (states({0: (3, 4)}, {0: (3, 4)}, {0: (3, 3)}, waits=(0.3, 0.3, 0.0)), late),
        (states({0: (3, 4)}, {}, {0: (3, 4)}, waits=(0.3, 0.0, 0.3)), late),
    ):
        assert decide(now, before, LEAST) == decision, before


def test_ranks_that_contradict_each_other_are_named() -> None:
    with pytest.raises(ValueError, match="rank 2 has completed step 4 of tensor 3, and rank 1 has not begun it"):
        decide(states({3: (3, 4)}, {3: (3, 3)}, {3: (4, 4)}), {}, LEAST)
    with pytest.raises(ValueError, match="rank 2 has completed step 4 of tensor 3, and rank 1 has not begun it"):
        decide(states({3: (3, 4)}, {}, {3: (4, 4)}), {}, LEAST)


class Worker:
    """One that reduces tensors step by step, each by the switch or by hosts, as plans and halts say."""

    def __init__(self, job: "Job", rank: int) -> None:
        self.job, self.rank = job, rank
        self.planner = plans.Member(self.hold, self.apply, self.release)
        self.halting = Member(self.halt, self.resume)
        self.limit: int | None = None
        self.plans = [(2, 1)]  # from which step on which generation is the switch's; step 1 is by hosts
        self.floor = 0  # generations up to this one are over
        self.ways: list[list[str]] = [[] for _ in range(TENSORS)]  # of each step that has begun
        self.done = [0] * TENSORS  # steps whose result is here

    def hold(self, ahead: int) -> int:
        self.limit = self.begun + ahead
        return self.limit

    def apply(self, first: int, generation: Any) -> bool:
        assert first > self.begun
        self.plans.append((first, generation))
        return True

    def release(self) -> None:
        self.limit = None

    @property
    def begun(self) -> int:
        return max(map(len, self.ways))

    def generation(self, step: int) -> int:
        """0: by hosts."""
        found = next((generation for first, generation in reversed(self.plans) if first <= step), 0)
        return found if found > self.floor else 0

    def in_flight(self, tensor: int) -> bool:
        return len(self.ways[tensor]) > self.done[tensor]

    def begin(self, tensor: int) -> None:
        step = len(self.ways[tensor]) + 1
        if self.in_flight(tensor) or (self.limit is not None and step > self.limit):
            return
        generation = self.generation(step)
        if generation and self.halting.halted:
            return
        self.ways[tensor].append("switch" if generation else "hosts")
        self.job.contributed[tensor, step, generation].add(self.rank)

    def completed(self, tensor: int) -> int:
        by_switch = self.in_flight(tensor) and self.ways[tensor][-1] == "switch"
        return len(self.ways[tensor]) - by_switch

    def halt(self) -> State:
        some = range(TENSORS) if self.begun else []
        waits = self.job.waits if any(self.completed(t) < len(self.ways[t]) for t in some) else 0.0
        return State(waits, {t: Stream(self.completed(t), len(self.ways[t])) for t in some})

    def resume(self, how: Resumed) -> bool:
        for tensor, step in how.reruns:
            assert step in (len(self.ways[tensor]), len(self.ways[tensor]) - 1), "its integers are not kept"
            assert self.ways[tensor][step - 1] == "switch"
        if how.by_switch:
            return True
        self.floor = how.generation
        for tensor, step in how.reruns:
            self.done[tensor] = max(self.done[tensor], step)  # with what the switch summed, or would have
        for tensor in range(TENSORS):
            if self.in_flight(tensor) and self.ways[tensor][-1] == "switch":
                self.ways[tensor][-1] = "hosts"
                self.job.contributed[tensor, len(self.ways[tensor]), 0].add(self.rank)
        return True

    def arrives(self, tensor: int) -> None:
        """The result of the step in flight, if it can have come."""
        if not self.in_flight(tensor):
            return
        step, way = len(self.ways[tensor]), self.ways[tensor][-1]
        generation = self.generation(step) if way == "switch" else 0
        everybody = len(self.job.contributed[tensor, step, generation]) == len(self.job.workers)
        if everybody and not (way == "switch" and self.halting.halted):
            self.done[tensor] = step


class Job:
    """Workers, and a pair of queues between rank 0 and each: what is sent comes in order, but whenever it likes."""

    def __init__(self, count: int) -> None:
        self.contributed: dict[tuple[int, int, int], set[int]] = defaultdict(set)  # by tensor, step, generation
        self.waits = 0.0
        self.before: Mapping[int, State] = {}
        self.generation = 1
        self.by_switch = True
        self.workers = [Worker(self, rank) for rank in range(count)]
        self.planner = plans.Leader(range(count), self.tell, lambda: max(it.begun for it in self.workers))
        self.halting = Leader(range(count), self.tell, self.decide)
        self.down: list[deque[Message]] = [deque() for _ in range(count)]
        self.up: list[deque[Message]] = [deque() for _ in range(count)]

    def tell(self, message: Message) -> None:
        text = json.dumps(message)
        for queue in self.down[1:]:
            queue.append(json.loads(text))
        self.take(0, message)

    def take(self, rank: int, message: Message) -> None:
        worker = self.workers[rank]
        part = worker.halting if "halt" in message or "resume" in message else worker.planner
        if (answer := part.hear(message)) is None:
            return
        if rank:
            self.up[rank].append(json.loads(json.dumps(answer)))
        else:
            self.hear(0, answer)

    def hear(self, rank: int, message: Message) -> None:
        (self.halting if "halted" in message else self.planner).hear(rank, message)

    def decide(self, found: Mapping[int, State]) -> Resumed:
        decision, self.before = decide(found, self.before, LEAST), found
        if not decision.stuck:
            return Resumed(self.generation, True, decision.reruns, "")
        self.generation += 1
        self.by_switch = False
        return Resumed(self.generation, False, decision.reruns, "so")

    def deliver(self, rank: int, upwards: bool) -> None:
        if upwards and self.up[rank]:
            self.hear(rank, self.up[rank].popleft())
        elif not upwards and self.down[rank]:
            self.take(rank, self.down[rank].popleft())

    def halt(self) -> None:
        if self.by_switch and not self.workers[0].halting.halted:
            self.halting.halt()

    def propose(self, ahead: int) -> None:
        """By the switch again."""
        if not self.by_switch and not self.planner.open:
            self.generation += 1
            self.by_switch = True
            self.planner.propose(self.generation, ahead, {})

    def check(self) -> None:
        """A step is the switch's at all ranks where it is done, or at none; and nobody is more than a step ahead."""
        for tensor in range(TENSORS):
            for step in range(1, max(len(it.ways[tensor]) for it in self.workers) + 1):
                assert len({it.ways[tensor][step - 1] for it in self.workers if it.done[tensor] >= step}) <= 1
            steps = [len(it.ways[tensor]) for it in self.workers]
            assert max(steps) - min(steps) <= 1

    def settle(self) -> None:
        while any(self.down) or any(self.up):
            for rank in range(1, len(self.workers)):
                self.deliver(rank, False)
                self.deliver(rank, True)


ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["begin", "arrives"]), st.integers(0, 3), st.integers(0, TENSORS - 1)),
    st.tuples(st.sampled_from(["down", "up"]), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("everybody"), st.just(0), st.integers(1, 3)),
    st.tuples(st.just("halt"), st.just(0), st.integers(0, 3)),
    st.tuples(st.just("propose"), st.just(0), st.integers(0, 3)),
)


@settings(max_examples=tries(500, 5000), deadline=None)
@given(count=st.integers(2, 4), actions=st.lists(ACTIONS, max_size=150))
def test_a_step_that_anybody_has_is_completed_alike_by_all_whatever_comes_when(
    count: int, actions: list[tuple[str, int, int]]
) -> None:
    """The switch gives sums to whom it likes; all may have to halt at any time, and to try the switch again."""
    job = Job(count)
    for action, any_rank, number in actions:
        rank = any_rank % count
        if action == "begin":
            job.workers[rank].begin(number)
        elif action == "arrives":
            job.workers[rank].arrives(number)
        elif action == "everybody":
            for _ in range(number):
                for worker in job.workers:
                    for tensor in range(TENSORS):
                        worker.arrives(tensor)
                        worker.begin(tensor)
        elif action == "halt":
            job.waits += LEAST if number else 0.0
            job.halt()
        elif action == "propose":
            job.propose(number)
        else:
            job.deliver(rank, action == "up")
        job.check()
    # The switch is dead from now on. Everybody comes to every step nevertheless.
    job.settle()
    far = max(worker.begun for worker in job.workers) + 5
    for _ in range(4 * far):
        for worker in job.workers:
            for tensor in range(TENSORS):
                worker.begin(tensor)
        for worker in job.workers:
            for tensor in range(TENSORS):
                if worker.in_flight(tensor) and worker.ways[tensor][-1] == "hosts":
                    worker.arrives(tensor)
        job.waits += LEAST
        job.halt()
        job.settle()
        job.check()
    assert all(worker.done[tensor] >= far for worker in job.workers for tensor in range(TENSORS)), "it hangs"


def test_a_step_in_which_half_of_the_workers_wait_goes_on_and_each_counts_once() -> None:
    waits = Waits(1024)

    def hear(rank: int, step: int) -> list[tuple[int, int]]:
        return waits.hear(rank, {"waiting": [[3, step]]})

    assert not any(hear(rank, 7) for rank in range(511))
    assert not any(hear(rank, 7) for rank in range(511))
    assert hear(4, 8) == []
    assert hear(600, 7) == []
    assert hear(601, 7) == [(3, 7)]
    assert not any(hear(rank, 7) for rank in range(602, 1024))
    assert not any(hear(rank, 6) for rank in range(1024)), "what was before goes on with it"
