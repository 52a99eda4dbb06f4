# SPDX-License-Identifier: Apache-2.0
"""Over links that drop: what is lost of a gradient is late, not lost."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from gradlane import Communicator
from tests.support.agents import Agent
from tests.support.communicators import Ranks, each, join, joined
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


def results_lost(ranks: Ranks) -> int:
    """Slices, at all hosts: what is lost of a push is kept."""
    return sum(c.statistics()["slices_lost"] - c.statistics()["kept_slices"] for c in ranks)


class Account:
    """What all hosts have given, and what became of it, counted by the arrays alone.

    Contributions are multiples of 12, so that float32 adds and divides them exactly: not one bit may be missing.
    """

    def __init__(self) -> None:
        self.given, self.applied = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
        self.owed = [np.zeros(ELEMENTS, np.float32) for _ in range(HOSTS)]
        self.missed = self.both = 0

    def step(self, ranks: Ranks, number: int, slice_bytes: int) -> None:
        before, random = results_lost(ranks), [np.random.default_rng([rank, number]) for rank in range(HOSTS)]
        gradients = [it.integers(1, 8, ELEMENTS).astype(np.float32) * 12 for it in random]
        self.given += sum(gradients)
        results = each(ranks, lambda c: c.all_reduce(gradients[c.rank], name="w"))
        contributions = [gradient + owed for gradient, owed in zip(gradients, self.owed, strict=True)]
        self.owed = [c.residuals()["w"] for c in ranks]
        counted = [np.where(owed != 0, 0, own) for owed, own in zip(self.owed, contributions, strict=True)]
        mean = sum(counted) / np.float32(HOSTS)
        self.applied += mean * HOSTS
        slices = 0
        for result, own, owed in zip(results, contributions, self.owed, strict=True):
            missed = result != mean
            slices += np.unique(missed.nonzero()[0] * 4 // slice_bytes).size
            both = missed & (owed != 0)
            # Without the mean a worker goes on with its own gradient, unless that is owed to the next step anyway.
            np.testing.assert_array_equal(result[missed], np.where(both, 0, own)[missed])
            self.missed, self.both = self.missed + missed.sum(), self.both + both.sum()
        assert slices == results_lost(ranks) - before, "where a result came, something else was applied"

    def check(self) -> None:
        np.testing.assert_array_equal(self.applied + sum(self.owed), self.given)


def restarted(ranks: Ranks, file: Path, agents: list[Agent]) -> Ranks:
    """The job as it goes on from a checkpoint: the gradients are known from a step of zeros."""
    saved = [c.residuals() for c in ranks]
    each(ranks, Communicator.close)
    again = join(file, agents, HOSTS)
    for c in again:
        c.gradient("w", (ELEMENTS,))
    for c, state in zip(again, saved, strict=True):
        c.load_residuals(state)
    return again


def registered_anew(ranks: Ranks) -> None:
    """As DDP makes its buckets again after the first step: under the same names, with what was owed to them."""
    saved = [c.residuals() for c in ranks]
    for c in ranks:
        c._gradients.pop("w").tensor.close()  # pyright: ignore[reportPrivateUsage]: what torch's session does
        c.gradient("w", (ELEMENTS,))
    for c, state in zip(ranks, saved, strict=True):
        c.load_residuals(state)


def test_no_gradient_is_lost_with_results_that_are_nor_by_registering_anew_nor_by_a_restart(tmp_path: Path) -> None:
    with Lan(HOSTS) as lan:
        impair(lan)
        file = job_file(tmp_path, lan.addresses, lines="[loss]\npush = 0.3\npull = 0.3\n")
        account = Account()
        with lan.agents(tmp_path) as agents:
            ranks = join(file, agents, HOSTS)
            slice_bytes = agents[0].status()["jobs"]["trial"]["slice_bytes"]
            for number in range(STEPS):
                account.step(ranks, number, slice_bytes)
                account.check()
                if number % 3 == 0:
                    registered_anew(ranks)
                elif number == STEPS // 2:
                    ranks = restarted(ranks, file, agents)
            each(ranks, Communicator.close)
    assert account.missed > 0, "no result was lost: this shows nothing"
    assert account.both > 0, "no result was lost where the push was: this shows nothing"


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
