# SPDX-License-Identifier: Apache-2.0
"""The longest completions: incast of all hosts to one at a shallow port; all-reduces over a link that loses at random.

Hosts are namespaces around one gradlane-switch. Incast: gradlane beside TCP over open connections, by several
congestion controls, on links of several rates. Loss: one of four hosts' links loses frames of both directions, and the
job tolerates more than that.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import tomli_w

from bench.harness.benchmark import save
from bench.harness.netns import WireError
from bench.harness.worker import Worker, ask_all
from gradlane.units import parse_rate, parse_size
from lab.experiment.runner import ready_machine
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan, HostPlan
from lab.model.preconditions import PreconditionError, find_program
from lab.model.topology import Topology
from lab.net.interfaces import lossy
from lab.net.network import Network
from lab.report.console import make_console, print_tables
from lab.report.tables import TextTable

LOSSES = (0.0, 0.0001, 0.001, 0.01, 0.05)
_CONTROLS = ("cubic", "reno", "bbr")
_TOLERANCE = 0.1
# All-reduces that lose: messages of many slices lose what is lost on average; the links, not the CPU, are the limit.
_LOSS_HOSTS, _LOSS_RATE, _LOSS_BYTES, _FEWER = 4, 100_000_000, 4 << 20, 8
_WORKER = ("-m", "bench.transport.tails_worker")
_EXAMPLES = """examples:
  sudo python -m bench.transport.tails
  sudo python -m bench.transport.tails --senders 4 --count 100 --rates 100mbit --json > tails.json
"""


@dataclass(frozen=True)
class Result:
    """`side`, and `rate` (bit/s) and `loss` of the links; seconds of completions."""

    case: str
    side: str
    rate: int
    loss: float
    count: int
    p50: float
    p99: float
    longest: float


def _result(case: str, side: str, rate: int, loss: float, seconds: Sequence[float]) -> Result:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return Result(case, side, rate, loss, len(ordered), median(ordered), p99, ordered[-1])


class Team:
    """The processes of one side, one on each host. Raises WireError."""

    def __init__(self, network: Network, commands: Sequence[Sequence[str]], stack: ExitStack) -> None:
        self._workers: list[Worker] = []
        for host, command in zip(network.plan.hosts, commands, strict=True):
            words = network.fabric.inside(host.name, [sys.executable, *_WORKER, *command])
            self._workers.append(stack.enter_context(Worker(f"{command[0]} on {host.name}", words)))
            if command[0].startswith("tcp") and host is network.plan.hosts[0]:
                self._workers[0].wait_for("listening")
        for worker in self._workers:
            worker.wait_for("ready")

    def run(self, kind: str, size: int, count: int) -> list[float]:
        """Seconds of each, at rank 0."""
        return ask_all(self._workers, {"kind": kind, "bytes": size, "count": count})[0]["seconds"]


def _job(plan: FabricPlan) -> dict[str, Any]:
    members = [{"rank": rank, "host": host.name, "address": host.address} for rank, host in enumerate(plan.hosts)]
    return {
        "job": {"name": "tails", "id": 1, "key": os.urandom(16).hex()},
        "worker": members,
        "transport": {"rate": f"{plan.rate}bit", "buffer": f"{plan.buffer}B"},
        "loss": {"push": _TOLERANCE, "pull": _TOLERANCE},
        "slots": {"base": 0, "mask": 4095},
    }


def _gradlane(network: Network, folder: Path, stack: ExitStack) -> Team:
    plan = network.plan
    job = folder / "job.toml"
    document = _job(plan)
    job.write_text(tomli_w.dumps(document))
    network.controller.put_job(document)
    commands: list[list[str]] = []
    for rank, host in enumerate(plan.hosts):
        path = folder / f"agent{rank}.sock"
        words = [find_program("gradlane"), "agent", "--address", host.address, "--socket", str(path)]
        network.supervisor.start(f"agent of {host.name}", network.fabric.inside(host.name, words)).wait_ready(20)
        commands.append(["gradlane", str(rank), str(job), str(path)])
    return Team(network, commands, stack)


def _tc(network: Network, host: HostPlan, *words: str) -> None:
    command = network.fabric.inside(host.name, ["tc", *(host.interface if word == "IF" else word for word in words)])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WireError(f"tc {' '.join(words)}: {done.stderr.strip()}")


def measure_incast(network: Network, size: int, count: int, folder: Path) -> Iterator[Result]:
    """All hosts send to the first, by each side in turn. Raises WireError."""
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
    """All-reduces while the second host's link loses more and more. Raises WireError."""
    host = network.plan.hosts[1]
    with ExitStack() as stack:
        team = _gradlane(network, folder, stack)
        for loss in LOSSES:
            if loss:
                for command in lossy(loss).commands:
                    _tc(network, host, *shlex.split(command))
            team.run("reduce", _LOSS_BYTES, 3)
            yield _result("loss", "gradlane", network.plan.rate, loss, team.run("reduce", _LOSS_BYTES, count))
            if loss:
                _tc(network, host, "qdisc", "del", "dev", "IF", "clsact")


def tables(results: Sequence[Result]) -> list[TextTable]:
    """A table for each case."""
    columns = ["side", "count", "p50, ms", "p99, ms", "longest, ms"]
    own = {r.rate: r for r in results if r.case == "incast" and r.side == "gradlane"}
    incast = [
        [f"{r.rate / 1e6:g}", *_row(r, r.side), f"{r.p99 / own[r.rate].p99:.1f}"] for r in results if r.case == "incast"
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
    """p50 and p99 of every side and loss."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.5))
    for axis, case in zip(axes, ("incast", "loss"), strict=True):
        rows = [r for r in results if r.case == case]
        names = [f"{r.side}\n{r.rate // 10**6}" if case == "incast" else f"{r.loss:.2%}" for r in rows]
        for name, values in (("p50", [r.p50 for r in rows]), ("p99", [r.p99 for r in rows])):
            axis.plot(names, [value * 1e3 for value in values], "o", label=name)
        axis.set(title=case, ylabel="ms", ylim=(0, None) if case == "loss" else None)
        axis.tick_params("x", labelsize=6)
    axes[0].set_yscale("log")
    axes[0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit code: 0, 1 (something failed on the way), 2 (usage)."""
    options = _parser().parse_args(arguments)
    console = make_console(to_stderr=options.json)
    try:
        # Of the switch and of every process of both sides: other load of the machine is to take from neither.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
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
    except (WireError, ExperimentError, PreconditionError, PermissionError) as problem:
        print(f"tails: error: {problem}", file=sys.stderr)
        return 1
    print_tables(console, tables(results))
    settings = {name: getattr(options, name) for name in ("senders", "rates", "buffer", "bytes", "count")}
    save(options.out / "tails.json", settings, results, show=options.json)
    plot(results, options.out / "tails.svg")
    return 0


def _rates(text: str) -> list[int]:
    return [parse_rate(rate) for rate in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tails", description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--senders", type=int, default=8, help="hosts that send to one (default 8)")
    parser.add_argument(
        "--rates", type=_rates, default="200mbit,1gbit", help="of the links of incasts (default 200mbit,1gbit)"
    )
    parser.add_argument("--buffer", type=parse_size, default="64kB", help="of every port of the switch (default 64kB)")
    parser.add_argument("--bytes", type=parse_size, default="64KiB", help="from each sender (default 64KiB)")
    parser.add_argument(
        "--count", type=int, default=300, help="incasts, and eight times the all-reduces for each loss (default 300)"
    )
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="where the results go (default out/bench)")
    parser.add_argument("--json", action="store_true", help="the results as JSON on standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
