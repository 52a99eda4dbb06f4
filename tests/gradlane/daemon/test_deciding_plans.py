# SPDX-License-Identifier: Apache-2.0
"""What rank 0 makes of reports about late workers, and what the others do: without agents, at given times."""

import json
import logging
from pathlib import Path

import pytest

from gradlane.control.handshake import MAX_LINE
from gradlane.daemon import ownership
from gradlane.daemon.ownership import PROPOSAL_SECONDS, REST_SECONDS, shares_text
from gradlane.job.plans import Plan
from gradlane.job.stragglers import Neighbour
from tests.support.agents import loopback
from tests.support.deciding import AUTO, DIRECT, EVEN, RATE, WORKERS, Rank


def test_the_leader_proposes_once_decides_with_all_answers_and_rests(tmp_path: Path) -> None:
    leader = Rank(tmp_path, 0)
    leader.second()
    assert leader.proposals() == [], "nobody is late"
    leader.engine.late[3] = 0.3
    leader.second()
    (proposal,) = leader.proposals()
    assert proposal["ahead"] == 5  # half a second of steps
    assert leader.exchange.held
    leader.all_answer((15, 21))
    assert leader.exchange.shares == [], "one has not answered"
    leader.all_answer((15, 26, 18))
    weights = [3334, 3333, 3333, 0]
    assert leader.exchange.shares == [(27, weights)]
    assert not leader.exchange.held
    decided = leader.peers.last("decide")
    assert (decided["decide"], decided["plan"]) == (27, {**EVEN, "weights": weights})
    assert "rank 3" in decided["reason"]
    assert "late by 300 ms (300 to 300) in 20 of the last 20 steps" in decided["reason"]
    assert leader.ownership.shares()["shares"] == [weight / 10_000 for weight in weights]
    leader.engine.late[3] = 0.0
    for _ in range(int(REST_SECONDS) - 1):
        leader.second()
    assert len(leader.proposals()) == 1, "it has just proposed"
    leader.second()
    assert len(leader.proposals()) == 2
    leader.all_answer((116, 117, 118))
    assert leader.exchange.shares[-1] == (126, [1, 1, 1, 1])  # it has begun 120 itself, and may begin 125
    assert "nobody is late, and no link slow" in leader.peers.last("decide")["reason"]


def test_what_is_decided_about_many_late_workers_fits_into_a_line(tmp_path: Path) -> None:
    workers = 200
    leader = Rank(tmp_path, 0, workers=workers)
    leader.engine.late[100:] = [0.3] * (workers - 100)
    leader.second()
    leader.second()
    leader.all_answer([15] * (workers - 1))
    decided = leader.peers.last("decide")
    assert "rank 107" in decided["reason"]
    assert "and 92 more" in decided["reason"]
    for content, _ in leader.peers.said:
        assert len(json.dumps({"topic": "ownership", "content": content})) < MAX_LINE


def test_who_does_not_answer_in_time_ends_the_proposal_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    leader = Rank(tmp_path, 0)
    leader.engine.late[3] = 0.3
    leader.second()
    assert leader.proposals() == [], "it does not know yet how long steps are"
    leader.second()
    assert len(leader.proposals()) == 1
    leader.ownership.hear(1, {"bound": 15, "number": 1})
    for _ in range(int(PROPOSAL_SECONDS) + 1):
        assert leader.exchange.held
        leader.second()
    assert not leader.exchange.held
    assert leader.peers.last("withdraw") == {"withdraw": 1}
    (line,) = [record.getMessage() for record in caplog.records if "was not agreed on" in record.getMessage()]
    assert "rank 2" in line
    assert "rank 1 " not in line
    leader.all_answer()  # too late
    assert leader.exchange.shares == []


