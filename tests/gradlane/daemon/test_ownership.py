# SPDX-License-Identifier: Apache-2.0
"""Who owns how much of a tensor, as the job file says, from agent to agent."""

from pathlib import Path

import numpy as np

from tests.gradlane.daemon.test_agents import all_reduce, close, job_file, join, tensors
from tests.support.agents import Agent

ELEMENTS = 300_000


def test_shares_of_the_job_file_divide_the_work_and_change_no_result(hosts: list[Agent], tmp_path: Path) -> None:
    """By bytes, to about a hundredth: rank 1 sends its own contribution and nothing else."""
    connections = join([job_file(tmp_path, 3, transport="ownership = [1, 0, 2]")] * 3, hosts)
    shared = tensors(connections, ELEMENTS)
    for step in range(2):
        total = np.zeros(ELEMENTS, np.float32)
        for rank, contribution in enumerate(t.contribution for t in shared):
            contribution[:] = np.random.default_rng([rank, step]).standard_normal(ELEMENTS)
            total += contribution
        all_reduce(shared)
        for result in (t.result for t in shared):
            np.testing.assert_array_equal(result, total / np.float32(3))
    counts = close(connections)
    whole = counts[1]["slices_sent"]
    sent = [c["slices_sent"] / whole for c in counts]
    np.testing.assert_allclose(sent, [2 / 3 + 2 / 3, 1, 1 / 3 + 4 / 3], rtol=0.01)
