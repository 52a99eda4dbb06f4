# SPDX-License-Identifier: Apache-2.0
"""With the agent in the process, operations work on the program's own arrays where they lie."""

import gc
import mmap
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlane import AgentError, Communicator
from gradlane.client.handle import Completions
from tests.support import members
from tests.support.agents import Within, loopback
from tests.support.communicators import Ranks, each, join

LARGE = 4 << 20  # elements; more than the configuration below lets them share
ADDRESSES = loopback(2, 21)


def job_file(folder: Path) -> Path:
    return members.job_file(folder, ADDRESSES, lines='buffer = "4MB"')


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Two, which may share 9 MiB each with their agents."""
    config = tmp_path / "agent.toml"
    config.write_text('[limits]\nshared = "9MiB"\n')
    found = join(job_file(tmp_path), [Within(address, f"process:{config}") for address in ADDRESSES], 2)
    yield found
    each(found, Communicator.close)


def arrays(count: int = 2, size: int = LARGE) -> list[np.ndarray[Any, Any]]:
    return [np.full(size, k + 1, np.float32) for k in range(count)]


def test_what_the_program_waits_for_is_not_copied(ranks: Ranks) -> None:
    own, out = arrays(), arrays()
    each(ranks, lambda c: c.all_reduce(own[c.rank], op="sum", out=out[c.rank]))
    assert all((array == 3).all() for array in out)
    assert [array[0] for array in own] == [1, 2]
    each(ranks, lambda c: c.all_reduce(own[c.rank], op="sum", out=own[c.rank]))
    assert all((array == 3).all() for array in own)
    each(ranks, lambda c: c.broadcast(out[c.rank] if c.rank else np.arange(LARGE, dtype=np.float32)))
    assert out[1][-1] == LARGE - 1
    each(ranks, lambda c: c.send(out[1], 0) if c.rank else c.receive(out[0], 1))
    assert out[0][-1] == LARGE - 1
    assert each(ranks, lambda c: c.reduce_scatter(own[c.rank][:1024]).tolist()) == [[6.0] * 512] * 2


def test_what_it_does_not_wait_for_is_copied_as_with_a_daemon(ranks: Ranks) -> None:
    with pytest.raises(AgentError, match=r"limits.shared"):
        ranks[0].all_reduce(arrays()[0], asynchronous=True)
    own = arrays(size=1000)
    pending = [c.all_reduce(array, op="sum", asynchronous=True) for c, array in zip(ranks, own, strict=True)]
    for array in own:
        array[:] = 100
    assert all((it.wait(60) == 3).all() for it in pending)
    out = np.zeros(1000, np.float32)
    pending = [c.all_reduce(array, op="sum", out=out, asynchronous=True) for c, array in zip(ranks, own, strict=True)]
    assert not out.any()
    assert all((it.wait(60) == 200).all() for it in pending)


def test_arrays_that_can_not_be_used_where_they_lie_are_copied(ranks: Ranks) -> None:
    def of(rank: int) -> Iterator[tuple[np.ndarray[Any, Any], Any]]:
        base = np.arange(64, dtype=np.float32) + rank
        yield base[::2], (base[::2], 2 * base[::2] + 1 - 2 * rank)  # not contiguous
        raw = np.zeros(4 * 64 + 1, np.uint8)[1:].view(np.float32)
        raw[:] = base
        yield raw, (raw.copy(), 2 * base + 1 - 2 * rank)  # not aligned
        frozen = base.copy()
        frozen.flags.writeable = False
        yield frozen, (base, 2 * base + 1 - 2 * rank)
        yield np.zeros((0, 3), np.float32), (np.zeros((0, 3)), np.zeros((0, 3)))

    def call(c: Communicator) -> None:
        for array, (before, expected) in of(c.rank):
            np.testing.assert_array_equal(c.all_reduce(array, op="sum"), expected)
            np.testing.assert_array_equal(array, before)
            flags = array.flags
            assert c.connection.takes(array) == bool(flags.c_contiguous and flags.aligned and array.size)
        memory = np.arange(100, dtype=np.float32)
        c.all_reduce(memory[:60], op="sum", out=memory[40:])  # overlapping
        np.testing.assert_array_equal(memory[40:], 2 * np.arange(60))
        np.testing.assert_array_equal(memory[:40], np.arange(40))
        assert c.all_reduce(np.float32(2), op="sum") == 4
        assert c.all_reduce(np.array([c.rank == 0]), op="max").tolist() == [True]

    each(ranks, call)


def test_an_array_in_use_is_kept_and_can_not_be_resized(ranks: Ranks) -> None:
    array = np.full(1000, 1, np.float32)
    flat = array.reshape(10, 100)
    handle = ranks[0].connection.collective("all_reduce", flat, flat)
    with pytest.raises(ValueError, match="resize"):
        array.resize(1 << 20, refcheck=False)
    gone = weakref.ref(array)
    del array, flat
    gc.collect()
    assert gone() is not None
    other = np.full(1000, 2, np.float32)
    ranks[1].connection.collective("all_reduce", other, other).wait(60)
    handle.wait(60)
    assert (other == 3).all()
    del handle
    gc.collect()
    assert gone() is None


def reduce_and_wait(c: Communicator, array: np.ndarray[Any, Any]) -> None:
    c.all_reduce(array, out=array)
    c.barrier()  # if that was over already


OTHER = """
import sys, time, numpy, gradlane
c = gradlane.Communicator(sys.argv[1], 1, "process")
c.barrier()
pending = c.all_reduce(numpy.ones(1 << 24, numpy.float32), asynchronous=True)
time.sleep(0.05)
"""


@pytest.mark.parametrize("end", ["import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "raise RuntimeError"])
def test_nothing_works_on_an_array_when_its_operation_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    file = job_file(tmp_path)
    alive: list[bool] = []
    fail = Completions.fail

    def failing(self: Completions) -> None:
        alive.append(any(thread.name == "gradlane-io" for thread in threading.enumerate()))
        fail(self)

    monkeypatch.setattr(Completions, "fail", failing)
    for _ in range(3):
        command = [sys.executable, "-c", OTHER + end, str(file)]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            first = Communicator(file, 0, "process")
            first.barrier()
            memory = mmap.mmap(-1, 4 << 24)
            array = np.frombuffer(memory, np.float32)
            with pytest.raises(AgentError, match="rank 1"):
                reduce_and_wait(first, array)
            del array
            gc.collect()
            memory.close()  # what still wrote there would end this process
            time.sleep(0.1)
            with pytest.raises(AgentError):
                first.close()
            process.wait(60)
    assert alive == [False] * 3
