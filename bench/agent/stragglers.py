# SPDX-License-Identifier: Apache-2.0
"""What late workers and slow links cost: the time from the last worker's arrival to the end of the all-reduce.

Each host is a network namespace behind a port of limited rate. Cases: nobody is late; the last host, or the last two,
come later than the others by a multiple of the time of a reduce-scatter; the last host's link carries half. Arms: Gloo
over TCP, and Gradlane's ring, direct with equal shares, StragglAR, and what `ownership = "adaptive"` chooses, after it
has adapted. Each is compared with what its theory says. All processes have the same real-time priority.
docs/measurements/stragglers.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import benchmark
from bench.harness.agent_hosts import MTU, Hosts
from bench.harness.worker import Worker, wait_for_all
from gradlane.client import agent_socket
from gradlane.job import ownership
from gradlane.job.ownership import Owner
from gradlane.units import checked, parse_rate, parse_size
from lab.command_line import several
from lab.report.console import make_console, present
from lab.report.tables import TextTable

CASES = ("late", "two-late", "slow-link")
_WORKER = ("-m", "bench.agent.stragglers_worker")
_BUFFER = 200_000  # bytes of a port, half of what it holds
_SLICE, _FRAME = MTU - 68, 14 + 20 + 8 + 40  # bytes of payload; in front of it
_NOTICE = 0.1  # s from a request to its beginning
_SETTLED, _RUNS = 13.0, 40  # s and all-reduces without another plan, until it counts as adapted
_PATIENCE = 150.0  # s, at most


def arms(hosts: int) -> dict[str, dict[str, Any]]:
    """`transport` of each arm's job file."""
    return {
        "gloo": {},
        "ring": {"collective": "ring"},
        "even": {"collective": "direct"},
        "stragglar": {"collective": "stragglar", "straggler": hosts - 1},
        "adaptive": {"ownership": "adaptive"},
    }


@dataclass(frozen=True)
class Case:
    """So many of the last hosts come late by `delay` times a reduce-scatter; the last one's link has `link` of the
    rate."""

    name: str
    hosts: int
    late: int = 0
    delay: float = 0.0
    link: float = 1.0


@dataclass(frozen=True)
class Result:
    """Medians over `repeats`, seconds. `delay`: of the late hosts; `seconds`: from the last one's arrival to the end.

    `theory`: what the arm should take by the bytes at the ports; `least`: one contribution at a port; `plan`: what an
    adaptive job has chosen.
    """

    case: str
    arm: str
    hosts: int
    delay: float
    repeats: int
    seconds: float
    fastest: float
    slowest: float
    theory: float
    least: float
    plan: str = ""


def theory(arm: str, case: Case) -> float:
    """Contributions that cross the busiest port after the last worker has come, at the full rate."""
    n, delay = case.hosts, case.delay * (case.hosts - 1) / case.hosts if case.late else 0.0
    if arm == "adaptive" and (case.late or case.link < 1):
        last = n - max(1, case.late)
        owners = [Owner(case.link if k == n - 1 else 1.0, delay if k >= last else 0.0) for k in range(n)]
        whole = ownership.Case(10**9, n, tuple(Owner(o.rate * 8e9, o.late) for o in owners), delay)
        return ownership.seconds(whole, ownership.best(whole)) - delay
    if arm == "stragglar":
        reduce = (n - 2) / (n - 1) - (delay if case.late == 1 else 0.0)
        return max(0.0, reduce) + (n - 2 + math.ceil(math.log2(n))) / (n - 1) / case.link  # the others reduce alone
    return 2 * (n - 1) / n / case.link


class Team:
    """The processes of all arms on all hosts, ready. Raises ProcessError."""

    def __init__(self, hosts: Hosts, folder: Path, stack: ExitStack, options: argparse.Namespace) -> None:
        self.arms = arms(hosts.count)
        jobs = {
            arm: hosts.write_job(folder / f"{arm}.toml", options.rate, _BUFFER, number=number, transport=transport)
            for number, (arm, transport) in enumerate(self.arms.items(), 1)
            if transport
        }
        self.adaptive = f"bench{1 + list(self.arms).index('adaptive')}"  # the job's name
        self.sockets: list[Path] = []
        self._workers: dict[str, list[Worker]] = {arm: [] for arm in self.arms}
        for host in range(hosts.count):
            _, socket = hosts.start_agent(stack, host, folder)
            self.sockets.append(socket)
            first = (*_WORKER, f"{host}", f"{hosts.count}", f"{options.size // 4}")
            named = [f"{arm}={job}" for arm, job in jobs.items()]
            gloo = hosts.start(stack, host, "gloo", *first, "gloo", hosts.address(0))
            gradlane = hosts.start(stack, host, "gradlane", *first, str(socket), *named)
            for arm in self.arms:
                self._workers[arm].append(gloo if arm == "gloo" else gradlane)
        for arm in ("gloo", "even"):
            wait_for_all(stack, self._workers[arm])

    def run(self, arm: str, late: int, seconds: float) -> float:
        """Seconds from the last worker's arrival to the end of an all-reduce to which so many come late."""
        at = time.monotonic() + _NOTICE
        workers = self._workers[arm]
        for k, worker in enumerate(workers):
            worker.ask({"arm": arm, "at": at + (seconds if k >= len(workers) - late else 0.0)})
        answers = [json.loads(worker.hear()) for worker in workers]
        return max(a["done"] for a in answers) - max(a["begun"] for a in answers)

    def _plan(self) -> Any:
        job = agent_socket.status(self.sockets[0])["jobs"][self.adaptive]
        assert "ownership" in job
        return job["ownership"]

    def adapt(self, late: int, seconds: float) -> None:
        """All-reduces until the adaptive job has no other plan for some time."""
        began = changed = time.monotonic()
        plan, runs = self._plan(), 0
        while (time.monotonic() < changed + _SETTLED or runs < _RUNS) and time.monotonic() < began + _PATIENCE:
            self.run("adaptive", late, seconds)
            runs += 1
            if (now := self._plan())["first"] != plan["first"]:
                plan, changed, runs = now, time.monotonic(), 0

    def chosen(self) -> str:
        """The adaptive job's plan."""
        plan = self._plan()
        shares = ":".join(f"{100 * share:.0f}" for share in plan["shares"])
        return plan["algorithm"] if plan["algorithm"] == "ring" else f"{plan['algorithm']} {shares}"


