# SPDX-License-Identifier: Apache-2.0
"""The experiment's arms with and without the barrier."""

from pathlib import Path

from lab.training.config import Config, Node
from tests.gradlane.torch.ranks import job_file, run
from tests.gradlane.torch.worker_arms import train_arm
from tests.support.agents import Agent

STEPS = 6


def test_the_arm_without_a_barrier_trains_the_same_model(agents: list[Agent], tmp_path: Path) -> None:
    job = job_file(tmp_path / "job.toml", agents[:2], wire="float16")
    # Gloo, which the workers start by, binds to the first address of the interface.
    nodes = tuple(Node(rank, f"h{rank}", "127.0.0.1", "lo", str(agents[rank].socket)) for rank in range(2))
    digests: dict[str, str] = {}
    for arm in ("gradlane", "gradlane-overlap"):
        config = Config(arm, 5, "cnn", 16, 8, STEPS, nodes, job=str(job), timeout=120, start_delay=0, evaluate_every=3)
        config.save(tmp_path / f"{arm}.json")
        of_ranks = run(train_arm, agents[:2], job, str(tmp_path / f"{arm}.json"))
        finals = [lines[-1] for lines in of_ranks]
        assert finals[0]["parameters_sha256"] == finals[1]["parameters_sha256"]
        digests[arm] = finals[0]["parameters_sha256"]
        steps = [line for line in of_ranks[0] if line["event"] == "step"]
        assert len(steps) == STEPS
        exchanges = [line for line in of_ranks[0] if line["event"] == "exchange"]
        assert 0 < len(exchanges) <= STEPS
        assert all(0 < exchange["seconds"] < 10 for exchange in exchanges)
        assert [line["step"] for line in of_ranks[0] if line["event"] == "evaluation"] == [3, 6]
    assert len(set(digests.values())) == 1


def test_workers_without_a_global_step_share_the_same_work(agents: list[Agent], tmp_path: Path) -> None:
    job = job_file(tmp_path / "job.toml", agents[:3], loss='[sync]\nscheme = "ripples"\nmembers = 2\n')
    pauses = (20, 20, 200)
    nodes = tuple(
        Node(rank, f"h{rank}", "127.0.0.1", "lo", str(agents[rank].socket), pauses[rank]) for rank in range(3)
    )
    config = Config("ripples", 5, "cnn", 16, 8, 10, nodes, job=str(job), timeout=120, start_delay=0, evaluate_every=3)
    config.save(tmp_path / "ripples.json")
    of_ranks = run(train_arm, agents[:3], job, str(tmp_path / "ripples.json"))
    taken = [len([line for line in lines if line["event"] == "step"]) for lines in of_ranks]
    assert sum(taken) == 3 * 10
    assert taken[2] < min(taken[:2])
    finals = [lines[-1] for lines in of_ranks]
    assert len({final["parameters_sha256"] for final in finals}) == 1
    assert not of_ranks[0][0]["lockstep"]
    for rank, lines in enumerate(of_ranks):
        exchanges = [line for line in lines if line["event"] == "exchange"]
        assert all(rank in exchange["group"] and len(exchange["group"]) >= 2 for exchange in exchanges)
        assert exchanges[-1]["group"] == [0, 1, 2]  # the mean at the end
        last = [line for line in lines if line["event"] == "step"][-1]["t"]
        assert last <= exchanges[-1]["ready"] < exchanges[-1]["done"]
        assert finals[rank]["seconds"] == exchanges[-1]["done"]  # the clock has all of it
    evaluations = [line["step"] for line in of_ranks[0] if line["event"] == "evaluation"]
    assert evaluations == sorted(set(evaluations))
    assert evaluations[-1] == 10
