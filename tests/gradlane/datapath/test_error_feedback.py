# SPDX-License-Identifier: Apache-2.0
"""Over links that drop: what is lost of a gradient is late, not lost."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.communicators import each, joined
from tests.support.lan import Lan
from tests.support.members import job_file

STEPS, ELEMENTS, HOSTS = 12, 150_000, 3


def impair(lan: Lan) -> None:
    """A third of the rate that the job file promises, and a buffer of a few slices."""
    for port in range(HOSTS):
        queue = ("tbf", "rate", "330mbit", "burst", "16kb", "limit", "24kb")
        subprocess.run(["tc", "-n", lan.bridge, "qdisc", "add", "dev", f"p{port}", "root", *queue], check=True)


@pytest.mark.parametrize("processes", [1, 2])
def test_the_sum_over_all_steps_is_that_of_all_contributions_less_what_is_owed(tmp_path: Path, processes: int) -> None:
    """Whole numbers, so that float32 adds them exactly in any order."""
    with Lan(HOSTS) as lan:
        impair(lan)
        lines = "[loss]\npush = 0.3\n[[loss.classes]]\nlayers = [0, 0]\npush = 0.05\n"
        file = job_file(tmp_path, lan.addresses, lines=lines, processes=processes)
        with lan.agents(tmp_path) as agents, joined(agents, file, HOSTS, processes) as ranks:
            given, got = np.zeros(ELEMENTS, np.float32), np.zeros(ELEMENTS, np.float32)
            for step in range(STEPS):
                gradients = [
                    np.random.default_rng([c.rank, step]).integers(-8, 8, ELEMENTS).astype(np.float32) * 12
                    for c in ranks
                ]
                given += sum(gradients)
                results = each(
                    ranks,
                    lambda c, gradients=gradients: c.all_reduce(
                        gradients[c.rank], name="w", layers=[(0, 0), (40_000, 1)]
                    ),
                )
                for result in results[1:]:
                    np.testing.assert_array_equal(result, results[0])
                got += results[0] * HOSTS * processes
            owed = sum(c.residuals()["w"] for c in ranks[::processes]) * processes
            counts = [c.statistics() for c in ranks[::processes]]
    assert sum(c["kept_slices"] for c in counts) > 0, "the links have dropped nothing: this shows nothing"
    assert sum(c["slices_lost"] for c in counts) == sum(c["kept_slices"] for c in counts)
    assert [c["budget_violations"] for c in counts] == [0] * HOSTS
    np.testing.assert_allclose(got + owed, given, rtol=0, atol=0.01)


def test_without_feedback_a_mean_is_that_of_what_arrived_and_a_maximum_loses_nothing(tmp_path: Path) -> None:
    with Lan(HOSTS) as lan:
        impair(lan)
        file = job_file(tmp_path, lan.addresses, lines="[loss]\npush = 0.3\nerror_feedback = false\n")
        with lan.agents(tmp_path) as agents, joined(agents, file, HOSTS) as ranks:
            ones = np.ones(ELEMENTS, np.float32)
            for _ in range(STEPS):
                for result in each(ranks, lambda c: c.all_reduce(ones, name="w")):
                    np.testing.assert_array_equal(result, ones)  # the mean of any of them
            lost = sum(c.statistics()["slices_lost"] for c in ranks)
            for result in each(ranks, lambda c: c.all_reduce(ones * c.rank, name="m", op="max")):
                np.testing.assert_array_equal(result, ones * (HOSTS - 1))
            assert not any(c.residuals()["w"].any() for c in ranks)
            counts = [c.statistics() for c in ranks]
    assert lost > 0, "the links have dropped nothing: this shows nothing"
    assert sum(c["slices_lost"] for c in counts) == lost
    assert [c["kept_slices"] for c in counts] == [0] * HOSTS
