# SPDX-License-Identifier: Apache-2.0
"""Starts the processes of a run."""

import faulthandler
import os
import sys
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from lab.training.config import Config
from tests.support.forkserver import FORKSERVER

Process = ForkServerProcess
PATIENCE = 180.0  # seconds that a process may take; before that it says where it hangs


def start(config: Config, folder: Path) -> list[Process]:
    """The workers in rank order, then the servers if the arm has any; `folder` takes their records and errors."""
    folder.mkdir(exist_ok=True)
    config.save(folder / "run.json")
    roles = [("worker", node) for node in config.workers]
    if config.effective_arm.servers:
        roles += [("server", node) for node in config.servers]
    started: list[Process] = []
    for role, node in roles:
        files = ["--config", str(folder / "run.json"), "--out", str(folder / f"{node.rank}.jsonl")]
        arguments = [role, "--rank", str(node.rank), *files]
        process = FORKSERVER.Process(target=_run, args=(arguments, folder / f"{node.rank}.err"), daemon=True)
        process.start()
        started.append(process)
    return started


def _run(arguments: list[str], errors: Path) -> None:
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT), 2)
    faulthandler.dump_traceback_later(PATIENCE - 5, file=2)
    from lab import train  # with PyTorch

    sys.exit(train.main(arguments))
