# SPDX-License-Identifier: Apache-2.0
"""All-reduces of a job by StragglAR: of all ranks, and of groups with the straggler and without it."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.agents import Agent
from tests.support.communicators import each, job_file, joined


@pytest.mark.parametrize("straggler", [0, 3])
def test_groups_add_exactly_with_the_straggler_and_without(hosts: list[Agent], tmp_path: Path, straggler: int) -> None:
    file = job_file(tmp_path, 4, 2, f'collective = "stragglar"\nstraggler = {straggler}')
    with joined(hosts, file, 4, 2) as ranks:
        groups = [list(range(8)), list(range(6)), list(range(2, 8)), [6, 7]]
        for members in groups:
            chosen = [ranks[rank].group(members) for rank in members]
            pairs = [(c, np.arange(100_000) * rank) for c, rank in zip(chosen, members, strict=True)]
            for result in each(pairs, lambda pair: pair[0].all_reduce(pair[1], op="sum")):
                np.testing.assert_array_equal(result, np.arange(100_000) * sum(members))
