# SPDX-License-Identifier: Apache-2.0
"""Steps that go on without a late worker, from agent to agent."""

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from gradlane.client.connection import Connection
from gradlane.client.handle import Handle
from gradlane.errors import AgentError
from tests.gradlane.daemon.test_agents import close, job_file, join
from tests.support import zygote
from tests.support.agents import GRADLANE, PATIENCE, Agent, command, until

ELEMENTS = 300_000
AFTER, BUDGET, WINDOW = 0.5, 2, 8  # s; steps
LATE = 3 * AFTER


def late_file(folder: Path, workers: int = 3, servers: int = 0, **changes: str) -> Path:
    rule = f"late = {{ after = {AFTER}, steps = {BUDGET}, window = {WINDOW} }}"
    return job_file(folder, workers, servers, push=f"0.0\n{rule}", **changes)


class Workers:
    """Workers that all-reduce a tensor of their job; what each gives in a step is a number."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self.shared = [c.tensor("w", ELEMENTS, "float32", [(0, 0)]) for c in connections]

    def submit(self, rank: int, gradient: float) -> Handle:
        self.shared[rank].contribution[:] = gradient
        return self.shared[rank].submit()

    def without(self, rank: int, gradients: Sequence[float]) -> None:
        """All but one worker take a step."""
        for handle in [self.submit(k, value) for k, value in enumerate(gradients) if k != rank]:
            handle.wait(PATIENCE)

    def results(self, ranks: Sequence[int], value: float) -> None:
        for rank in ranks:
            np.testing.assert_allclose(self.shared[rank].result, np.float32(value), rtol=1e-6)


@pytest.mark.parametrize("servers", [0, 1])
def test_others_go_on_without_a_late_worker_until_its_budget_is_used_up_and_nothing_is_lost(
    hosts: list[Agent], tmp_path: Path, servers: int
) -> None:
    file = late_file(tmp_path, 3, servers)
    serve = [*GRADLANE, "serve", "--job", str(file), "--rank", "3"]
    server = zygote.start([*serve, "--socket", str(hosts[3].socket)]) if servers else None
    connections = join([file] * 3, hosts)
    workers = Workers(connections)
    for handle in [workers.submit(rank, 3.0) for rank in range(3)]:
        handle.wait(PATIENCE)
    for _ in range(BUDGET):
        begun = time.monotonic()
        workers.without(2, [1.0, 2.0, 0.0])
        assert time.monotonic() - begun >= AFTER
        workers.results([0, 1], 1.5)
    third = [workers.submit(rank, 6.0) for rank in (0, 1)]
    time.sleep(LATE)
    assert not any(handle.done() for handle in third), "the budget is used up"
    for _ in range(BUDGET):
        workers.submit(2, 9.0).wait(PATIENCE)
        workers.results([2], 1.5)
    # 9 - 1.5 is owed of the first step, and that, with 9 - 1.5, of the second: all of it counts in the third.
    for handle in [*third, workers.submit(2, 6.0)]:
        handle.wait(PATIENCE)
    workers.results([0, 1, 2], (6 + 6 + 6 + (9 - 1.5) + (9 - 1.5)) / 3)
    owner = hosts[3] if servers else hosts[0]
    (seen,) = owner.status()["jobs"]["trial"]["left_out"]
    assert (seen["rank"], seen["steps"], seen["recent"], seen["budget"]) == (2, BUDGET, BUDGET, BUDGET)
    said = f"rank 2 (h2, {hosts[2].address}) was late, and has been left out: of 2 of the last {WINDOW} steps, 2 in all"
    owner.wait_for(f"{said}: as many as it may be")
    shown = command("status", "--socket", owner.socket, check=True).stdout
    assert f"left out: rank 2 (h2, {hosts[2].address}), of 2 steps, 2 of the last {WINDOW} (at most {BUDGET})" in shown
    counts = close(connections)
    assert [c["left_out"] for c in counts] == [0, 0, BUDGET]
    assert all(c["budget_violations"] == 0 and c["residual_slices"] == 0 for c in counts)
    if server is not None:
        assert server.wait(PATIENCE) == 0


def test_a_worker_that_never_comes_is_named_and_ends_the_job_after_its_patience(
    hosts: list[Agent], tmp_path: Path
) -> None:
    file = late_file(tmp_path)
    file.write_text(file.read_text().replace("[job]\n", "[job]\npatience = 12\n"))
    connections = join([file] * 3, hosts)
    workers = Workers(connections)
    for _ in range(BUDGET):
        workers.without(2, [1.0, 2.0, 0.0])
    begun = time.monotonic()
    with pytest.raises(AgentError, match=r"step 3 has made no progress for 1\d s: rank 2 .* did not start it"):
        workers.without(2, [1.0, 2.0, 0.0])
    assert time.monotonic() - begun < 20


def test_what_is_exact_waits(hosts: list[Agent], tmp_path: Path) -> None:
    connections = join([late_file(tmp_path)] * 3, hosts)
    shared = [c.tensor("w", ELEMENTS, "float32", [(0, 0)], "mean", exact=True) for c in connections]
    shared += [c.tensor("s", ELEMENTS, "float32", [(0, 0)], "sum") for c in connections]
    handles = [tensor.submit() for k, tensor in enumerate(shared) if k % 3 != 2]
    time.sleep(LATE)
    assert not any(handle.done() for handle in handles)
    for handle in [*handles, shared[2].submit(), shared[5].submit()]:
        handle.wait(PATIENCE)
    until(lambda: not hosts[0].status()["jobs"]["trial"]["left_out"])
    close(connections)