def cases(hosts: int, options: argparse.Namespace) -> Iterator[Case]:
    """What is measured with so many hosts."""
    if "late" in options.cases:
        for delay in options.delays:
            yield Case("late" if delay else "in time", hosts, int(delay > 0), delay)
    if "two-late" in options.cases:
        for delay in options.delays:
            if delay:
                yield Case("two late", hosts, 2, delay)
    if "slow-link" in options.cases:
        yield Case("slow link", hosts, link=0.5)


def measure(hosts: Hosts, options: argparse.Namespace, say: Callable[[str], None]) -> list[Result]:
    """The arms in turn, `repeats` times, for each case. `say` is told how far it is. Raises ExperimentError."""
    results: list[Result] = []
    one = 8 * options.size / (options.rate * _SLICE / (_SLICE + _FRAME))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        team = Team(hosts, Path(folder), stack, options)
        for case in cases(hosts.count, options):
            late = case.delay * one * (case.hosts - 1) / case.hosts
            if case.link < 1:
                hosts.limit_both_ways(case.hosts - 1, round(case.link * options.rate))
            found: dict[str, list[float]] = {arm: [] for arm in options.arms}
            for arm in found:
                team.run(arm, case.late, late)
            title = f"{case.hosts} hosts, {case.name}" + (f" by {late * 1e3:.0f} ms" if late else "")
            if "adaptive" in found:
                say(f"{title}: the adaptive job adapts ...")
                team.adapt(case.late, late)
                say(f"{title}: it has chosen {team.chosen()}")
            for _ in range(options.repeats):
                for arm, runs in found.items():
                    runs.append(team.run(arm, case.late, late))
            say(f"{title}: " + ", ".join(f"{arm} {median(runs) * 1e3:.0f} ms" for arm, runs in found.items()))
            for arm, runs in found.items():
                plan = team.chosen() if arm == "adaptive" else ""
                expected = theory(arm, case) * one
                times = median(runs), min(runs), max(runs)
                results.append(Result(case.name, arm, case.hosts, late, options.repeats, *times, expected, one, plan))
    return results


def tables(results: Sequence[Result]) -> list[TextTable]:
    """One for all."""
    rows: list[list[str]] = []
    for r in results:
        gloo = [o for o in results if (o.arm, o.hosts, o.case, o.delay) == ("gloo", r.hosts, r.case, r.delay)]
        arm = f"{r.arm}: {r.plan}" if r.plan else r.arm
        row = [str(r.hosts), r.case, f"{r.delay * 1e3:.0f}", arm, f"{r.seconds * 1e3:.1f}"]
        row += [f"{r.fastest * 1e3:.1f} - {r.slowest * 1e3:.1f}", f"{r.theory * 1e3:.1f}"]
        row += [f"{r.seconds / r.theory:.3f}", f"{r.seconds / r.least:.3f}"]
        rows.append([*row, f"{gloo[0].seconds / r.seconds:.2f}" if gloo else "-"])
    columns = ["hosts", "case", "late, ms", "arm", "ms", "min - max", "theory, ms", "of theory"]
    columns += ["of one contribution's", "times Gloo"]
    return [TextTable("From the last worker's arrival to the end", columns, rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.stragglers", __doc__, "--hosts 4 --cases late --delays 0,0.5,1,1.5 --repeats 3")
    add = parser.add_argument
    add("--hosts", type=several(int), default=(4, 8), metavar="A,B", help="(default: 4,8)")
    add("--cases", type=several(str), default=("late", "slow-link"), metavar="A,B",
        help=f"of {', '.join(CASES)} (default: late,slow-link)")  # fmt: skip
    add(
        "--arms",
        type=several(str),
        default=tuple(arms(1)),
        metavar="A,B",
        help=f"of {', '.join(arms(1))} (default: all)",
    )
    add("--delays", type=several(float), default=(0.0, 1.5), metavar="A,B",
        help="of late hosts, in times of a reduce-scatter (default: 0,1.5)")  # fmt: skip
    add("--size", type=checked(parse_size), default="2MiB", metavar="S", help="of the array (default: %(default)s)")
    add("--rate", type=checked(parse_rate), default="100mbit", metavar="R", help="of a port (default: %(default)s)")
    add("--repeats", type=int, default=9, metavar="N", help="of every measurement (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    for word, known in ((options.cases, CASES), (options.arms, tuple(arms(1)))):
        if unknown := sorted(set(word) - set(known)):
            raise SystemExit(f"{', '.join(unknown)}: there are {', '.join(known)}")
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    results: list[Result] = []
    for count in options.hosts:
        with Hosts(count, rate=options.rate) as hosts:
            results += measure(hosts, options, lambda text: console.print(text, soft_wrap=True))
    settings = benchmark.chosen(options, "size", "rate", "cases", "delays")
    present(console, options, "stragglers.json", benchmark.document(settings, results), tables(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
