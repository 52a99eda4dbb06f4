# SPDX-License-Identifier: Apache-2.0
"""Runs two jobs that a leaf-spine of gradlane-switch sums for long, while it fails: every result must be exact.

One job is in both racks, summed at leaves and spines, the other one in one rack. In each window both begin anew and are
summed by switches before something fails: a link flaps; a spine, a leaf or the controller is killed and comes back.
Meanwhile a guest, a third job with all the slots that are left, comes and goes; if any slot was kept, it finds no
place. The jobs' processes check every result by themselves. Memory and open files of all processes must not grow: the
most that each holds in the last third of the run is compared with the most in the second.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

from bench.fabric import soaking
from bench.fabric.growth import Held, Usage, grown, held, usage_of
from bench.fabric.soak import Job
from bench.fabric.soak_worker import BYTES
from bench.fabric.soaking import failures
from gradlane.client import agent_socket as agents
from lab.experiment.runner import ready_machine
from lab.model.errors import ControlError, ExperimentError
from lab.model.plan import FabricPlan, HostPlan
from lab.model.topology import Topology
from lab.report.tables import TextTable

_HOSTS = 8  # h1, h3, ... at leaf1
_BUFFER = 64_000
_WINDOW_SECONDS = 10.0  # from when a switch sums both jobs
_START_SECONDS = 60.0
_SLOTS = {"across": 1024, "local": 1024, "guest": 2048}  # all that a switch has


@dataclass
class Window:
    """What happened to the jobs, by name: steps, and the part of them that switches summed; what broke."""

    failure: str
    seconds: float = 0.0
    steps: dict[str, int] = field(default_factory=dict[str, int])
    summed: dict[str, float] = field(default_factory=dict[str, float])
    usage: Usage = field(default_factory=Usage)
    broke: list[str] = field(default_factory=list[str])


@dataclass
class Report:
    """The windows, what was held, and what must not have happened."""

    seconds: float = 0.0
    windows: list[Window] = field(default_factory=list[Window])
    held: Held = field(default_factory=Held)
    failures: list[str] = field(default_factory=list[str])


class SummedJob(Job):
    """A job that switches sum, exactly."""

    def __init__(self, network: Any, name: str, number: int, hosts: Sequence[HostPlan], out: Any) -> None:
        transport = {
            "collective": "switch",
            "wire": "int32",
            "multicast": f"239.1.{number}.1",
            "sum_slots": _SLOTS[name],
        }
        super().__init__(network, name, number, hosts, 0.0, out, transport)
        self._first = hosts[0]

    def summed(self) -> int:
        """Bytes that switches have summed, at the first rank."""
        from lab.net.network import agent_socket

        it = agents.status(agent_socket(self._first))["jobs"].get(self.name)
        return 0 if it is None else it["counts"]["summed_bytes"]

    def wait_for_sums(self) -> None:
        """Until a switch sums it. Raises ExperimentError."""
        deadline = time.monotonic() + _START_SECONDS
        while self.summed() == 0:
            if time.monotonic() > deadline:
                raise ExperimentError(f"no switch sums job {self.name}")
            time.sleep(0.1)


def soak(options: argparse.Namespace, stack: ExitStack) -> Report:
    """Runs it. Raises ExperimentError."""
    from lab.net.network import Network

    plan = FabricPlan.of_hosts(Topology("leafspine", 2, 2), _HOSTS, options.rate, _BUFFER, "gradlane")
    plan = replace(plan, aggregation=True)
    stack.enter_context(ready_machine([plan]))
    network: Any = stack.enter_context(Network(plan, options.out))
    network.start_agents(plan.hosts)
    members = plan.hosts
    jobs = [
        SummedJob(network, "across", 1, members[:4], options.out),
        SummedJob(network, "local", 2, members[4::2], options.out),
    ]
    for job in jobs:
        stack.callback(job.end)
    report, began = Report(), time.monotonic()
    for name, fail in cycle(failures(network).items()):
        window = Window(name)
        try:
            _run_window(network, jobs, window, fail, members[4:6], options.out)
        except ExperimentError as error:
            window.broke.append(str(error))
        window.usage = usage_of(network)
        report.windows.append(window)
        report.failures += [f"{name}: {text}" for text in window.broke]
        elapsed = time.monotonic() - began
        parts = ", ".join(f"{job} {number} steps ({window.summed[job]:.0%})" for job, number in window.steps.items())
        said = f"{elapsed:5.0f} of {options.seconds:.0f} s: {name}: {parts}"
        print(said + "".join(f"; BROKE: {text}" for text in window.broke), file=sys.stderr, flush=True)
        if elapsed >= options.seconds:
            break
    report.seconds = round(time.monotonic() - began, 1)
    report.held = held([window.usage for window in report.windows])
    report.failures += grown(report.held)
    return report


def _run_window(
    network: Any,
    jobs: Sequence[SummedJob],
    window: Window,
    fail: Callable[[], None],
    guests: Sequence[HostPlan],
    out: Any,
) -> None:
    """Raises ExperimentError."""
    for job in jobs:
        job.start()
    for job in jobs:
        job.wait()
        job.wait_for_sums()
        job.look()
    before = {job.name: job.summed() for job in jobs}
    window_began = time.monotonic()
    _invite(lambda: SummedJob(network, "guest", 3, guests, out))
    _invite(lambda: network.controller.delete_job("guest"))
    fail()
    time.sleep(max(0.0, window_began + _WINDOW_SECONDS - time.monotonic()))
    for job in jobs:
        window.steps[job.name], broke = job.look()
        window.broke += broke or ([] if window.steps[job.name] else [f"job {job.name} made no step"])
        whole = window.steps[job.name] * BYTES
        window.summed[job.name] = round(min(1.0, (job.summed() - before[job.name]) / whole), 2) if whole else 0.0
    window.seconds = round(time.monotonic() - window_began, 1)


def _invite(act: Callable[[], object]) -> None:
    """The controller refuses a change while it can't reach a switch, as after a failure; not for long. Raises
    ControlError."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            act()
            return
        except ControlError as error:
            if "slots" in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def table(report: Report) -> TextTable:
    """A row for each failure: of its windows the one with the fewest steps."""
    rows: list[Sequence[str]] = []
    for name in dict.fromkeys(window.failure for window in report.windows):
        windows = [window for window in report.windows if window.failure == name]
        fewest = min(windows, key=lambda it: sum(it.steps.values()))
        cells = [
            f"{number / fewest.seconds:.1f} ({fewest.summed[job]:.0%})" for job, number in fewest.steps.items()
        ] or ["-", "-"]
        rows.append((name, *cells, "; ".join(text for window in windows for text in window.broke) or "-"))
    title = "FAILED" if report.failures else "Every result was exact, no slot was kept, nothing grew"
    columns = ("what failed", "two racks, steps/s (by switches)", "one rack, steps/s (by switches)", "broke")
    return TextTable(f"{title}, in {report.seconds:g} s", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; the exit status: 1 also if something happened that must not."""
    return soaking.main("soak_sums", "soak-sums.json", __doc__, soak, table, arguments)


if __name__ == "__main__":
    sys.exit(main())
