# SPDX-License-Identifier: Apache-2.0
"""Communicators of all ranks of a job, in one process, on agents that run."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from gradlane import Communicator
from tests.support import members
from tests.support.agents import Agent, Within, loopback

Ranks = list[Communicator]


def job_file(folder: Path, hosts: int, processes: int = 1, transport: str = "", loss: str = "") -> Path:
    lines = f'buffer = "4MB"\n{transport}\n[loss]\n{loss}'
    return members.job_file(folder, loopback(hosts), lines=lines, processes=processes)


def join(file: Path, hosts: Sequence[Agent | Within], count: int, processes: int = 1) -> Ranks:
    """Communicators of the job's first `count` ranks, `processes` at each host."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda rank: Communicator(file, rank, hosts[rank // processes].socket), range(count)))


@contextlib.contextmanager
def joined(hosts: Sequence[Agent | Within], file: Path, count: int, processes: int = 1) -> Iterator[Ranks]:
    """Communicators of `count` hosts' ranks, closed at the end of the block if that is reached."""
    ranks = join(file, hosts, count * processes, processes)
    yield ranks
    each(ranks, Communicator.close)


def each(ranks: Any, function: Callable[[Any], Any]) -> list[Any]:
    """The function at all ranks at once."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return [future.result(60) for future in [pool.submit(function, rank) for rank in ranks]]


@contextlib.contextmanager
def beside(hosts: Sequence[Agent], folder: Path) -> Iterator[None]:
    """Another job on the same agents, whose all-reduces are in flight all the while; their results are checked."""
    file = members.job_file(folder, loopback(len(hosts)), "beside.toml", name="beside", id=99)
    over = threading.Event()

    def work(ranks: Ranks) -> None:
        step = 0
        while not over.wait(0.01):  # the pace of a training's steps
            arrays = [np.full(20_000, c.rank + step, np.float32) for c in ranks]
            pending = [c.all_reduce(a, op="sum", asynchronous=True) for c, a in zip(ranks, arrays, strict=True)]
            for it in pending:
                np.testing.assert_array_equal(it.wait(60), sum(arrays))
            step += 1
        assert step > 0

    with joined(hosts, file, len(hosts)) as ranks, ThreadPoolExecutor(1) as pool:
        working = pool.submit(work, ranks)
        try:
            yield
        finally:
            over.set()
        working.result(60)


@contextlib.contextmanager
def training(file: Path, hosts: Sequence[Agent], steps: int = 2) -> Iterator[None]:
    """A job that has done some steps, and goes on within the block."""
    with joined(hosts, file, len(hosts)) as ranks:
        for _ in range(steps):
            each(ranks, lambda c: c.all_reduce(np.full(100_000, c.rank, np.float32), name="gradient"))
        yield
