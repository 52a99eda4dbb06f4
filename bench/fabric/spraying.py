# SPDX-License-Identifier: Apache-2.0
"""Slices that are sprayed over all ways against flows that keep to one by their hash (ECMP): time of an all-reduce.

The same hosts and links, and in each of several assignments other addresses, so that flows meet elsewhere. Cases:
nothing else on the fabric ("alone"; "oversubscribed": twice as many hosts at a leaf; "tiers": three of them), other
traffic that takes 60 % of a spine's links ("busy"), a link that has half the rate that the controller knows ("slow"),
and a spine that dies with its links ("failure"), or whose process does alone ("process"). The gain is ECMP's median
time, divided by that of spraying.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import tomli_w

from bench.fabric.spraying_fabric import Plan, ThreeTiers, members, plan
from bench.harness import benchmark
from bench.harness.job import document
from bench.harness.netns import run
from bench.harness.worker import Worker, ask_all, wait_for_all
from gradlane.units import checked, format_rate, parse_rate, parse_size
from lab.command_line import names_of
from lab.experiment.runner import ready_machine
from lab.model.errors import ControlError, LabError
from lab.model.preconditions import find_program
from lab.model.topology import Topology
from lab.report.console import make_console, present
from lab.report.tables import TextTable

ARMS = ("spraying", "ecmp")
_POLICY = {"queue_classes": [{"layers": [0, 65535], "class": 5}]}
_DSCP = 46  # of the other traffic: it is in the gradients' class
_BUSY = 0.6  # of a link's rate
_BUFFER = 32_000  # bytes
_READY_SECONDS = 60.0
_DIES_AFTER = 3  # steps, at the latest
_SLOW_STEP = 1.3  # of the median: a step that takes longer is not as the others are
_STEADY_STEPS = 3  # in a row that are as the others are: what was lost has been recovered


@dataclass(frozen=True)
class Case:
    """`spines`: of a leaf-spine; 0: three tiers. `hosts`: at a leaf. `fails`: a spine dies, with its links; or these
    keep their `carriers`. `parts`: so many steps instead of one, each of such a part of the array."""

    leaves: int = 4
    hosts: int = 2
    spines: int = 2
    busy: bool = False
    slow: bool = False
    fails: bool = False
    carriers: bool = False
    parts: int = 1

    def plan(self, rate: int, addresses: int) -> Plan:
        """Its fabric."""
        topology = Topology("leafspine", self.leaves, self.spines) if self.spines else ThreeTiers("leafspine")
        return plan(topology, self.hosts, rate, _BUFFER, addresses, busy=self.busy, slow=self.slow)


CASES: Mapping[str, Case] = {
    "alone": Case(),
    "oversubscribed": Case(leaves=2, hosts=4),
    "tiers": Case(spines=0),
    "busy": Case(busy=True),
    "slow": Case(slow=True),
    # The two that are left carry what the hosts send. Recovery is seen to within a step, so steps are short.
    "failure": Case(spines=3, fails=True, parts=4),
    "process": Case(spines=3, fails=True, carriers=True, parts=4),
}


@dataclass(frozen=True)
class Result:
    """One arm in one assignment. `seconds`: of each all-reduce, the longest of all ranks. `unevenness`: the bytes of
    the link between switches that carried most, by the mean of all. `recovery`: s from the death of the spine until
    all-reduces took as long as they do afterwards; None: it lived."""

    case: str
    assignment: int
    arm: str
    seconds: Sequence[float]
    unevenness: float
    recovery: float | None = None


class Team:
    """The workers of one assignment, ready; a job of its own. Raises ExperimentError."""

    def __init__(self, network: Any, plan: Plan, assignment: int, out: Path, stack: ExitStack) -> None:
        from lab.net.network import agent_socket

        hosts = members(plan, assignment)
        self._network = network
        self._job = dict(document(f"spraying{assignment}", 1 + assignment, hosts, plan.rate, plan.buffer, 0.0))
        self._job["transport"] |= {"collective": "direct"}
        self.choose("spraying")
        file = out / "job.toml"
        file.write_text(tomli_w.dumps(self._job), encoding="utf-8")
        stack.callback(self._forget)
        self.workers: list[Worker] = []
        for rank, host in enumerate(plan.of_role("worker")):
            words = ("gradlane", str(rank), str(len(hosts)), str(file), agent_socket(host))
            inside = network.fabric.inside(host.name, [sys.executable, "-m", "bench.agent.all_reduce_worker", *words])
            worker = Worker(f"worker {rank}", inside, environment={"OMP_NUM_THREADS": "1"})
            self.workers.append(stack.enter_context(worker))
        wait_for_all(stack, self.workers, 120)

    def choose(self, arm: str) -> None:
        """From now on the switches spray the job's slices, or they don't."""
        controller, end = self._network.controller, time.monotonic() + _READY_SECONDS
        while True:  # a busy machine may lose sessions at any time
            controller.wait_ready(_READY_SECONDS)
            try:
                return controller.put_job({**self._job, "policy": {**_POLICY, "spray": arm == "spraying"}})
            except ControlError:
                if time.monotonic() > end:
                    raise

    def _forget(self) -> None:
        with suppress(LabError):
            self._network.controller.delete_job(self._job["job"]["name"])


def _start_agents(network: Any, plan: Plan) -> None:
    """With all addresses of their hosts."""
    from lab.net.network import agent_socket

    agents: list[Any] = []
    for host in plan.of_role("worker"):
        addresses = plan.addresses_of(host)
        for address in addresses:
            run(*network.fabric.inside(host.name, ["ip", "address", "add", f"{address}/24", "dev", host.interface]))
        words = [word for address in addresses for word in ("--address", address)]
        argv = [find_program("gradlane"), "agent", *words, "--socket", agent_socket(host)]
        agents.append(network.supervisor.start(f"agent of {host.name}", network.fabric.inside(host.name, argv)))
    for agent in agents:
        agent.wait_ready(60)


def _start_traffic(network: Any, plan: Plan) -> None:
    """What else is on the fabric: at a steady rate, until the network ends."""
    to: list[str] = []
    for host in plan.of_role("sink"):
        argv = [sys.executable, "-m", "lab.train", "sink", "--address", host.address, "--port", "9"]
        network.supervisor.start(f"sink of {host.name}", network.fabric.inside(host.name, argv)).wait_ready(60)
        to += ["--to", host.address]
    (source,) = plan.of_role("traffic")
    when = ["--period", "1", "--duty", "1", "--seconds", "86400", "--start", f"{time.monotonic():.6f}"]
    what = ["--rate", format_rate(round(_BUSY * plan.rate)), "--port", "9", "--dscp", str(_DSCP)]
    argv = [sys.executable, "-m", "lab.train", "bursts", *to, *when, *what]
    network.supervisor.start("other traffic", network.fabric.inside(source.name, argv))


def _measure(network: Any, team: Team, elements: int, steps: int) -> tuple[list[dict[str, Any]], float]:
    """All ranks' answers, and how uneven the links were."""
    before = network.fabric.bytes_sent()
    request = {"variant": "shared", "elements": elements, "count": steps}
    answers = ask_all(team.workers, request)
    carried = [count - before[end] for end, count in network.fabric.bytes_sent().items()]
    return answers, max(carried) / fmean(carried)