def test_no_shares_change_in_a_job_that_rests_or_has_them_in_its_file(tmp_path: Path) -> None:
    for transport, steps in (("", 10), ("ownership = [1, 1, 1, 2]", 10), (DIRECT, 0)):
        leader = Rank(tmp_path, 0, transport)
        leader.exchange.step = 20
        leader.engine.late[3] = 0.3
        leader.second()
        before = len(leader.proposals())
        for _ in range(30):
            leader.second(steps)
        assert len(leader.proposals()) == before
        assert leader.ownership.stragglers()[0]["rank"] == 3


def test_only_the_leader_decides_and_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    worker = Rank(tmp_path, 2)
    with pytest.raises(ValueError, match="rank 1 does not lead"):
        worker.ownership.hear(1, {"decide": 5, "plan": {**EVEN, "weights": [1, 1, 1, 0]}, "reason": ""})
    worker.ownership.hear(0, {"propose": 1, "ahead": 0})
    with pytest.raises(ValueError, match="for 4 workers with 4 owners"):
        worker.ownership.hear(0, {"decide": 5, "plan": {**EVEN, "weights": [1, 1]}, "reason": ""})
    worker.exchange.step = 5
    with pytest.raises(ValueError, match="can't hold from step 5"):
        worker.ownership.hear(0, {"decide": 5, "plan": {**EVEN, "weights": [1, 1, 1, 0]}, "reason": ""})
    worker.ownership.hear(0, {"withdraw": 1})
    worker.ownership.hear(0, {"propose": 2, "ahead": 3})
    assert worker.peers.said[1:] == [({"bound": 8, "number": 2}, [0])]
    sound = {"late": {}, "slow": {}}
    for nonsense in (
        {"report": 7}, {"report": {"late": {"1": [1]}}}, {"report": {"late": 7, "step": 1, "steps": 1}},
        {"report": {"late": {"9": [8, 8, 1, 1, 1]}, "step": 1, "steps": 1}},
        {"report": {"late": {"1": [8, 8, 1, 1, 1e400]}, "step": 1, "steps": 1}},
        {"report": {"ring": {"rank": 4, "later": []}}}, {"report": {"ring": {"rank": 1, "later": [[1, 2]]}}},
        {"report": {"ring": {"rank": 1, "later": [[1, 2, 1e9]]}}},
        {"report": {"link": {"receives": -1, "sends": None, "flows": {}}}},
        {"report": {"link": {"receives": None, "sends": "1", "flows": {}}}},
        {"report": {"link": {"receives": None, "sends": None, "flows": {"-2": True}}}},
        {"report": {"link": {"receives": None, "sends": None, "flows": 3}}},
        {"report": {"late": {"1": [33, 8, 1, 1, 1]}, "step": 1, "steps": 1}},
        {"report": {"late": {"1": [8, 9, 1, 1, 1]}, "step": 1, "steps": 1}},
        {"report": {"late": {}, "step": 7, "steps": 1}}, {"report": {"late": {}, "step": -1, "steps": 1}},
        {"report": {"late": {}, "step": 1, "steps": 33}}, {"report": {"late": {}, "step": 1e999, "steps": 1}},
        {"report": {"ring": {"rank": 1, "later": [[7, 2, 0.1]]}}},
        {"report": {"link": {"receives": None, "sends": 0.3, "flows": {}}}},
        {"report": {"link": {"receives": 1e14, "sends": None, "flows": {}}}},
        {"decide": 1e999, "plan": {**EVEN, "weights": [1] * 4}, "reason": ""}, {"propose": 3, "ahead": 1e999},
        {"known": {"a": [1]}}, {"known": {**sound, "slow": {"1": 0}}}, {"known": {**sound, "late": {"4": [1] * 5}}},
        {}, 7, None, [],
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError, KeyError)):
            worker.ownership.hear(0, nonsense)


