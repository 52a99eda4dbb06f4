# SPDX-License-Identifier: Apache-2.0
"""Results of unnamed operations are arrays in shared memory: whose they are, how long, and what is used again."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gradlane import Communicator
from tests.support.agents import Agent
from tests.support.communicators import each, job_file, joined

LARGE = (5 << 20) // 4  # float32: a region of its own


def test_results_lie_in_shared_memory_and_are_their_owners_to_write(hosts: list[Agent], tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int64).reshape(4, 6)
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        for operation in (
            lambda c: c.all_reduce(array, op="max"),
            lambda c: c.all_reduce(array[:, ::2], op="max"),
            lambda c: c.reduce_scatter(array, op="max"),
            lambda c: c.all_gather(array),
            lambda c: c.all_to_all(array),
            lambda c: c.reduce(array, root=0) if c.rank == 0 else c.reduce(array, root=0) or c.empty(1, np.int64),
        ):
            for c, result in zip(ranks, each(ranks, operation), strict=True):
                assert c.connection.is_shared(result)
                assert result.dtype == np.int64
                result[:] = 1
        np.testing.assert_array_equal(array, np.arange(24).reshape(4, 6))


def test_results_stay_when_the_communicator_is_closed(hosts: list[Agent], tmp_path: Path) -> None:
    array = np.arange(LARGE, dtype=np.float32)
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        results = each(ranks, lambda c: c.all_reduce(array))
        views = [result[5:].reshape(-1, 1) for result in results]
    del ranks
    for result, view in zip(results, views, strict=True):
        np.testing.assert_array_equal(result, array)
        result[:] = 7
        assert (view == 7).all()


def test_a_loop_that_drops_its_results_takes_no_more_memory(hosts: list[Agent], tmp_path: Path) -> None:
    array = np.ones(LARGE, np.float32)

    def train(c: Communicator) -> list[int]:
        arena, counts, kept = c.connection._arena, [], []
        for step in range(12):
            mean = c.all_reduce(array)
            kept.append(c.all_reduce(np.full(3, float(step))))  # small ones that stay, between large ones
            view = np.asarray(mean)[::2]
            del mean
            both = c.all_gather(array[: LARGE // 4])
            assert (view == 1).all()
            assert (both == 1).all()
            counts.append(len(arena._regions))
        assert [list(one) for one in kept] == [[step] * 3 for step in range(12)]
        return counts

    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        for counts in each(ranks, train):
            assert counts[2:] == counts[2:3] * 10
            assert counts[-1] <= 4  # results of two rounds at once, of each kind


def test_a_view_of_a_result_keeps_its_values(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        views = [np.asarray(one)[10:20] for one in each(ranks, lambda c: c.all_reduce(np.arange(100.0)))]
        for value in range(20):
            for result in each(ranks, lambda c, value=value: c.all_reduce(np.full(100, float(value)))):
                assert (result == value).all()
        for view in views:
            np.testing.assert_array_equal(view, np.arange(10.0, 20.0))


def test_what_is_sent_and_forgotten_stays_until_it_has_arrived(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as (first, second):
        for value in range(30):
            first.send(np.full(20_000, value), 1, asynchronous=True)
        for value in range(30):
            assert (second.receive(np.empty(20_000, np.int64), 0) == value).all()
        # What they had is used again, once they are done.
        each((first, second), Communicator.barrier)
        assert not first.connection.link.channels[0].abandoned


def test_a_result_is_the_next_operations_input_as_it_is(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        results = each(ranks, lambda c: c.all_reduce(np.full(1000, c.rank + 1.0)))
        sums = each(ranks, lambda c: c.all_reduce(results[c.rank], op="sum"))
        assert [list(result[:2]) for result in [*results, *sums]] == [[1.5, 1.5]] * 2 + [[3, 3]] * 2
        each(ranks, lambda c: c.all_reduce(results[c.rank], op="sum", out=sums[c.rank]))
        each(ranks, lambda c: c.all_reduce(np.full(1000, 4.0), op="sum", out=results[c.rank]))
        assert [list(result[:2]) for result in [*results, *sums]] == [[8, 8]] * 2 + [[3, 3]] * 2
        # An `out` that lies across the contribution, and one that is a part of other memory.
        each(ranks, lambda c: c.all_reduce(sums[c.rank][:900], op="sum", out=sums[c.rank][100:]))
        assert [list(result[98:102]) for result in sums] == [[3, 3, 6, 6]] * 2


def test_arrays_without_elements(hosts: list[Agent], tmp_path: Path) -> None:
    nothing = np.empty((0, 3), np.float32)
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        for operation, shape in (
            (lambda c: c.all_reduce(nothing), (0, 3)),
            (lambda c: c.all_reduce(nothing, asynchronous=True).wait(1), (0, 3)),
            (lambda c: c.all_gather(nothing), (2, 0, 3)),
            (lambda c: c.reduce_scatter(nothing), (0, 3)),
            (lambda c: c.broadcast(nothing.copy()), (0, 3)),
        ):
            for result in each(ranks, operation):
                assert (result.shape, result.dtype) == (shape, np.float32)
        with pytest.raises(ValueError, match="no elements"):
            ranks[0].connection.collective("all_reduce", ranks[0].empty(0), ranks[0].empty(0))
        each(ranks, Communicator.barrier)


def test_what_can_not_take_a_result_is_refused_before_anything_begins(hosts: list[Agent], tmp_path: Path) -> None:
    array = np.ones((3, 4), np.float32)
    fixed = array.copy()
    fixed.flags.writeable = False
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        with pytest.raises(ValueError, match=r"out is \(4,\) float32, and the result \(3, 4\) float32"):
            ranks[0].all_reduce(array, out=array[0])
        with pytest.raises(ValueError, match=r"out is \(3, 4\) float64"):
            ranks[0].all_reduce(array, out=array.astype(float))
        with pytest.raises(ValueError, match="read-only"):
            ranks[0].all_reduce(fixed, out=fixed)
        with pytest.raises(ValueError, match="the mean of floats only, not of int32"):
            ranks[0].all_reduce(np.ones(3, np.int32))
        with pytest.raises(ValueError, match="not a float"):
            ranks[0].receive(1.0, 1)
        with pytest.raises(ValueError, match="read-only"):
            ranks[1].broadcast(fixed)
        for result in each(ranks, lambda c: c.broadcast(fixed if c.rank == 0 else np.zeros((3, 4), np.float32))):
            np.testing.assert_array_equal(result, array)


def test_a_fork_can_read_results_and_its_end_takes_nothing(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        results = each(ranks, lambda c: c.all_reduce(np.arange(100.0)))
        child = os.fork()
        if not child:
            fine = (results[0] == np.arange(100)).all()
            del results
            os._exit(0 if fine else 1)
        assert os.waitpid(child, 0)[1] == 0
        for value in range(5):
            each(ranks, lambda c, value=value: c.all_reduce(np.full(100, float(value))))
        for result in results:
            np.testing.assert_array_equal(result, np.arange(100))


@pytest.mark.parametrize("end", ["c.close()", "", "c.all_reduce(numpy.ones(9), asynchronous=True); c.close()"])
def test_a_program_may_end_with_results_in_its_hands(hosts: list[Agent], tmp_path: Path, end: str) -> None:
    script = (
        "import sys, numpy, gradlane; c = gradlane.Communicator(sys.argv[1], 0, sys.argv[2]); "
        f"held = [c.all_reduce(numpy.ones(n)) for n in (3, 10**6)]; part = held[1][5:]; {end}"
    )
    command = [sys.executable, "-c", script, str(job_file(tmp_path, 1)), str(hosts[0].socket)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
