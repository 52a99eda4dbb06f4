# SPDX-License-Identifier: Apache-2.0
"""The processes of one run of the experiment: a worker, a parameter server of the TCP baseline, background bursts.

The experiment runner starts them, each inside its host's network namespace.
"""

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from gradlane.errors import GradlaneError
from gradlane.units import checked, parse_rate
from lab import command_line
from lab.training import bursts, config
from lab.training.config import Config, ConfigError
from lab.training.ps_server import Server
from lab.training.records import Records, explain

_PROG = "lab.train"
_EXAMPLES = """examples:
  python -m lab.train worker --config run.json --rank 0 --out worker0.jsonl
  python -m lab.train server --config run.json --rank 4 --out server4.jsonl
  python -m lab.train bursts --to 10.0.1.2 --to 10.0.2.2 --rate 60mbit --period 0.1 --duty 0.3 --seconds 20
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one process of the run. Exit status: 0 done, 1 failed, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (GradlaneError, OSError, ValueError) as problem:
        return _fail(problem, 2 if isinstance(problem, ConfigError | ValueError) else 1)


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser(_PROG, __doc__, _EXAMPLES)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (("worker", _worker, "train as one rank"), ("server", _server, "serve the ps-tcp arms")):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--config", required=True, help="the run file (JSON)")
        command.add_argument("--rank", required=True, type=int, help="this process' rank; servers follow the workers")
        command.add_argument("--out", required=True, help="file for the records (JSON lines)")
        command.set_defaults(run=run)
    command = commands.add_parser("bursts", help="send background bursts", description="send background bursts (UDP)")
    command.add_argument("--to", required=True, action="append", metavar="ADDRESS", help="a receiver; may be repeated")
    command.add_argument(
        "--rate", required=True, type=checked(parse_rate), help="towards each receiver while on, e.g. 60mbit"
    )
    command.add_argument("--period", required=True, type=float, help="seconds from burst to burst")
    command.add_argument("--duty", required=True, type=float, help="fraction of the period that is on")
    command.add_argument("--seconds", required=True, type=float, help="length of the whole")
    command.add_argument("--start", type=float, default=None, help="CLOCK_MONOTONIC seconds of the first burst (now)")
    command.add_argument("--stagger", action="store_true", help="receivers take turns instead of all at once")
    command.add_argument("--port", type=int, default=bursts.DISCARD_PORT, help="UDP port (9, discard)")
    command.add_argument("--dscp", type=int, default=0, help="of the datagrams (0, best effort)")
    command.set_defaults(run=_bursts)
    command = commands.add_parser("sink", help="discard background bursts", description="discard background bursts")
    command.add_argument("--address", required=True, help="of this host")
    command.add_argument("--port", type=int, default=bursts.DISCARD_PORT, help="UDP port (9, discard)")
    command.set_defaults(run=_sink)
    return parser


def _worker(options: argparse.Namespace) -> int:
    run = config.load(options.config)
    run.worker(options.rank)
    from lab.training import worker  # with PyTorch, which takes seconds to import; only workers need it

    with Records(options.out, options.rank) as records:
        try:
            worker.run(run, options.rank, records)
        except (GradlaneError, RuntimeError, OSError, ImportError, ValueError) as problem:
            _leave(run, options.rank, records, problem)
    return 0


def _server(options: argparse.Namespace) -> int:
    run = config.load(options.config)
    with Records(options.out, options.rank) as records:
        sink = bursts.discard(run.server(options.rank).address, run.discard_port) if run.discard_port else None
        try:
            server = Server(run, options.rank)
            print("ready", file=sys.stderr, flush=True)
            server.serve()
        except (GradlaneError, OSError, ValueError) as problem:
            _leave(run, options.rank, records, problem)
        finally:
            if sink is not None:
                sink.close()
        records.write("final", cpu_seconds=time.process_time())
    return 0


def _bursts(options: argparse.Namespace) -> int:
    plan = bursts.Plan(
        receivers=options.to,
        rate=options.rate,
        period=options.period,
        duty=options.duty,
        start=time.monotonic() if options.start is None else options.start,
        seconds=options.seconds,
        stagger=options.stagger,
        port=options.port,
        dscp=options.dscp,
    )
    print(json.dumps(bursts.send(plan).as_dict()))
    return 0


def _sink(options: argparse.Namespace) -> int:
    ends = {signal.SIGTERM, signal.SIGINT}
    with bursts.discard(options.address, options.port):
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        print("ready", file=sys.stderr, flush=True)
        signal.sigwait(ends)
    return 0


def _leave(run: Config, rank: int, records: Records, problem: Exception) -> NoReturn:
    """Records the error and ends the process at once: threads of Gloo may wait for a dead peer for ever."""
    message, who = explain(run, rank, problem)
    records.write(
        "error",
        error=message,
        culprit=None if who is None else {"rank": who.rank, "host": who.host, "address": who.address},
        traceback=traceback.format_exc(),
    )
    print(f"{_PROG}: rank {rank}: error: {message}", file=sys.stderr, flush=True)
    os._exit(1)


def _fail(problem: Exception, status: int) -> int:
    print(f"{_PROG}: error: {problem}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