def test_where_the_algorithm_is_given_a_plan_of_another_is_refused(tmp_path: Path) -> None:
    plan = {"weights": [1, 1, 1, 1], "algorithm": "ring", "straggler": 0, "least": 0, "generation": 0}
    given, free = Rank(tmp_path, 2), Rank(tmp_path, 2, AUTO)
    for rank in (given, free):
        rank.ownership.hear(0, {"propose": 1, "ahead": 0})
    with pytest.raises(ValueError, match="can't hold"):
        given.ownership.hear(0, {"decide": 5, "plan": plan, "reason": ""})
    free.ownership.hear(0, {"decide": 5, "plan": plan, "reason": ""})


def test_shares_as_text() -> None:
    assert shares_text([1, 1, 2, 0]) == "25%, 25%, 50%, 0%"
    assert shares_text([0, *[1] * 31]) == "of 32 owners, of whom 1 own nothing"


def ring_of(rank: int, late: int, seconds: float, steps: int) -> Neighbour:
    """What a rank of a ring knows of the one behind it, if one comes late."""
    up = (rank + 1) % WORKERS
    return Neighbour(up, {(step, 16): seconds * ((up == late) - (rank == late)) for step in range(1, steps + 1)})


class Together:
    """All four ranks, which hear each other at once."""

    def __init__(self, folder: Path, transport: str = AUTO) -> None:
        self.ranks = [Rank(folder, rank, transport) for rank in range(WORKERS)]
        for rank in self.ranks:
            rank.exchange.step_bytes = (0, 1 << 24)

    def second(self) -> None:
        for rank in self.ranks:
            rank.second()
        while any(rank.peers.said for rank in self.ranks):
            for number, rank in enumerate(self.ranks):
                said, rank.peers.said = rank.peers.said, []
                for content, to in said:
                    for other in range(WORKERS) if to is None else to:
                        if other != number:
                            self.ranks[other].ownership.hear(number, content)

    def plan(self) -> Plan:
        """The latest, the same at all."""
        (latest,) = {rank.exchange.plans[-1] for rank in self.ranks}
        return latest[1]


def test_a_job_that_may_choose_begins_as_the_cost_model_says(tmp_path: Path) -> None:
    plan = Together(tmp_path).plan()
    assert (plan.algorithm, plan.weights) == ("ring", (1, 1, 1, 1))
    for transport in (DIRECT, ""):
        assert Together(tmp_path, transport).ranks[0].exchange.plans == []


