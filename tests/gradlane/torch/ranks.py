# SPDX-License-Identifier: Apache-2.0
"""The processes of a job, forked from one that has imported PyTorch already."""

import contextlib
import faulthandler
import os
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tests.support.agents import Agent, Within
from tests.support.forkserver import FORKSERVER

PATIENCE = 180.0  # seconds that the processes of a test may take


def template(**changes: str) -> str:
    """The text of a job file without members."""
    values = {"push": "0.0", "wire": "float32", "loss": ""} | changes
    return (
        '[job]\nname = "torch"\nid = 9\nkey = "00112233445566aa00112233445566aa"\n'
        f'[transport]\nrate = "1gbit"\nwire = "{values["wire"]}"\n'
        f"[loss]\npush = {values['push']}\n{values['loss']}\n"
    )


def job_file(path: Path, agents: Sequence[Agent | Within], processes: int = 1, **changes: str) -> Path:
    """Writes a job file with a worker for each agent."""
    from gradlane import job

    path.write_text(job.fill(template(**changes), [(f"h{k}", a.address, processes) for k, a in enumerate(agents)]))
    return path


def run(
    function: Callable[..., Any],
    agents: Sequence[Agent | Within],
    job: Path,
    *arguments: Any,
    processes: int = 1,
    environment: dict[str, str] | None = None,
) -> list[Any]:
    """`function(rank, size, folder, *arguments)` in a process for each rank; their results. `environment`: that of all
    of them instead of the job file's.

    Raises AssertionError with the traceback of the rank that failed first.
    """
    size = len(agents) * processes
    pipes: list[Connection] = []
    children: list[Any] = []
    folder = job.parent / f"{function.__name__}-{len(list(job.parent.iterdir()))}"
    folder.mkdir()
    for rank in range(size):
        mine, theirs = FORKSERVER.Pipe()
        own = {"GRADLANE_JOB": str(job)} if environment is None else environment
        own = own | {"GRADLANE_SOCKET": str(agents[rank // processes].socket)}
        own |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(processes)}
        child = FORKSERVER.Process(
            target=_child, args=(theirs, own, function, (rank, size, str(folder), *arguments)), daemon=True
        )
        child.start()
        theirs.close()
        pipes.append(mine)
        children.append(child)
    results: dict[int, Any] = {}
    try:
        while len(results) < size:
            ready = wait([pipe for rank, pipe in enumerate(pipes) if rank not in results], PATIENCE)
            assert ready, f"ranks {sorted(set(range(size)) - set(results))} have said nothing for {PATIENCE} s"
            for pipe in ready:
                rank = pipes.index(pipe)  # pyright: ignore[reportArgumentType]
                try:
                    good, results[rank] = pipes[rank].recv()
                except EOFError:
                    good, results[rank] = True, None  # it ended without a word, as the test wants it
                assert good, f"rank {rank}:\n{results[rank]}"
    finally:
        for child in children:
            child.join(5)
            child.kill()
    return [results[rank] for rank in range(size)]


def _child(pipe: Connection, environment: dict[str, str], function: Callable[..., Any], arguments: Any) -> None:
    import torch

    faulthandler.dump_traceback_later(PATIENCE - 5, exit=True)  # says where it hangs
    os.environ.update(environment)
    warnings.simplefilter("ignore")  # torch's own, of what it will rename
    torch.set_num_threads(1)
    try:
        pipe.send((True, function(*arguments)))
    except BaseException:
        pipe.send((False, traceback.format_exc()))
        raise


def init(backend: str, rank: int, size: int, folder: str) -> None:
    """Makes torch.distributed's default group."""
    import torch.distributed as dist

    store = dist.FileStore(f"{folder}/{backend}", size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=120))


@contextlib.contextmanager
def process_group(backend: str, rank: int, size: int, folder: str) -> Generator[None]:
    """torch.distributed's default group, destroyed at the end of the block if that is reached."""
    import torch.distributed as dist

    init(backend, rank, size, folder)
    yield
    dist.destroy_process_group()
