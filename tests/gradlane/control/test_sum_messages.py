# SPDX-License-Identifier: Apache-2.0
"""The messages by which workers agree whether a switch sums: what is refused, and that the largest fit."""

import json
from typing import Any

import pytest

from gradlane.control.handshake import MAX_LINE
from gradlane.control.sums import (
    MOST_REASON,
    MOST_STREAMS,
    Leader,
    Member,
    Message,
    Resumed,
    State,
    Stream,
    unpacked,
)

GOOD = {"halted": 1, "waits": 0.5, "streams": [[0, 3, 4], [5, 2, 2]]}


@pytest.mark.parametrize(
    "change",
    [
        {"waits": -1}, {"waits": float("nan")}, {"waits": float("inf")}, {"waits": "1"}, {"waits": None},
        {"halted": True}, {"streams": {}}, {"streams": [3]}, {"streams": [[]]}, {"streams": [[1, 2]]},
        {"streams": [[1, 2, 3, 4]]}, {"streams": [[-1, 3, 3]]}, {"streams": [[MOST_STREAMS, 3, 3]]},
        {"streams": [[1, 3, 2]]}, {"streams": [[1, 3, 5]]}, {"streams": [[1, -1, 0]]}, {"streams": [[1, 0, -1]]},
        {"streams": [[1, 1 << 32, 1 << 32]]}, {"streams": [[1, 3, 3], [1, 3, 3]]}, {"streams": [[1, 3.0, 3]]},
        {"streams": [[number % 512, 1, 1] for number in range(513)]},
    ],
)  # fmt: skip
def test_a_state_that_no_worker_can_be_in_is_refused(change: dict[str, Any]) -> None:
    assert unpacked(GOOD) == State(0.5, {0: Stream(3, 4), 5: Stream(2, 2)})
    with pytest.raises(ValueError, match=r"it (waits|says)|has .* as|lacks"):
        unpacked(GOOD | change)


def member(*refuse: bool) -> Member:
    return Member(lambda: State(0.0, {}), lambda _: not refuse)


RESUME = {"resume": 1, "generation": 5, "switch": False, "reruns": [[3, 7]], "reason": "so"}


@pytest.mark.parametrize(
    "change",
    [
        {"resume": 0}, {"resume": 2}, {"generation": 0}, {"generation": 1 << 32}, {"generation": -1}, {"switch": 1},
        {"reruns": [[3]]}, {"reruns": [[3, 0]]}, {"reruns": [[3, 1 << 32]]}, {"reruns": [[MOST_STREAMS, 1]]},
        {"reruns": [[-1, 1]]}, {"reruns": [[3, 7]] * 513}, {"reruns": 3}, {"reason": 3},
    ],
)  # fmt: skip
def test_what_the_leader_says_is_checked(change: dict[str, Any]) -> None:
    of = member()
    for early in (RESUME, {"halt": 0}, {"halt": 2}, {"halt": "1"}, {"go": 1}):
        with pytest.raises(ValueError, match=r"the leader|has .* as|lacks"):
            of.hear(early)
    assert of.hear({"halt": 1}) == {"halted": 1, "waits": 0.0, "streams": []}
    for again in ({"halt": 1}, {"halt": 2}):
        with pytest.raises(ValueError, match="the leader asks to halt"):
            of.hear(again)
    with pytest.raises(ValueError, match=r"the leader|has .* as|lacks"):
        of.hear(RESUME | change)
    assert of.halted
    assert of.hear(RESUME) is None
    assert not of.halted


def test_steps_that_can_t_be_run_again_are_an_error() -> None:
    of = member(False)
    of.hear({"halt": 1})
    with pytest.raises(ValueError, match=r"has steps run again that can't be here: \[\[3, 7\]\]"):
        of.hear(RESUME)


def test_an_answer_counts_once_and_in_its_halt_alone() -> None:
    said: list[Message] = []
    resumed = Resumed(1, True, (), "")
    leader = Leader([0, 1], said.append, lambda _: resumed)
    answer = {"halted": 1, "waits": 0, "streams": []}
    with pytest.raises(ValueError, match="not open"):
        leader.hear(1, answer)
    leader.halt()
    assert leader.missing == [0, 1]
    leader.hear(1, answer)
    for wrong in (answer, {**answer, "halted": 2}):
        with pytest.raises(ValueError, match="not open"):
            leader.hear(1, wrong)
    assert leader.missing == [0]
    leader.hear(0, answer)
    assert [next(iter(it)) for it in said] == ["halt", "resume"]
    assert leader.missing == []
    with pytest.raises(ValueError, match="not open"):
        leader.hear(0, answer)


def test_the_largest_messages_fit_into_a_line() -> None:
    most = (1 << 32) - 1
    state = State(999999.999, {tensor: Stream(most, most) for tensor in range(MOST_STREAMS)})
    answer = {"topic": "sums", "content": {"halted": most, **state.packed()}}
    assert len(json.dumps(answer, separators=(",", ":"))) < MAX_LINE
    assert unpacked(answer["content"]) == state
    said: list[Message] = []
    reruns = tuple((tensor, most) for tensor in range(MOST_STREAMS))
    leader = Leader([0], said.append, lambda _: Resumed(most, False, reruns, "\U0001f600" * 1000))
    leader.halt()
    leader.hear(0, {"halted": 1, "waits": 0, "streams": []})
    assert len(said[1]["reason"]) == MOST_REASON
    assert len(json.dumps({"topic": "sums", "content": said[1]}, separators=(",", ":"))) < MAX_LINE
