# SPDX-License-Identifier: Apache-2.0
"""Communicators of all ranks of a job, in one process, on agents that run."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gradlane import Communicator
from tests.support import running_agents
from tests.support.running_agents import Agent, loopback

Ranks = list[Communicator]


def job_file(folder: Path, hosts: int, processes: int = 1, transport: str = "", loss: str = "") -> Path:
    lines = f'buffer = "4MB"\n{transport}\n[loss]\n{loss}'
    return running_agents.job_file(folder, loopback(hosts), lines=lines, processes=processes)


@contextlib.contextmanager
def joined(hosts: list[Agent], file: Path, count: int, processes: int = 1) -> Iterator[Ranks]:
    """A communicator for each rank of the job."""
    with ThreadPoolExecutor(count * processes) as pool:
        places = range(count * processes)
        ranks = list(pool.map(lambda rank: Communicator(file, rank, hosts[rank // processes].socket), places))
        yield ranks
        list(pool.map(Communicator.close, ranks))


def each(ranks: Any, function: Callable[[Any], Any]) -> list[Any]:
    """The function at all ranks at once."""
    with ThreadPoolExecutor(len(ranks)) as pool:
        return [future.result(60) for future in [pool.submit(function, rank) for rank in ranks]]
