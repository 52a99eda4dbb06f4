# SPDX-License-Identifier: Apache-2.0
"""Streaming DiLoCo: when each fragment travels, what becomes of it, and who waits for whom."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane import Communicator
from gradlane.sync import LocalSgd, Synchroniser
from tests.support.agents import Agent
from tests.support.communicators import each, job_file, joined

TARGETS = np.random.default_rng(3).standard_normal((3, 20))


@given(st.data())
def test_each_block_travels_once_in_a_round_and_the_load_is_spread(data: st.DataObject) -> None:
    every = data.draw(st.integers(1, 40))
    fragments = data.draw(st.integers(1, every))
    scheme = LocalSgd(every, fragments=fragments, delay=data.draw(st.integers(0, every - 1)))
    sizes = data.draw(st.lists(st.integers(0, 50), min_size=1, max_size=60))
    begin = data.draw(st.integers(0, 1000))
    sent = [scheme.exchanged(step, sizes) for step in range(begin, begin + every)]
    assert sorted(block for blocks in sent for block in blocks) == list(range(len(sizes)))
    assert sent == [scheme.exchanged(step, sizes) for step in range(begin + every, begin + 2 * every)]
    for blocks in sent:
        assert blocks == list(range(min(blocks, default=0), max(blocks, default=-1) + 1)), "neighbours of the model"
        assert sum(sizes[k] for k in blocks) <= sum(sizes) / fragments + max(sizes)
    times = [step for step in range(every) if scheme.exchanged(step, [1] * fragments)]
    assert len(times) == fragments
    assert times[-1] == every - 1, "the last one with the round's end"
    gaps = {after - before for before, after in zip(times, [*times[1:], times[0] + every], strict=True)}
    assert max(gaps) - min(gaps) <= 1


def streamed(steps: int) -> np.ndarray:
    """Of three fragments, in rounds of six steps, mixed in two steps late: all workers' parameters, a quarter own.

    A worker's step goes a tenth of its way to a target of its own; in it, the mean of the changes goes into SGD with
    Nesterov momentum.
    """
    fragments = {2: slice(0, 7), 4: slice(7, 14), 0: slice(14, 20)}  # by the number of steps, modulo a round's
    own = np.zeros((3, 20))
    common, velocity = np.zeros(20), np.zeros(20)
    late: dict[int, tuple[slice, np.ndarray]] = {}
    for step in range(1, steps + 1):
        own += 0.1 * (TARGETS - own)
        if step in late:
            part, gradient = late.pop(step)
            velocity[part] = 0.9 * velocity[part] + gradient
            common[part] -= 0.7 * (gradient + 0.9 * velocity[part])
            own[:, part] = 0.25 * own[:, part] + 0.75 * common[part]
        if step % 6 in fragments:
            part = fragments[step % 6]
            late[step + 2] = (part, common[part] - own[:, part].mean(axis=0))
    return own


@pytest.mark.parametrize("shapes", [[(20,)], [(2, 4), (), (1, 11)]])
def test_it_is_what_the_paper_defines(hosts: list[Agent], tmp_path: Path, shapes: list[tuple[int, ...]]) -> None:
    """In several arrays, too, whose bounds are not those of fragments."""
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    with joined(hosts, job_file(tmp_path, 3), 3) as ranks:

        def train(c: Communicator) -> list[np.ndarray]:
            weights = [np.zeros(shape) for shape in shapes]
            targets = [part.reshape(shape) for part, shape in zip(np.split(TARGETS[c.rank], ends), shapes, strict=True)]
            synchroniser = Synchroniser(c, weights, LocalSgd(6, 0.7, 0.9, fragments=3, delay=2, alpha=0.25))
            found: list[np.ndarray] = []
            for _ in range(20):
                for array, target in zip(weights, targets, strict=True):
                    np.add(array, 0.1 * (target - array), out=array)
                synchroniser.step()
                found.append(np.concatenate([array.ravel() for array in weights]))
            return found

        found = each(ranks, train)
    for step in range(20):
        np.testing.assert_allclose(np.stack([own[step] for own in found]), streamed(step + 1), rtol=0, atol=1e-12)


def test_a_worker_goes_on_for_the_delay_while_another_is_late(hosts: list[Agent], tmp_path: Path) -> None:
    """By three steps, and not by four; the steps of its own meanwhile are not lost where alpha says so."""
    weights = [np.zeros(1000), np.zeros(1000)]
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks, ThreadPoolExecutor(1) as pool:
        scheme = LocalSgd(4, delay=3, alpha=0.25)
        first, second = each(ranks, lambda c: Synchroniser(c, [weights[c.rank]], scheme))
        beginning = pool.submit(lambda: [second.step() for _ in range(3)])  # the first step agrees on the scheme
        for _ in range(3):
            first.step()
        beginning.result(60)
        weights[0] += 4
        done = threading.Semaphore(0)

        def ahead() -> None:
            for _ in range(4):
                first.step()
                weights[0] += 1
                done.release()

        going = pool.submit(ahead)
        for _ in range(3):
            assert done.acquire(timeout=60)
        assert not done.acquire(timeout=0.5)
        assert (weights[0] == 7).all()
        second.step()
        going.result(60)
        # The mean of 4 and 0 is 2: a quarter of 7, three of 2, and one more step.
        assert (weights[0] == 0.25 * 7 + 0.75 * 2 + 1).all()
        for _ in range(3):
            second.step()
        assert (weights[1] == 0.75 * 2).all()


def test_after_a_step_at_most_a_fragment_is_sent(hosts: list[Agent], tmp_path: Path) -> None:
    """However large the array, and whether or not its memory is in one piece."""
    weights = [[np.zeros(400_000, np.float32), np.zeros((100_000, 2), np.float32)[:, :1]] for _ in range(2)]
    with joined(hosts, job_file(tmp_path, 2, transport="slice_bytes = 8000"), 2) as ranks:
        scheme = LocalSgd(10, fragments=5)
        synchronisers = each(ranks, lambda c: Synchroniser(c, weights[c.rank], scheme))
        sent: list[int] = []
        for _ in range(10):
            before = ranks[0].statistics()["slices_sent"]
            each(synchronisers, Synchroniser.step)
            each(ranks, Communicator.barrier)
            sent.append(ranks[0].statistics()["slices_sent"] - before)
    assert [round(slices * 8000 / 400_000) for slices in sent] == [0, 1] * 5


def test_numbers_that_are_not_possible_are_refused() -> None:
    for options in ({"fragments": 0}, {"fragments": 4}, {"delay": -1}, {"delay": 3}, {"alpha": 1.0}, {"alpha": -0.1}):
        with pytest.raises(ValueError, match=r"fragments is 1 to every, delay 0 to every - 1, alpha in \[0, 1\)"):
            LocalSgd(3, **options)  # pyright: ignore[reportArgumentType]
