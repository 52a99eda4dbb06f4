# SPDX-License-Identifier: Apache-2.0
"""The longest completions: incast of all hosts to one at a shallow port; all-reduces over a link that loses at random.

Hosts are namespaces around one gradlane-switch. Incast: gradlane against TCP over open connections, with several
congestion controls, on links of several rates. Loss: one of four hosts' links loses frames of both directions, and the
job tolerates more than that.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import tomli_w

from bench.harness import benchmark, job
from bench.harness.figure import panels
from bench.harness.netns import run
from bench.harness.worker import Worker, ask_all, wait_for_all
from gradlane.units import checked, parse_rate, parse_size
from lab.command_line import several
from lab.experiment.runner import ready_machine
from lab.model.plan import FabricPlan, HostPlan
from lab.model.topology import Topology
from lab.net.interfaces import lossy
from lab.net.network import Network, agent_socket
from lab.report.console import make_console, present
from lab.report.tables import TextTable

LOSSES = (0.0, 0.0001, 0.001, 0.01, 0.05)
_CONTROLS = ("cubic", "reno", "bbr")
_TOLERANCE = 0.1
# All-reduces that lose: messages of many slices lose what is lost on average; the links, not the CPU, are the limit.
_LOSS_HOSTS, _LOSS_RATE, _LOSS_BYTES, _FEWER = 4, 100_000_000, 4 << 20, 8
_WORKER = ("-m", "bench.transport.tails_worker")


@dataclass(frozen=True)
class Result:
    """`transport`, and `rate` (bit/s) and `loss` of the links; seconds of completions."""

    case: str
    transport: str
    rate: int
    loss: float
    count: int
    p50: float
    p99: float
    longest: float


def _result(case: str, transport: str, rate: int, loss: float, seconds: Sequence[float]) -> Result:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return Result(case, transport, rate, loss, len(ordered), median(ordered), p99, ordered[-1])


class Team:
    """The processes of one transport, one on each host. Raises ProcessError."""

    def __init__(self, network: Network, commands: Sequence[Sequence[str]], stack: ExitStack) -> None:
        self._workers: list[Worker] = []
        for host, command in zip(network.plan.hosts, commands, strict=True):
            words = network.fabric.inside(host.name, [sys.executable, *_WORKER, *command])
            self._workers.append(stack.enter_context(Worker(f"{command[0]} on {host.name}", words)))
            if command[0].startswith("tcp") and host is network.plan.hosts[0]:
                self._workers[0].wait_for("listening")
        wait_for_all(stack, self._workers)

    def run(self, kind: str, size: int, count: int) -> list[float]:
        """Seconds of each, at rank 0."""
        return ask_all(self._workers, {"kind": kind, "bytes": size, "count": count})[0]["seconds"]


def _gradlane(network: Network, folder: Path, stack: ExitStack) -> Team:
    plan = network.plan
    path, hosts = folder / "job.toml", [(host.name, host.address) for host in plan.hosts]
    document = dict(job.document("tails", 1, hosts, plan.rate, plan.buffer, _TOLERANCE))
    path.write_text(tomli_w.dumps(document), encoding="utf-8")
    network.controller.put_job(document)
    network.start_agents(plan.hosts)
    commands = [["gradlane", f"{rank}", str(path), agent_socket(host)] for rank, host in enumerate(plan.hosts)]
    return Team(network, commands, stack)


def _tc(network: Network, host: HostPlan, command: str) -> None:
    """Runs a command of tc on a host, with its interface for "IF". Raises FabricError."""
    words = [host.interface if word == "IF" else word for word in shlex.split(command)]
    run(*network.fabric.inside(host.name, ["tc", *words]))


def measure_incast(network: Network, size: int, count: int, folder: Path) -> Iterator[Result]:
    """All hosts send to the first, by each transport in turn. Raises ExperimentError."""
    hosts, rate = network.plan.hosts, network.plan.rate
    with ExitStack() as stack:
        team = _gradlane(network, folder, stack)
        team.run("incast", size, 5)
        yield _result("incast", "gradlane", rate, 0, team.run("incast", size, count))
    for control in _CONTROLS:
        with ExitStack() as stack:
            address = hosts[0].address
            commands = [[f"tcp:{control}", str(rank), str(len(hosts)), address] for rank in range(len(hosts))]
            team = Team(network, commands, stack)
            team.run("incast", size, 5)
            yield _result("incast", f"tcp {control}", rate, 0, team.run("incast", size, count))


def measure_loss(network: Network, count: int, folder: Path) -> Iterator[Result]:
    """All-reduces while the second host's link loses more and more. Raises ExperimentError."""
    host = network.plan.hosts[1]
    with ExitStack() as stack:
        team = _gradlane(network, folder, stack)
        for loss in LOSSES:
            if loss:
                for command in lossy(loss).commands:
                    _tc(network, host, command)
            team.run("reduce", _LOSS_BYTES, 3)
            yield _result("loss", "gradlane", network.plan.rate, loss, team.run("reduce", _LOSS_BYTES, count))
            if loss:
                _tc(network, host, "qdisc del dev IF clsact")


