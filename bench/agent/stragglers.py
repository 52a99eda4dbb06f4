# SPDX-License-Identifier: Apache-2.0
"""What a late worker costs: the time from its arrival to the end of the all-reduce, by who owns how much.

Each host is a network namespace behind a port of limited rate. The last one comes late, or nobody does. Arms: Gloo over
TCP, and Gradlane's ring, direct with equal shares, and direct with `ownership = "adaptive"`, after it has adapted. The
least that can be is the time in which one contribution crosses a port. All processes have the same real-time priority.
docs/measurements/stragglers.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import benchmark
from bench.harness.agent_hosts import MTU, Hosts
from bench.harness.worker import Worker
from gradlane.client import agent_socket
from gradlane.units import checked, parse_rate, parse_size
from lab.command_line import several
from lab.model.errors import ProcessError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

ARMS: dict[str, dict[str, Any]] = {
    "gloo": {},
    "ring": {"collective": "ring"},
    "even": {"collective": "direct"},
    "adaptive": {"ownership": "adaptive"},
}
_WORKER = ("-m", "bench.agent.stragglers_worker")
_BUFFER = 200_000  # bytes of a port, half of what it holds
_SLICE, _FRAME = MTU - 68, 14 + 20 + 8 + 40  # bytes of payload; in front of it
_NOTICE = 0.1  # s from a request to its beginning
_PATIENCE = 60  # all-reduces until it has adapted


@dataclass(frozen=True)
class Result:
    """Medians over `repeats`, seconds. `late`: of the last host; `seconds`: from its arrival to the end.

    `theory`: what crosses the busiest port from then on, at the rate of its payload; `least`: one contribution.
    """

    arm: str
    hosts: int
    late: float
    repeats: int
    seconds: float
    fastest: float
    slowest: float
    theory: float
    least: float


def crossing(arm: str, hosts: int, late: bool) -> float:
    """Contributions that cross the busiest port after the last worker has come, if the others had time for theirs."""
    if arm == "adaptive" and late:
        return 1.0
    return 2 * (hosts - 1) / hosts


def stragglar(hosts: int) -> float:
    """The same of StragglAR's schedule, for a power of two."""
    return (hosts - 2 + math.log2(hosts)) / (hosts - 1)


class Team:
    """The processes of all arms on all hosts, ready. Raises ProcessError."""

    def __init__(self, hosts: Hosts, folder: Path, stack: ExitStack, options: argparse.Namespace) -> None:
        jobs = {
            arm: hosts.write_job(folder / f"{arm}.toml", options.rate, _BUFFER, number=number, transport=transport)
            for number, (arm, transport) in enumerate(ARMS.items(), 1)
            if transport
        }
        self._ids = {arm: f"bench{number}" for number, arm in enumerate(ARMS, 1)}
        self._workers: dict[str, list[Worker]] = {arm: [] for arm in ARMS}
        for host in range(hosts.count):
            _, self._socket = hosts.start_agent(stack, host, folder)
            first = (*_WORKER, f"{host}", f"{hosts.count}", f"{options.size // 4}")
            named = [f"{arm}={job}" for arm, job in jobs.items()]
            gloo = hosts.start(stack, host, "gloo", *first, "gloo", hosts.address(0))
            gradlane = hosts.start(stack, host, "gradlane", *first, str(self._socket), *named)
            for arm in ARMS:
                self._workers[arm].append(gloo if arm == "gloo" else gradlane)
        for arm in ("gloo", "even"):
            for worker in self._workers[arm]:
                worker.wait_for("ready")

    def run(self, arm: str, late: float) -> float:
        """Seconds from the last worker's arrival to the end of an all-reduce."""
        at = time.monotonic() + _NOTICE
        workers = self._workers[arm]
        for worker in workers[:-1]:
            worker.ask({"arm": arm, "at": at})
        workers[-1].ask({"arm": arm, "at": at + late})
        answers = [json.loads(worker.hear()) for worker in workers]
        return max(a["done"] for a in answers) - max(a["begun"] for a in answers)

    def adapt(self, late: float) -> None:
        """All-reduces until the late host owns nothing, or, if it is not late, as much as any."""
        for _ in range(_PATIENCE):
            job = agent_socket.status(self._socket)["jobs"][self._ids["adaptive"]]
            assert "ownership" in job
            assert "step" in job
            shares, first = job["ownership"]["shares"], job["ownership"]["first"]
            if shares[-1] == (0 if late else shares[0]) and job["step"] >= first:
                return
            self.run("adaptive", late)
        raise ProcessError(f"after {_PATIENCE} all-reduces the late host still has a share")


def measure(hosts: Hosts, options: argparse.Namespace) -> list[Result]:
    """The arms in turn, `repeats` times, for each lateness. Raises ExperimentError."""
    results: list[Result] = []
    one = 8 * options.size / (options.rate * _SLICE / (_SLICE + _FRAME))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        team = Team(hosts, Path(folder), stack, options)
        for late in (0.0, options.late / 1e3):
            found: dict[str, list[float]] = {arm: [] for arm in ARMS}
            for arm in ARMS:
                team.run(arm, late)
            team.adapt(late)
            for _ in range(options.repeats):
                for arm, runs in found.items():
                    runs.append(team.run(arm, late))
            for arm, runs in found.items():
                theory = crossing(arm, hosts.count, late > 0) * one
                results.append(
                    Result(arm, hosts.count, late, options.repeats, median(runs), min(runs), max(runs), theory, one)
                )
    return results


def tables(results: Sequence[Result]) -> list[TextTable]:
    """One for all."""
    rows: list[list[str]] = []
    for r in results:
        gloo = next(o for o in results if (o.arm, o.hosts, o.late) == ("gloo", r.hosts, r.late))
        row = [str(r.hosts), f"{r.late * 1e3:.0f}", r.arm, f"{r.seconds * 1e3:.1f}"]
        row += [f"{r.fastest * 1e3:.1f} - {r.slowest * 1e3:.1f}", f"{r.theory * 1e3:.1f}"]
        row += [f"{r.seconds / r.least:.3f}", f"{gloo.seconds / r.seconds:.2f}"]
        row += [f"{stragglar(r.hosts) * r.least / r.seconds:.2f}" if r.late else "-"]
        rows.append(row)
    columns = ["hosts", "late, ms", "arm", "ms", "min - max", "port's bytes, ms", "of one contribution's"]
    columns += ["times Gloo", "times StragglAR's theory"]
    return [TextTable("From the last worker's arrival to the end", columns, rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.stragglers", __doc__, "--hosts 4 --late 500 --repeats 3")
    add = parser.add_argument
    add("--hosts", type=several(int), default=(4, 8), metavar="A,B", help="(default: 4,8)")
    add("--size", type=checked(parse_size), default="2MiB", metavar="S", help="of the array (default: %(default)s)")
    add("--rate", type=checked(parse_rate), default="100mbit", metavar="R", help="of a port (default: %(default)s)")
    add("--late", type=int, default=300, metavar="MS", help="that the last host comes late (default: %(default)s)")
    add("--repeats", type=int, default=15, metavar="N", help="of every measurement (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    results: list[Result] = []
    for count in options.hosts:
        with Hosts(count, rate=options.rate) as hosts:
            results += measure(hosts, options)
    settings = benchmark.chosen(options, "size", "rate", "late")
    present(console, options, "stragglers.json", benchmark.document(settings, results), tables(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
