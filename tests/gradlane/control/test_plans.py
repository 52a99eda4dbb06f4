# SPDX-License-Identifier: Apache-2.0
"""The agreement on plans, on a model with delays: no two ranks reduce a step unlike, and nobody waits for ever."""

from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane.control.plans import MOST_AHEAD, Leader, Member, Message
from tests.support.effort import tries


class Rank:
    """A worker as its exchange is: it begins steps one after the other, unless it has promised not to."""

    def __init__(self) -> None:
        self.member = Member(self.hold, self.apply, self.release)
        self.limit: int | None = None
        self.epochs: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        self.used: list[tuple[int, ...]] = [()]  # shares of each step that has begun, from step 0 on

    @property
    def begun(self) -> int:
        return len(self.used) - 1

    def hold(self, ahead: int) -> int:
        self.limit = self.begun + ahead
        return self.limit

    def apply(self, first: int, weights: Any) -> bool:
        if first <= self.begun or first <= self.epochs[-1][0]:
            return False
        self.epochs.append((first, tuple(weights)))
        return True

    def release(self) -> None:
        self.limit = None

    def begin(self) -> None:
        step = self.begun + 1
        if self.limit is None or step <= self.limit:
            self.used.append(next(weights for first, weights in reversed(self.epochs) if first <= step))


class Job:
    """Ranks, and a pair of queues between rank 0 and each: what is sent comes in order, but whenever it likes."""

    def __init__(self, count: int) -> None:
        self.ranks = [Rank() for _ in range(count)]
        self.leader = Leader(range(count), self.tell, lambda: max(rank.begun for rank in self.ranks))
        self.down: list[deque[Message]] = [deque() for _ in range(count)]
        self.up: list[deque[Message]] = [deque() for _ in range(count)]
        self.answered: list[Message | None] = [None] * count  # the latest answer of each
        self.proposed: list[tuple[int, ...]] = [()]
        self.decided: list[Message] = []

    def tell(self, message: Message) -> None:
        if "decide" in message:
            self.decided.append(message)
        for queue in self.down:
            queue.append(message)

    def deliver(self, rank: int, upwards: bool) -> None:
        if upwards and self.up[rank]:
            self.leader.hear(rank, self.up[rank].popleft())
        elif not upwards and self.down[rank]:
            answer = self.ranks[rank].member.hear(self.down[rank].popleft())
            if answer is not None:
                self.up[rank].append(answer)
                self.answered[rank] = answer

    def repeat(self, rank: int) -> None:
        """A rank that says everything twice, and late."""
        if (answer := self.answered[rank]) is not None:
            self.up[rank].append(answer)

    def propose(self, ahead: int) -> None:
        if not self.leader.open:
            self.proposed.append((len(self.proposed),))
            self.leader.propose(self.proposed[-1], ahead, {"why": "so"})

    def withdraw(self) -> None:
        if self.leader.open:
            self.leader.withdraw()

    def check(self) -> None:
        for step in range(max(rank.begun for rank in self.ranks) + 1):
            assert len({rank.used[step] for rank in self.ranks if rank.begun >= step}) == 1

    def settle(self) -> None:
        while any(self.down) or any(self.up):
            for rank in range(len(self.ranks)):
                self.deliver(rank, False)
                self.deliver(rank, True)