@pytest.mark.parametrize(("contention", "algorithm"), [("", "direct"), ("\ncontention = 0.5", "stragglar")])
def test_a_straggler_in_a_ring_is_named_and_the_plan_changes_to_what_is_fastest(
    tmp_path: Path, contention: str, algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    job = Together(tmp_path, AUTO + contention)
    for number, rank in enumerate(job.ranks):
        rank.exchange.step = 10
        rank.engine.ring = ring_of(number, 2, 0.3, 20)
    for _ in range(3):
        job.second()
    plan = job.plan()
    assert plan.algorithm == algorithm
    assert plan.weights[2] == 0
    for rank in job.ranks:
        (found,) = rank.ownership.stragglers()
        assert (found["rank"], found["straggler"], found["median"]) == (2, True, 0.3)
        status = rank.ownership.shares()
        assert (status["algorithm"], status["straggler"]) == (algorithm, 2 if algorithm == "stragglar" else None)
        assert "rank 2 (" in status["reason"]
        assert "late by 300 ms" in status["reason"]
        assert "ring " in status["reason"]
        rank.engine.ring = None
    assert sum(" is a straggler: late by 300 ms" in record.getMessage() for record in caplog.records) == WORKERS
    for _ in range(15):
        job.second()
    assert job.plan().algorithm == "ring"
    assert job.ranks[3].ownership.shares()["reason"].startswith("nobody is late, and no link slow")


def test_a_slow_link_is_named_gets_its_share_and_is_sound_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    job = Together(tmp_path)
    job.second()
    for rank in job.ranks:
        rank.engine.slow = {1}
    job.ranks[1].engine.receives = RATE / 2
    for _ in range(5):
        job.second()
    plan = job.plan()
    assert plan.algorithm == "direct"
    assert plan.weights == (3334, 0, 3333, 3333)
    for rank in job.ranks:
        (found,) = rank.ownership.stragglers()
        assert (found["rank"], found["straggler"], found["link"], found["late_steps"]) == (1, False, RATE / 2, 0)
        assert "its link carries 500 Mbit/s" in rank.ownership.shares()["reason"]
        rank.engine.slow = set()
    assert sum(" is slow: its link carries 500 Mbit/s" in record.getMessage() for record in caplog.records) == WORKERS
    job.ranks[1].engine.receives = RATE
    for _ in range(12):
        job.second()
    plan = job.plan()
    assert (plan.algorithm, plan.weights) == ("ring", (1, 1, 1, 1))
    assert all(rank.ownership.stragglers() == [] for rank in job.ranks)


SERVERS = "".join(
    f'\n[[server]]\nrank = {WORKERS + k}\nhost = "s{k}"\naddress = "{address}"'
    for k, address in enumerate(loopback(2, WORKERS + 1))
)


def test_servers_agree_too_as_they_leave_nobody_out_of_new_shares(tmp_path: Path) -> None:
    leader, server = Rank(tmp_path, 0, AUTO + SERVERS), Rank(tmp_path, WORKERS, AUTO + SERVERS)
    leader.exchange.step = 20
    for _ in range(4):
        leader.second()
        link = {"receives": RATE / 2, "sends": RATE, "flows": {}}
        leader.ownership.hear(WORKERS, {"report": {"link": link}})
        for rank in range(1, WORKERS):
            flows = {str(WORKERS): True, str(WORKERS + 1): False}
            leader.ownership.hear(rank, {"report": {"link": {"receives": RATE, "sends": RATE, "flows": flows}}})
    (proposal,) = leader.proposals()
    assert [to for content, to in leader.peers.said if content == proposal] == [None], "it tells all"
    server.ownership.hear(0, proposal)
    (bound, to) = server.peers.said[-1]
    assert (bound, to) == ({"bound": proposal["ahead"], "number": 1}, [0])
    assert server.exchange.held
    leader.all_answer((50, 51, 52))
    leader.ownership.hear(WORKERS + 1, bound)
    assert leader.exchange.shares == [], "one server has not answered"
    leader.ownership.hear(WORKERS, bound)
    server.ownership.hear(0, leader.peers.last("decide"))
    assert server.exchange.shares == leader.exchange.shares
    assert leader.exchange.plans[-1][1].weights == (3333, 6667)
    assert not server.exchange.held


def test_a_bound_that_cannot_be_is_its_senders_fault(tmp_path: Path) -> None:
    """Those that may go on without this rank can be further ahead, by as many steps."""
    late = "\n[loss.late]\nafter = 0.05\nsteps = 3\nwindow = 9"
    for lines, most in ((DIRECT, 26), (DIRECT + late, 29)):
        leader = Rank(tmp_path, 0, lines)
        leader.engine.late[3] = 0.3
        leader.second()
        leader.second()
        assert leader.proposals()[0]["ahead"] == 5
        for bound in (2**40, 2**32 - 2, most + 1, 4):
            with pytest.raises(ValueError, match=f"steps up to {bound} before it hears more: that can be 5 to {most}"):
                leader.ownership.hear(1, {"bound": bound, "number": 1})
        leader.all_answer((most, 5, 18))
        assert leader.exchange.shares[-1][0] == most + 1


def test_a_job_has_so_many_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "MOST_PLANS", 1)
    leader = Rank(tmp_path, 0)
    leader.engine.late[3] = 0.3
    leader.second()
    leader.second()
    leader.all_answer()
    leader.engine.late[3] = 0.0
    for _ in range(2 * int(REST_SECONDS)):
        leader.second()
    assert len(leader.proposals()) == len(leader.exchange.plans) == 1
