# SPDX-License-Identifier: Apache-2.0
"""`gradlane serve`: a server's rank of a job (parameter-server mode)."""

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from gradlane.commands import flags


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.add_argument("--job", required=True, type=Path, metavar="FILE", help="the job file")
    parser.add_argument("--rank", required=True, type=int, help="this server's rank in the job file")
    flags.json(parser)
    flags.socket(parser)
    parser.set_defaults(command=run)


def _exit(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def run(options: argparse.Namespace) -> int:
    """Serves until the job's workers have left. Raises AgentError, JobError."""
    from gradlane.client.connection import Connection

    signal.signal(signal.SIGTERM, _exit)
    connection = Connection(options.job, options.rank, socket_path=options.socket)
    print(f"ready: rank {options.rank} of job {connection.job.name}", file=sys.stderr, flush=True)
    counts = connection.wait_closed()
    if options.json:
        print(json.dumps(counts), flush=True)
        return 0
    received, lost = counts.get("slices_delivered", 0), counts.get("slices_lost", 0)
    print(
        f"job {connection.job.name} is over: {received} slices aggregated, {lost} lost within budgets", file=sys.stderr
    )
    return 0