def recovery(seconds: Sequence[float], death: float) -> float:
    """s from the `death` until a rank's steps took as long again as most of them do, three in a row: until the end of
    the slow one before these, or of the last step. `seconds`: of all steps, `death`: from the first's beginning."""
    longest, end, last, steady = _SLOW_STEP * median(seconds), 0.0, death, 0
    for took in seconds:
        end += took
        if end <= death:
            continue
        if took > longest:
            last, steady = end, 0
            continue
        steady += 1
        if steady == _STEADY_STEPS:
            break
    return last - death


def _measure_death(
    network: Any, team: Team, elements: int, steps: int, carriers: bool
) -> tuple[list[dict[str, Any]], float, float]:
    """Also: the recovery of the rank that took longest. The spine dies while the steps are under way, and is back at
    the end."""
    ([first, *_], _) = _measure(network, team, elements, 1)
    died: list[float] = []

    def die() -> None:
        died.append(time.monotonic())
        network.fail_switch("spine1", links=not carriers)

    # Two steps come before those that are measured.
    timer = threading.Timer((_DIES_AFTER + 1.5) * first["seconds"][0], die)
    timer.start()
    answers, unevenness = _measure(network, team, elements, steps)
    timer.join()
    network.restore_switch("spine1")
    return answers, unevenness, max(recovery(it["seconds"], died[0] - it["begun"]) for it in answers)


