# SPDX-License-Identifier: Apache-2.0
"""Two racks under two spines, of which other traffic makes one busy: steps before the trees have left it, and after.

Cases: gradients that switches sum ("sums"), and results of hosts by multicast ("multicast"). Links between switches
have half the rate of the hosts' ports, so that they are what limits. In each cycle traffic in the gradients' class
comes, takes 60 % of one spine's links to the leaves, and goes. "Before" are the steps of its first seconds, "after"
those from 25 s on. The gain is the median time before, divided by that after.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w

from bench.harness import benchmark
from bench.harness.job import document
from bench.harness.worker import Worker, ask_all, wait_for_all
from gradlane.units import checked, format_rate, parse_rate, parse_size
from lab.command_line import names_of
from lab.experiment.runner import ready_machine
from lab.model.plan import PRIORITY_CLASS, PRIORITY_DSCP, FabricPlan, Role
from lab.model.topology import Topology
from lab.report.console import make_console, present
from lab.report.tables import TextTable

CASES: Mapping[str, Mapping[str, Any]] = {
    "sums": {"collective": "switch", "wire": "int16", "multicast": "239.1.0.1"},
    "multicast": {"collective": "direct", "multicast": "239.1.0.1"},
}
_POLICY = {"queue_classes": [{"layers": [0, 65535], "class": PRIORITY_CLASS}]}
_BUSY = 0.6  # of a link's rate
_BUFFER = 64_000  # bytes
_LEAD = 3.0  # s until traffic begins
_BEFORE = 4.0  # s of it, in which trees are where they were
_AFTER, _END = 25.0, 45.0  # s: they have moved, and rest
_AT_ONCE = 3  # steps between two looks at the clock


class Racks(FabricPlan):
    """A leaf-spine with links of half the rate of hosts' ports; traffic comes from a host at the first spine."""

    @staticmethod
    def of_rate(rate: int) -> Racks:
        """`rate`: of hosts' ports."""
        topology = Topology("leafspine", 2, 2)
        roles: list[tuple[Role, str]] = [("worker", leaf) for leaf in topology.edges for _ in range(2)]
        roles.append(("traffic", "spine1"))
        sinks: list[tuple[Role, str]] = [("sink", leaf) for leaf in topology.edges]
        return Racks(topology, (*roles, *sinks), rate, _BUFFER, topology.targets("gradlane"), aggregation=True)

    @property
    def link_rate(self) -> int:
        """Of links between switches, in bit/s."""
        return self.rate // 2

    def port_settings(self, switch: str) -> dict[int, str]:
        """What follows the interface in a port's description, by number."""
        half = f"rate={format_rate(self.link_rate)},buffer={self.buffer}B"
        return super().port_settings(switch) | {end.port: half for end in self.link_ends(switch)}

    def document(self) -> dict[str, Any]:
        """The fabric file, before it is TOML."""
        found = super().document()
        for link in found["link"]:
            link["rate"] = format_rate(self.link_rate)
        return found


@dataclass
class Cycle:
    """`alone`, `before` and `after`: s of each step, the longest of all ranks; `buckets` of each spine, in the end of
    `before` and of `after`."""

    case: str
    alone: list[float] = field(default_factory=list[float])
    before: list[float] = field(default_factory=list[float])
    after: list[float] = field(default_factory=list[float])
    buckets: list[Mapping[str, int]] = field(default_factory=list[Mapping[str, int]])

    @property
    def gain(self) -> float:
        """How many times as fast steps are after the trees have moved."""
        return median(self.before) / median(self.after)


class Job:
    """The workers of a case, ready. Raises ExperimentError."""

    def __init__(self, network: Any, case: str, elements: int, out: Path, stack: ExitStack) -> None:
        from lab.net.network import agent_socket

        self._network, self._elements = network, elements
        plan, self._hosts = network.plan, network.plan.of_role("worker")
        members = [(host.name, host.address) for host in self._hosts]
        made = dict(document(case, 1, members, plan.rate, _BUFFER, 0.0, CASES[case]))
        made |= {"policy": _POLICY}
        file = out / f"{case}.toml"
        file.write_text(tomli_w.dumps(made), encoding="utf-8")
        network.controller.put_job(made)
        stack.callback(network.controller.delete_job, case)
        self._workers: list[Worker] = []
        for rank, host in enumerate(self._hosts):
            words = map(str, (rank, len(self._hosts), file, agent_socket(host)))
            argv = [sys.executable, "-m", "bench.fabric.busy_spine_worker", *words]
            worker = Worker(
                f"worker {rank}", network.fabric.inside(host.name, argv), environment={"OMP_NUM_THREADS": "1"}
            )
            self._workers.append(stack.enter_context(worker))
        wait_for_all(stack, self._workers, 120)

    @property
    def buckets(self) -> Mapping[str, int]:
        """By spine; none if switches do not sum."""
        (job,) = self._network.controller.status()["jobs"]
        return (job["sums"] or {"roots": {}})["roots"]

    def steps(self, until: float, buckets: Mapping[str, int] | None = None) -> list[float]:
        """At least one, until that time; or until the buckets are no longer those: what came then does not count."""
        found: list[float] = []
        while not found or time.monotonic() < until:
            answers = ask_all(self._workers, {"elements": self._elements, "count": _AT_ONCE})
            if buckets is not None and self.buckets != buckets:
                break
            found += [max(of_all) for of_all in zip(*(it["seconds"] for it in answers), strict=True)]
        return found


