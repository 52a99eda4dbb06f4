# SPDX-License-Identifier: Apache-2.0
"""Many exact reductions at once, on memory that whoever calls takes back."""

import gc
import mmap
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlane import AgentError, Communicator
from gradlane.client.collectives import Collectives
from tests.support.agents import Agent, Within, loopback
from tests.support.communicators import Ranks, each, join, joined
from tests.support.communicators import job_file as daemons_job
from tests.support.members import job_file

ADDRESSES = loopback(2, 23)
Array = np.ndarray[Any, Any]


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    """Two, with their agents."""
    found = join(job_file(tmp_path, ADDRESSES), [Within(address, "process") for address in ADDRESSES], 2)
    yield found
    alive = [it for it in found if it.connection.link._failure is None]  # pyright: ignore[reportPrivateUsage]
    if alive:
        each(alive, Communicator.close)


def check(c: Communicator) -> None:
    arrays = [np.full((2, size), c.rank + size, np.float64) for size in range(600)]
    arrays[7] = np.full((2, 2, 7), c.rank + 7.0)[:, 1]  # not contiguous
    arrays[8].flags.writeable = False
    results = [np.full((2, size), -1.0) for size in range(600)]
    c.all_reduce_into(arrays, results, "sum")
    for size, (mine, result) in enumerate(zip(arrays, results, strict=True)):
        assert (result == 2 * size + 1).all()
        assert (mine == c.rank + size).all()
    c.all_reduce_into([], [])
    c.all_reduce_into(arrays[1:2], results[1:2])
    assert (results[1] == 1.5).all()


def test_each_result_is_where_it_is_to_be_in_one_process_with_the_agent(ranks: Ranks) -> None:
    each(ranks, check)


def test_each_result_is_where_it_is_to_be_with_daemons(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, daemons_job(tmp_path, 2), 2) as found:
        each(found, check)


def test_all_are_under_way_before_the_first_is_waited_for(ranks: Ranks, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    begin = Collectives._begin  # pyright: ignore[reportPrivateUsage]

    def noted(self: Collectives, *arguments: Any) -> Any:
        pending = begin(self, *arguments)
        if self.rank == 0:
            events.append("begin")
            wait = pending.wait
            pending.wait = lambda timeout=None: (events.append("wait"), wait(timeout))[1]
        return pending

    monkeypatch.setattr(Collectives, "_begin", noted)
    each(ranks, lambda c: c.all_reduce_into([np.ones(5)] * 9, [np.ones(5) for _ in range(9)]))
    assert events == ["begin"] * 9 + ["wait"] * 9


def on_a_map(size: int) -> tuple[mmap.mmap, Array]:
    memory = mmap.mmap(-1, size)
    return memory, np.frombuffer(memory, np.float32)


def test_when_it_raises_nothing_works_on_the_arrays(ranks: Ranks) -> None:
    def call(c: Communicator) -> None:
        for _ in range(3):
            memory, array = on_a_map(8 << 20)
            with pytest.raises(ValueError, match="the mean of floats only"):
                c.all_reduce_into([array, np.arange(3)], [array, np.arange(3)])
            del array
            gc.collect()
            memory.close()  # no operation refers to it, and what still wrote there would end this process

    each(ranks, call)
    each(ranks, check)


def working() -> int:
    """Threads of agents, each for one rank."""
    return sum(thread.name == "gradlane-io" for thread in threading.enumerate())


def test_an_interrupt_ends_what_is_under_way(ranks: Ranks) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    array = np.ones(1 << 20, np.float32)
    assert working() == 2
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            ranks[0].all_reduce_into([array], [array])  # the other one never comes
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert working() < 2  # of rank 0 none
    with pytest.raises(AgentError, match="was closed"):
        ranks[0].barrier()
    with pytest.raises(AgentError, match="rank 0"):
        ranks[1].barrier()