def measure(name: str, options: argparse.Namespace, say: Callable[[str], None]) -> list[Result]:
    """One case: all assignments, both arms in each. Raises ExperimentError."""
    from lab.net.network import Network

    case, found = CASES[name], list[Result]()
    fabric = case.plan(options.rate, options.assignments)
    elements, steps = options.size // 4 // case.parts, options.steps * case.parts
    with ready_machine([fabric]), Network(fabric, options.out / "run") as network:
        _start_agents(network, fabric)
        if case.busy:
            _start_traffic(network, fabric)
        for assignment in range(options.assignments):
            network.reload_controller(fabric.assigned(assignment))
            with ExitStack() as stack:
                team = Team(network, fabric, assignment, options.out, stack)
                for arm in ARMS if assignment % 2 else reversed(ARMS):
                    team.choose(arm)
                    after = None
                    if case.fails:
                        answers, unevenness, after = _measure_death(network, team, elements, steps, case.carriers)
                    else:
                        answers, unevenness = _measure(network, team, elements, steps)
                    seconds = [max(of_all) for of_all in zip(*(it["seconds"] for it in answers), strict=True)]
                    found.append(Result(name, assignment, arm, seconds, unevenness, after))
                    say(f"{name}, assignment {assignment}, {arm}: {1e3 * median(found[-1].seconds):.0f} ms")
    return found


def gains(results: Sequence[Result], case: str) -> list[float]:
    """By assignment: the time of ECMP, divided by that of spraying."""
    times = {(it.assignment, it.arm): median(it.seconds) for it in results if it.case == case}
    return [times[number, "ecmp"] / times[number, "spraying"] for number, arm in times if arm == "spraying"]


def table(results: Sequence[Result]) -> TextTable:
    """A row for each case."""
    rows: list[Sequence[str]] = []
    for case in dict.fromkeys(it.case for it in results):
        of_arm = {arm: [it for it in results if (it.case, it.arm) == (case, arm)] for arm in ARMS}
        gain = gains(results, case)
        row = [case, f"{fmean(gain):.2f}", f"{min(gain):.2f} - {max(gain):.2f}"]
        for runs in of_arm.values():
            times = [1e3 * median(it.seconds) for it in runs]
            row += [f"{fmean(times):.0f} ({max(times):.0f})", f"{fmean(it.unevenness for it in runs):.2f}"]
        recoveries = [[it.recovery for it in runs if it.recovery is not None] for runs in of_arm.values()]
        row += ["-" if not seconds else f"{fmean(seconds):.2f} ({max(seconds):.2f})" for seconds in recoveries]
        rows.append(row)
    columns = ["case", "gain", "min - max"]
    columns += [f"{arm}, {what}" for arm in ARMS for what in ("ms (longest)", "fullest link")]
    columns += [f"{arm}, recovery, s (longest)" for arm in ARMS]
    return TextTable("Spraying against ECMP", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("fabric.spraying", __doc__, "--cases busy,slow --assignments 3")
    add = parser.add_argument
    known = f"of {', '.join(CASES)} (default: all)"
    add("--cases", type=names_of(CASES, "case"), default=tuple(CASES), metavar="A,B", help=known)
    add("--assignments", type=int, default=20, metavar="N", help="of addresses (default: %(default)s)")
    add("--steps", type=int, default=8, metavar="N", help="measured, of an arm (default: %(default)s)")
    rate, size = checked(parse_rate), checked(parse_size)
    add("--rate", type=rate, default="5mbit", metavar="R", help="of every link (default: %(default)s)")
    add("--size", type=size, default="128KiB", metavar="S", help="of the array (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[Result] = []
    for name in options.cases:
        results += measure(name, options, console.print)
    chosen = benchmark.chosen(options, "assignments", "steps", "rate", "size")
    present(console, options, "spraying.json", benchmark.document(chosen, results), [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
