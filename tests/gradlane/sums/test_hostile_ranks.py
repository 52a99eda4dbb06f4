# SPDX-License-Identifier: Apache-2.0
"""What a rank says of sums that makes no sense is refused, and nobody waits for ever."""

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradlane import json_object
from gradlane.daemon.sums import HALT_SECONDS, TICK_SECONDS
from tests.gradlane.sums.halting_ranks import GENERATION, Job
from tests.support.effort import tries


@pytest.fixture(name="ranks")
def _ranks(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.mark.parametrize(
    "nonsense",
    [
        {}, {"overdue": 2}, {"overdue": -1}, {"overdue": None}, {"overdue": 0.0}, {"halted": 1}, 7, None, "overdue", [],
        {"halted": 1, "waits": 0.0, "streams": []}, {"halt": 1},
        {"waiting": [[2, 4]]},
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_by_the_leader(ranks: Job, nonsense: Any) -> None:
    with pytest.raises(json_object.NONSENSE):
        ranks.leader.sums.hear(1, nonsense)
    assert not ranks.leader.sums.halted


@pytest.mark.parametrize("nonsense", [{}, {"halt": 2}, {"halt": "1"}, {"resume": 1}, {"go_on": [[2, 4]]}, 7, None, []])
def test_what_makes_no_sense_is_refused_by_a_member(ranks: Job, nonsense: Any) -> None:
    with pytest.raises(json_object.NONSENSE):
        ranks.ranks[1].sums.hear(0, nonsense)
    with pytest.raises(ValueError, match="does not lead"):
        ranks.ranks[1].sums.hear(2, {"halt": 1})
    assert not ranks.ranks[1].sums.halted


@pytest.mark.parametrize("change", [{"generation": 7}, {"generation": GENERATION, "switch": False}])
def test_a_generation_that_can_t_be_is_refused(ranks: Job, change: dict[str, Any]) -> None:
    member = ranks.ranks[1].sums
    member.hear(0, {"halt": 1})
    resume = {"resume": 1, "generation": GENERATION, "switch": True, "reruns": [], "reason": ""}
    with pytest.raises(ValueError, match="can't be here"):
        member.hear(0, resume | change)


VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 5), st.sampled_from([1 << 32, -(1 << 70)]), st.floats(), st.text()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=2)),
    max_leaves=8,
)
GOOD: tuple[dict[str, Any], ...] = (
    {"overdue": 0}, {"overdue": 1}, {"halt": 1}, {"halt": 2}, {"halted": 1, "waits": 0.5, "streams": [[2, 3, 4]]},
    {"resume": 1, "generation": GENERATION, "switch": True, "reruns": [], "reason": ""},
    {"resume": 1, "generation": 1, "switch": False, "reruns": [[2, 4]], "reason": "so"},
)  # fmt: skip


@st.composite
def said(draw: st.DrawFn) -> Any:
    """A good message, or one of which some fields are others, or gone, or anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    message = dict(draw(st.sampled_from(GOOD)))
    for name in draw(st.lists(st.sampled_from(sorted(message)), max_size=2)):
        if draw(st.booleans()):
            message[name] = draw(VALUES)
        else:
            message.pop(name, None)
    return message


@settings(max_examples=tries(150, 1500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(messages=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), said()), max_size=12))
def test_whatever_a_rank_says_it_is_refused_or_followed(tmp_path: Path, messages: list[tuple[int, int, Any]]) -> None:
    """Nothing else is raised, and a halt has an end, or the job."""
    ranks = Job(tmp_path)
    ranks.begin(0, 2)
    for by, to, content in messages:
        if by != to:
            with contextlib.suppress(*json_object.NONSENSE):
                ranks.ranks[to].sums.hear(by, content)
            ranks.waiting.clear()  # what is answered does not come
    for _ in range(round((HALT_SECONDS + 3) / TICK_SECONDS)):
        try:
            ranks.run(TICK_SECONDS)
        except json_object.NONSENSE:
            return  # the job is over
        if any(rank.failures for rank in ranks.ranks):
            return
    for rank in ranks.ranks:
        assert not rank.sums.halted
        assert len(rank.exchange.resumed) == rank.sums.status({"reduced_bytes": 0, "summed_bytes": 0})["halts"]
