# SPDX-License-Identifier: Apache-2.0
"""Schemes on a network that loses frames by chance, at every host and in both directions."""

from pathlib import Path

import numpy as np
import pytest

from gradlane import Communicator
from gradlane.sync import DsSync, LocalSgd, Scheme, Synchroniser
from gradlane.sync.schedule import SCHEDULES, mixing_matrix
from lab.net.interfaces import lossy
from tests.support.agents import Agent
from tests.support.communicators import each, join
from tests.support.lan import Lan
from tests.support.members import job_file

HOSTS = 4
COUNT = 60_000
TARGETS = np.random.default_rng(1).standard_normal((HOSTS, COUNT)).astype(np.float32)


def trained(hosts: list[Agent], file: Path, scheme: Scheme, steps: int) -> tuple[np.ndarray, int]:
    """All workers' parameters after steps towards targets of their own, and how many slices were sent again."""
    weights = [np.zeros(COUNT, np.float32) for _ in range(HOSTS)]
    ranks = join(file, hosts, HOSTS)

    def train(c: Communicator) -> int:
        synchroniser = Synchroniser(c, [weights[c.rank]], scheme)
        for _ in range(steps):
            weights[c.rank] += 0.1 * (TARGETS[c.rank] - weights[c.rank])
            synchroniser.step()
        return int(c.statistics()["slices_repaired"])

    repaired = sum(each(ranks, train))
    each(ranks, Communicator.close)
    return np.stack(weights), repaired


@pytest.mark.parametrize("probability", [0.01, 0.05])
def test_parameters_are_exact_and_lost_changes_made_up_for(tmp_path: Path, probability: float) -> None:
    with Lan(HOSTS) as lan, lan.agents(tmp_path) as hosts:
        for host in range(HOSTS):
            for command in lossy(probability).commands:
                words = command.replace("'", "").replace(" IF ", " eth0 ").split("bytecode ")
                code = [] if len(words) == 1 else ["bytecode", words[1]]
                lan.run(lan.space(host), "tc", *words[0].split(), *code)
        exact = job_file(tmp_path, lan.addresses, "exact.toml")
        tolerant = job_file(tmp_path, lan.addresses, "tolerant.toml", lines="[loss]\npush = 0.2")
        for schedule in SCHEDULES:
            found, repaired = trained(hosts, tolerant, DsSync(schedule), 5)
            assert repaired > 0
            expected, plan = np.zeros_like(TARGETS), SCHEDULES[schedule](HOSTS)
            for step in range(5):
                expected += 0.1 * (TARGETS - expected)
                expected = mixing_matrix(plan.partitions[step % len(plan.partitions)], HOSTS) @ expected
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        found, _ = trained(hosts, exact, LocalSgd(2), 6)
        start = np.zeros(COUNT)
        for _ in range(3):
            start = (start + (1 - 0.9**2) * (TARGETS - start)).mean(axis=0)
        np.testing.assert_allclose(found, np.broadcast_to(start, found.shape), rtol=1e-4, atol=1e-5)
        found, _ = trained(hosts, tolerant, LocalSgd(2), 60)
        assert (found == found[0]).all()
        assert np.abs(found[0] - TARGETS.mean(axis=0)).mean() < 0.1