def _start_sinks(network: Any) -> None:
    for host in network.plan.of_role("sink"):
        argv = [sys.executable, "-m", "lab.train", "sink", "--address", host.address, "--port", "9"]
        network.supervisor.start(f"sink of {host.name}", network.fabric.inside(host.name, argv)).wait_ready(60)


def _start_traffic(network: Any, start: float, seconds: float) -> None:
    plan = network.plan
    (source,) = plan.of_role("traffic")
    to = [word for host in plan.of_role("sink") for word in ("--to", host.address)]
    when = ["--period", "1", "--duty", "1", "--seconds", f"{seconds:g}", "--start", f"{start:.6f}"]
    what = ["--rate", format_rate(round(_BUSY * plan.link_rate)), "--port", "9", "--dscp", str(PRIORITY_DSCP)]
    argv = [sys.executable, "-m", "lab.train", "bursts", *to, *when, *what]
    network.supervisor.start(f"traffic from {start:.0f} on", network.fabric.inside(source.name, argv))


def measure(network: Any, case: str, options: argparse.Namespace, say: Callable[[str], None]) -> list[Cycle]:
    """All cycles of a case. Raises ExperimentError."""
    found: list[Cycle] = []
    with ExitStack() as stack:
        job = Job(network, case, options.size // 4, options.out, stack)
        for _ in range(options.cycles):
            cycle = Cycle(case, alone=job.steps(time.monotonic() + 5))
            start = time.monotonic() + _LEAD
            _start_traffic(network, start, _END)
            time.sleep(_LEAD + 0.2)
            cycle.buckets.append(job.buckets)
            cycle.before = job.steps(start + _BEFORE, cycle.buckets[0])
            time.sleep(max(0.0, start + _AFTER - time.monotonic()))
            cycle.after = job.steps(start + _END - 1)
            cycle.buckets.append(job.buckets)
            found.append(cycle)
            times = ", ".join(
                f"{name} {1e3 * median(getattr(cycle, name)):.0f} ms" for name in ("alone", "before", "after")
            )
            say(f"{case}: {times}; buckets {cycle.buckets}")
            time.sleep(_AFTER + 60 if case == "sums" else _AFTER)  # until trees are back, to the last bucket
    return found


def table(cycles: Sequence[Cycle]) -> TextTable:
    """A row for each case, of the medians of all cycles."""
    rows: list[Sequence[str]] = []
    for case in dict.fromkeys(it.case for it in cycles):
        own = [it for it in cycles if it.case == case]
        times = [
            f"{1e3 * median([s for it in own for s in getattr(it, name)]):.0f}" for name in ("alone", "before", "after")
        ]
        gains = [it.gain for it in own]
        buckets = " / ".join(dict.fromkeys(str(it.buckets[-1].get("spine1", "-")) for it in own))
        rows.append([case, *times, f"{median(gains):.2f}", f"{min(gains):.2f} - {max(gains):.2f}", buckets])
    columns = ["case", "alone, ms", "before, ms", "after, ms", "gain", "min - max", "buckets at the busy spine"]
    return TextTable("Beside a busy spine", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("fabric.busy_spine", __doc__, "--cases sums --cycles 2")
    add = parser.add_argument
    known = f"of {', '.join(CASES)} (default: all)"
    add("--cases", type=names_of(CASES, "case"), default=tuple(CASES), metavar="A,B", help=known)
    add("--cycles", type=int, default=3, metavar="N", help="of other traffic (default: %(default)s)")
    rate, size = checked(parse_rate), checked(parse_size)
    add("--rate", type=rate, default="20mbit", metavar="R", help="of every host's port (default: %(default)s)")
    add("--size", type=size, default="256KiB", metavar="S", help="of the gradient (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    from lab.net.network import Network

    console = make_console(to_stderr=options.json)
    options.out.mkdir(parents=True, exist_ok=True)
    plan, cycles = Racks.of_rate(options.rate), list[Cycle]()
    with ready_machine([plan]), Network(plan, options.out / "run") as network:
        network.start_agents(plan.of_role("worker"))
        _start_sinks(network)
        for case in options.cases:
            cycles += measure(network, case, options, console.print)
    chosen = benchmark.chosen(options, "cycles", "rate", "size")
    present(console, options, "busy-spine.json", benchmark.document(chosen, cycles), [table(cycles)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
