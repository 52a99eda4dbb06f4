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
        assert any(0 < step["allreduce_seconds"] < 10 for step in steps)
        assert [line["step"] for line in of_ranks[0] if line["event"] == "evaluation"] == [3, 6]
    assert len(set(digests.values())) == 1