@settings(max_examples=tries(600), deadline=None)
@given(
    count=st.integers(1, 5),
    actions=st.lists(
        st.one_of(
            st.tuples(st.just("begin"), st.integers(0, 4), st.integers(1, 6)),
            st.tuples(st.just("down"), st.integers(0, 4), st.just(0)),
            st.tuples(st.just("up"), st.integers(0, 4), st.just(0)),
            st.tuples(st.just("propose"), st.just(0), st.integers(0, 3)),
            st.tuples(st.just("withdraw"), st.just(0), st.just(0)),
            st.tuples(st.just("repeat"), st.integers(0, 4), st.just(0)),
        ),
        max_size=120,
    ),
)
def test_no_two_ranks_reduce_a_step_unlike_whatever_comes_when(count: int, actions: list[tuple[str, int, int]]) -> None:
    job = Job(count)
    for action, any_rank, number in actions:
        rank = any_rank % count
        if action == "begin":
            for _ in range(number):
                job.ranks[rank].begin()
        elif action == "propose":
            job.propose(number)
        elif action == "withdraw":
            job.withdraw()
        elif action == "repeat":
            job.repeat(rank)
        else:
            job.deliver(rank, action == "up")
        job.check()
    job.settle()
    assert not job.leader.open
    far = max(rank.begun for rank in job.ranks) + 20
    for rank in job.ranks:
        for _ in range(far):
            rank.begin()
        assert rank.begun >= far, "it waits for ever"
    job.check()
    assert [tuple(m["plan"]) for m in job.decided] == [weights for _, weights in job.ranks[0].epochs[1:]]
    assert all(m["why"] == "so" for m in job.decided)


def test_a_decision_holds_soon_and_a_withdrawn_one_never() -> None:
    job = Job(3)
    job.ranks[1].begin()
    job.propose(2)
    job.settle()
    assert [m["decide"] for m in job.decided] == [4]
    job.propose(0)
    job.deliver(0, False)
    job.deliver(0, True)
    assert job.leader.withdraw() == [1, 2]
    job.settle()
    assert len(job.decided) == 1
    job.propose(0)
    job.settle()
    assert [m["decide"] for m in job.decided] == [4, 5]


def test_what_cannot_be_followed_is_an_error() -> None:
    rank = Rank()
    for _ in range(5):
        rank.begin()
    decision = {"decide": 5, "plan": [1]}
    with pytest.raises(ValueError, match="from step 5 on, and has proposed none"):
        rank.member.hear(decision)
    for ahead in (-1, MOST_AHEAD + 1):
        with pytest.raises(ValueError, match=f"proposes {ahead} steps ahead, of 0 to"):
            rank.member.hear({"propose": 1, "ahead": ahead})
    assert rank.limit is None
    rank.member.hear({"propose": 1, "ahead": MOST_AHEAD})
    with pytest.raises(ValueError, match="before this one is open"):
        rank.member.hear({"propose": 2, "ahead": 0})
    with pytest.raises(ValueError, match="can't hold from step 5"):
        rank.member.hear(decision)
    rank.member.hear({**decision, "decide": 6})
    with pytest.raises(ValueError, match="has proposed none"):
        rank.member.hear({**decision, "decide": 7})


@pytest.mark.parametrize("bound", [-1, 1, 9, 2**32 - 2, 2**40])
def test_a_bound_that_no_member_can_have_is_refused(bound: int) -> None:
    """The plan would never hold. The proposal stays open for those who make sense."""
    job = Job(2)
    for _ in range(6):
        job.ranks[1].begin()
    job.propose(2)
    with pytest.raises(ValueError, match=f"steps up to {bound} before it hears more: that can be 2 to 8"):
        job.leader.hear(1, {"bound": bound, "number": 1})
    assert job.leader.open
    job.settle()
    assert [m["decide"] for m in job.decided] == [9]


def test_an_answer_to_a_proposal_that_is_over_counts_for_nothing() -> None:
    """Its bound is none any more: the rank has begun further steps since."""
    job = Job(2)
    job.propose(0)
    job.deliver(1, False)
    job.withdraw()
    job.deliver(1, False)
    for _ in range(5):
        job.ranks[1].begin()
    job.propose(0)
    job.deliver(1, True)  # the old answer
    job.deliver(0, False)
    job.deliver(0, False)
    job.deliver(0, False)
    job.deliver(0, True)
    assert job.decided == []
    job.settle()
    assert [m["decide"] for m in job.decided] == [6]
