# SPDX-License-Identifier: Apache-2.0
"""How long a job of many ranks takes to join and to leave, and what an agent holds and does meanwhile.

All agents run on this machine, on addresses of one loopback, and have started before. Each has one training process,
which only joins. docs/measurements/agent.md has the figures.
"""

import argparse
import resource
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness import benchmark
from bench.harness.agent_hosts import Loopback
from bench.harness.usage import private_memory, processor_time
from bench.harness.worker import Worker
from gradlane import wire
from gradlane.client import agent_socket
from gradlane.ipc import messages
from lab.command_line import several
from lab.model.errors import ExperimentError, UsageError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_MOST_RANKS = wire.MAX_RANKS
_AT_ONCE = 8  # agents that start at once
_PATIENCE = 120.0
_STARTED = 30.0  # seconds


@dataclass(frozen=True)
class Result:
    """Of one join. `seconds`: until the last process has its answer; `processor`: seconds of a core, of all agents
    together. Bytes of memory of an agent alone: `before` the join, then of rank 0, and the median of the others.
    `idle`: seconds of a core that an agent uses in one second while nothing is reduced; `leave`: seconds until the last
    process has left, and `leave_processor` seconds of a core of all agents until then."""

    ranks: int
    seconds: float
    processor: float
    before: float
    rank_0: float
    others: float
    idle: float
    leave: float
    leave_processor: float


def _say(connections: Sequence[socket.socket], expected: str) -> float:
    """When the last has got this answer; on the monotonic clock. Raises ExperimentError."""
    for rank, connection in enumerate(connections):
        while True:
            message, descriptors = messages.receive(connection)
            messages.close(descriptors)
            if message["op"] == "error":
                raise ExperimentError(f"rank {rank} of {len(connections)}: {message['message']}")
            if message["op"] == expected:
                break
    return time.monotonic()


def measure(hosts: Loopback, ranks: int, idle: float, folder: Path) -> Result:
    """One join. Raises ExperimentError, ProcessError."""
    file = hosts.write_job(folder / "join.toml", 1_000_000_000, 1_000_000, hosts=range(ranks))
    job = file.read_text(encoding="utf-8")
    with ExitStack() as stack:
        agents: list[Worker] = []
        paths = [folder / f"agent{rank}.sock" for rank in range(ranks)]
        for first in range(0, ranks, _AT_ONCE):
            some = range(first, min(ranks, first + _AT_ONCE))
            for rank in some:
                words = ("agent", "--address", hosts.address(rank), "--socket", str(paths[rank]))
                agents.append(
                    hosts.start(stack, rank, "the agent", "-m", "gradlane.cli", *words, asked=False, logs=True)
                )
            for rank in some:
                agents[rank].wait_for("ready", _STARTED)
        pids = [agent.pid for agent in agents]
        before = median(map(private_memory, pids))
        connections: list[socket.socket] = []
        used, begun = sum(map(processor_time, pids)), time.monotonic()
        for rank, path in enumerate(paths):
            connections.append(stack.enter_context(agent_socket.connect(path, _PATIENCE)))
            join = {
                "op": "join",
                "version": messages.VERSION,
                "job": job,
                "file": str(file),
                "rank": rank,
                "process": 0,
            }
            messages.send(connections[rank], join)
        joined = _say(connections, "joined")
        processor = sum(map(processor_time, pids)) - used
        held = list(map(private_memory, pids))
        used = sum(map(processor_time, pids))
        time.sleep(idle)
        idling = (sum(map(processor_time, pids)) - used) / idle / ranks
        used, leaving = sum(map(processor_time, pids)), time.monotonic()
        for connection in connections:
            messages.send(connection, {"op": "close"})
        left = _say(connections, "closed")
        leave_processor = sum(map(processor_time, pids)) - used
        for agent in agents:
            agent.begin_to_end()  # all at once: the end of a process takes time of a core, too
    return Result(
        ranks,
        round(joined - begun, 4),
        round(processor, 4),
        before,
        held[0],
        median(held[1:]),
        round(idling, 5),
        round(left - leaving, 4),
        round(leave_processor, 4),
    )


def table(results: Sequence[Result]) -> TextTable:
    """A row for each number of ranks."""
    columns = (
        "ranks", "joined after, s", "core s, all agents", "ms of each", "MiB before", "rank 0", "others",
        "idle, ms of a core/s", "left after, s", "ms of each",
    )  # fmt: skip
    rows = [
        [
            f"{it.ranks}", f"{it.seconds:.2f}", f"{it.processor:.1f}", f"{it.processor / it.ranks * 1e3:.0f}",
            *(f"{size / (1 << 20):.1f}" for size in (it.before, it.rank_0, it.others)),
            f"{it.idle * 1e3:.1f}", f"{it.leave:.2f}", f"{it.leave_processor / it.ranks * 1e3:.1f}",
        ]
        for it in results
    ]  # fmt: skip
    return TextTable("Joining a job", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.join", __doc__, "--ranks 32,64 --json > join.json")
    add = parser.add_argument
    add("--ranks", type=several(int), default=(8, 32, 64, 128, 256), metavar="A,B", help="(default: 8,32,64,128,256)")
    add("--idle", type=float, default=10.0, metavar="S", help="watched when all have joined (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    if wrong := [ranks for ranks in options.ranks if not 2 <= ranks <= _MOST_RANKS]:
        raise UsageError(f"--ranks: {wrong[0]} must be 2 to {_MOST_RANKS}")
    if not 1 <= options.idle <= 600:
        raise UsageError("--idle must be 1 to 600")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for ranks in options.ranks:
        with Loopback(ranks) as hosts:
            results.append(measure(hosts, ranks, options.idle, options.out))
        console.print(f"{ranks} ranks: joined after {results[-1].seconds:.2f} s", soft_wrap=True)
    settings = benchmark.chosen(options, "idle")
    present(console, options, "join.json", benchmark.document(settings, results), [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
