# SPDX-License-Identifier: Apache-2.0
"""ACCO with numpy arrays over real agents: the paper's recursion, what it sends, and who waits for whom."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from gradlane import Communicator
from gradlane.sync import Acco, Synchroniser
from tests.support.agents import Agent
from tests.support.communicators import each, job_file, joined

HOSTS = 3
STEPS = 9


def gradient(rank: int, step: int, at: np.ndarray) -> np.ndarray:
    """Of a least squares problem of the rank's and the step's own."""
    inputs = np.random.default_rng([rank, step]).standard_normal((16, at.size))
    return inputs.T @ (inputs @ (at - np.arange(at.size) - rank)) / 16


def recursion(start: np.ndarray, rate: float) -> list[np.ndarray]:
    """Where the gradients of each step are computed, in one process, in the paper's order."""
    true, points = start, [start]
    first = np.mean([gradient(rank, 0, start) for rank in range(HOSTS)], axis=0)
    for step in range(1, STEPS, 2):
        points.append(true)
        second = np.mean([gradient(rank, step, true) for rank in range(HOSTS)], axis=0)
        estimate = true - rate * first
        points.append(estimate)
        true = true - rate * (first + second) / 2
        first = np.mean([gradient(rank, step + 1, estimate) for rank in range(HOSTS)], axis=0)
    return points


def test_it_is_the_papers_recursion(hosts: list[Agent], tmp_path: Path) -> None:
    start = np.linspace(2, 3, 10)
    with joined(hosts, job_file(tmp_path, HOSTS), HOSTS) as ranks:

        def train(c: Communicator) -> list[np.ndarray]:
            weights = [start[:4].reshape(2, 2).copy(), start[4:].copy()]
            synchroniser = Synchroniser(c, weights, "acco")
            points: list[np.ndarray] = []
            for step in range(STEPS):
                points.append(np.concatenate([array.ravel() for array in weights]))
                change = 0.1 * gradient(c.rank, step, points[-1])
                weights[0] -= change[:4].reshape(2, 2)
                weights[1] -= change[4:]
                synchroniser.step()
            return points

        for found in each(ranks, train):
            np.testing.assert_allclose(found, recursion(start, 0.1), rtol=0, atol=1e-9)


def test_a_whole_step_is_computed_while_another_worker_is_late(hosts: list[Agent], tmp_path: Path) -> None:
    """And not two."""
    weights = [np.zeros(10), np.zeros(10)]
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks, ThreadPoolExecutor(1) as pool:
        first, second = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], Acco()))
        each([first, second], Synchroniser.step)  # which agrees on the scheme
        done = threading.Semaphore(0)

        def ahead() -> None:
            for _ in range(2):
                weights[0] -= 1
                first.step()
                done.release()

        going = pool.submit(ahead)
        assert done.acquire(timeout=60)
        assert not done.acquire(timeout=0.5)
        weights[1] -= 3
        second.step()
        going.result(60)
        second.step()
        each([first, second], Synchroniser.average)
        # Rounds of 0 and 2; 0.5 and then.
        assert (weights[0] == weights[1]).all()
        each([first, second], Synchroniser.close)


def test_lost_gradients_are_made_up_for(hosts: list[Agent], tmp_path: Path) -> None:
    """A saved state has what the network owes; nothing is lost on loopback, so it is put there."""
    weights = [np.zeros(4000, np.float32) for _ in range(2)]
    with joined(hosts, job_file(tmp_path, 2, transport='wire = "bfloat16"', loss="push = 0.1"), 2) as ranks:
        synchronisers = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], "acco"))
        state = synchronisers[0].state_dict()
        assert not state["arrays"]["float32"]["owed"].any()
        state["arrays"]["float32"]["owed"][:] = 1
        synchronisers[0].load_state_dict(state)
        for rank in range(2):
            weights[rank] -= 1 + 2 * rank
        each(synchronisers, Synchroniser.step)
        each(synchronisers, Synchroniser.settle)
        for own in weights:
            np.testing.assert_array_equal(own, np.float32(-2.5))