def tables(results: Sequence[Result]) -> list[TextTable]:
    """A table for each case."""
    columns = ["transport", "count", "p50, ms", "p99, ms", "longest, ms"]
    own = {r.rate: r for r in results if r.case == "incast" and r.transport == "gradlane"}
    incast = [
        [f"{r.rate / 1e6:g}", *_row(r, r.transport), f"{r.p99 / own[r.rate].p99:.1f}"]
        for r in results
        if r.case == "incast"
    ]
    clean = next(r for r in results if r.case == "loss")
    loss = [[*_row(r, f"{r.loss:.2%}"), f"{r.p50 / clean.p50:.2f}"] for r in results if r.case == "loss"]
    return [
        TextTable("Incast", ["Mbit/s", *columns, "p99 of gradlane's"], incast),
        TextTable(
            f"All-reduce, {_TOLERANCE:.0%} tolerated", ["loss of a link", *columns[1:], "p50 of the clean one's"], loss
        ),
    ]


def _row(result: Result, name: str) -> list[str]:
    return [name, str(result.count), *(f"{x * 1e3:.1f}" for x in (result.p50, result.p99, result.longest))]


def plot(results: Sequence[Result], path: Path) -> None:
    """p50 and p99 of every transport and loss."""
    with panels(path, 1, 2, (4.5, 3.5)) as axes:
        for axis, case in zip(axes[0], ("incast", "loss"), strict=True):
            rows = [r for r in results if r.case == case]
            names = [f"{r.transport}\n{r.rate // 10**6}" if case == "incast" else f"{r.loss:.2%}" for r in rows]
            for name, values in (("p50", [r.p50 for r in rows]), ("p99", [r.p99 for r in rows])):
                axis.plot(names, [value * 1e3 for value in values], "o", label=name)
            axis.set(title=case, ylabel="ms", ylim=(0, None) if case == "loss" else None)
            axis.tick_params("x", labelsize=6)
        axes[0][0].set_yscale("log")
        axes[0][0].legend()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("transport.tails", __doc__, "--senders 4 --count 100 --rates 100mbit --json > tails.json")
    add = parser.add_argument
    rates, counted = (parse_rate("200mbit"), parse_rate("1gbit")), "incasts, and an eighth as many all-reduces per loss"
    add("--senders", type=int, default=8, metavar="N", help="hosts that send to one (default: 8)")
    add("--rates", type=several(parse_rate), default=rates, metavar="A,B", help="of incasts' links (200mbit,1gbit)")
    add("--buffer", type=checked(parse_size), default="64kB", metavar="B", help="of a switch's port (default: 64kB)")
    add("--bytes", type=checked(parse_size), default="64KiB", metavar="B", help="from each sender (default: 64KiB)")
    add("--count", type=int, default=300, metavar="N", help=f"{counted} (default: 300)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    sizes = [(options.senders + 1, rate) for rate in options.rates] + [(_LOSS_HOSTS, _LOSS_RATE)]
    plans = [FabricPlan.of_hosts(Topology(), hosts, rate, options.buffer, "gradlane") for hosts, rate in sizes]
    results: list[Result] = []
    with ready_machine(plans):
        for plan in plans:
            with tempfile.TemporaryDirectory() as folder, Network(plan, Path(folder)) as network:
                if plan is plans[-1]:
                    results += measure_loss(network, max(options.count // _FEWER, 1), Path(folder))
                else:
                    results += measure_incast(network, options.bytes, options.count, Path(folder))
    settings = benchmark.chosen(options, "senders", "rates", "buffer", "bytes", "count")
    document, figure = benchmark.document(settings, results), options.out / "tails.svg"
    plot(results, figure)
    present(console, options, "tails.json", document, tables(results), plot=figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
