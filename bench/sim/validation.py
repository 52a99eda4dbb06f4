# SPDX-License-Identifier: Apache-2.0
"""The simulator beside the emulation: the same jobs at one switch, in network namespaces around gradlane-switch and in
ns-3, by mean and p99 of the completion times.

All ranks begin each all-reduce at the same time, in both. `--simulated` leaves the emulation out.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import tomli_w

from bench.harness import benchmark
from bench.harness.worker import Worker, ask_all, wait_for_all
from gradlane.units import checked, parse_rate, parse_size
from gradlane_sim import fabrics, job_files
from gradlane_sim.carriers import Gradlane
from gradlane_sim.document import document
from gradlane_sim.program import Program
from gradlane_sim.specification import SECOND, Fabric, Job, Specification, Tensor
from lab.experiment.runner import ready_machine
from lab.model.plan import FabricPlan
from lab.model.topology import Topology
from lab.net.network import Network, agent_socket
from lab.report.console import make_console, present
from lab.report.tables import TextTable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pyright: ignore[reportMissingImports]

BOUND = 0.1
_WORKER = ("-m", "bench.sim.validation_worker")
# From a host into the other's agent, beside what is simulated: gradlane-switch of the lab takes in frames every 200 us
# (lab.net.fabric), and sends what is due then, so that a frame waits half of that on average, twice.
DELAY = 100_000  # ns of each of the two links of a way
_WARM_UP = 3


@dataclass(frozen=True)
class Case:
    """`servers`: 0 is an all-reduce of equals, 1 an incast; `push`: the tolerated loss."""

    workers: int
    servers: int
    push: float

    @property
    def name(self) -> str:
        kind = "incast" if self.servers else "clean"
        return f"{kind}, {self.workers} workers" + (f", {self.push:.0%} tolerated" if self.push else "")

    def load(self, size: int) -> float:
        """Bytes that the fullest link carries of an all-reduce of `size`."""
        return size * (self.workers if self.servers else 2 * (self.workers - 1) / self.workers)


CASES = tuple(Case(workers, servers, push) for servers, push in ((0, 0.0), (1, 0.0), (1, 0.03)) for workers in (4, 8))


@dataclass(frozen=True)
class Result:
    """Milliseconds."""

    case: str
    where: str
    count: int
    mean: float
    p99: float


@dataclass(frozen=True)
class Settings:
    """What all cases have in common. `size`: bytes that the fullest link carries in a step; `count`: steps."""

    rate: int
    buffer: int
    size: int
    count: int

    def bytes(self, case: Case) -> int:
        """Of a worker's gradients."""
        return round(self.size / case.load(1)) // 4 * 4

    @property
    def period(self) -> float:
        """Seconds from one step to the next: each ends before."""
        return 2.5 * self.size * 8 / self.rate + 0.05

    def fabric(self, case: Case, delay: int = DELAY) -> Fabric:
        return fabrics.single(case.workers + case.servers, self.rate, self.buffer, delay)

    def job(self, case: Case) -> Job:
        period = round(self.period * SECOND)
        return Job(
            id=1,
            members=tuple(range(case.workers + case.servers)),
            carrier=Gradlane(push=case.push, slots=4096),
            tensors=(Tensor(0, self.bytes(case), 0),),
            steps=self.count,
            servers=case.servers,
            compute=period,
        )


def _result(case: Case, where: str, seconds: Sequence[float]) -> Result:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return Result(case.name, where, len(ordered), fmean(ordered) * 1e3, p99 * 1e3)


def simulate(case: Case, settings: Settings, program: Program, delay: int = DELAY) -> Result:
    """Raises SimulationError."""
    specification = Specification(settings.fabric(case, delay), (settings.job(case),), limit=3600 * SECOND)
    found = program.run(document(specification), lambda _simulated, _wall: None)
    (job,) = found["jobs"]
    if job["error"] or found["violations"]:
        raise SystemExit(f"{case.name}: {job['error'] or found['violations']}")
    return _result(case, "simulated", [(end - start) / SECOND for *_, start, end in job["operations"]])


def emulate(case: Case, settings: Settings, network: Network, folder: Path) -> Result:
    """Raises ExperimentError."""
    job, hosts = settings.job(case), network.plan.hosts
    file: dict[str, Any] = tomllib.loads(job_files.text(job, settings.fabric(case)))
    file["job"]["key"] = os.urandom(16).hex()
    for member, host in zip((*file["worker"], *file.get("server", ())), hosts, strict=True):
        member |= {"host": host.name, "address": host.address}
    path = folder / "job.toml"
    path.write_text(tomli_w.dumps(file), encoding="utf-8")
    network.controller.put_job(file)
    network.start_agents(hosts)
    with ExitStack() as stack:
        for rank in range(case.workers, len(hosts)):
            options = ("--job", str(path), "--rank", str(rank), "--socket", agent_socket(hosts[rank]))
            words = network.fabric.inside(hosts[rank].name, [sys.executable, "-m", "gradlane.cli", "serve", *options])
            stack.enter_context(Worker(f"server {rank}", words, asked=False, logs=True))
        workers = [
            stack.enter_context(
                Worker(
                    f"worker {rank}",
                    network.fabric.inside(
                        hosts[rank].name, [sys.executable, *_WORKER, str(rank), str(path), agent_socket(hosts[rank])]
                    ),
                )
            )
            for rank in range(case.workers)
        ]
        wait_for_all(stack, workers)
        request: Mapping[str, Any] = {"bytes": settings.bytes(case), "period": settings.period}
        seconds: list[float] = []
        for count in (_WARM_UP, settings.count):
            answers = ask_all(workers, {**request, "count": count, "start": time.monotonic() + 0.5})
            seconds = [it for answer in answers for it in answer["seconds"]]
    return _result(case, "emulated", seconds)


def table(results: Sequence[Result]) -> TextTable:
    """The simulator's figures beside those of the emulation."""
    of = {(it.case, it.where): it for it in results}
    rows: list[list[str]] = []
    for name in dict.fromkeys(it.case for it in results):
        simulated, emulated = of[name, "simulated"], of.get((name, "emulated"))
        if emulated is None:
            rows.append([name, "-", f"{simulated.mean:.1f}", "-", "-", f"{simulated.p99:.1f}", "-"])
            continue
        rows.append([name])
        for one, other in ((emulated.mean, simulated.mean), (emulated.p99, simulated.p99)):
            rows[-1] += [f"{one:.1f}", f"{other:.1f}", f"{other / one:.3f}"]
    columns = ["mean, ms: emulated", "simulated", "ratio", "p99, ms: emulated", "simulated", "ratio"]
    return TextTable("Completion of an all-reduce", ["case", *columns], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("sim.validation", __doc__, "--cases 1 --count 20", "--simulated")
    add = parser.add_argument
    add("--rate", type=parse_rate, default=100_000_000, metavar="R", help="of every link (default: 100mbit)")
    add("--buffer", type=checked(parse_size), default="64kB", metavar="B", help="of a switch's port (default: 64kB)")
    add("--bytes", type=checked(parse_size), default="2MiB", metavar="B", help="on the fullest link (default: 2MiB)")
    add("--count", type=int, default=60, metavar="N", help="all-reduces of a case (default: 60)")
    add("--cases", type=int, default=len(CASES), metavar="N", help=f"only the first ones (default: {len(CASES)})")
    add("--simulated", action="store_true", help="leave the emulation out")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    settings = Settings(options.rate, options.buffer, options.bytes, options.count)
    cases, program, results = CASES[: options.cases], Program(), list[Result]()
    for case in cases:
        results.append(simulate(case, settings, program))
    if not options.simulated:
        benchmark.take_priority()
        plans = {case: _plan(case, settings) for case in cases}
        with ready_machine(list(plans.values())):
            for case, plan in plans.items():
                with tempfile.TemporaryDirectory() as folder, Network(plan, Path(folder)) as network:
                    results.append(emulate(case, settings, network, Path(folder)))
    chosen = benchmark.chosen(options, "rate", "buffer", "bytes", "count")
    present(console, options, "validation.json", benchmark.document(chosen, results), [table(results)])
    return 0


def _plan(case: Case, settings: Settings) -> FabricPlan:
    plan = FabricPlan.of_hosts(Topology(), case.workers + case.servers, settings.rate, settings.buffer, "gradlane")
    roles = [("server" if n >= case.workers else role, where) for n, (role, where) in enumerate(plan.roles)]
    return replace(plan, roles=tuple(roles))


if __name__ == "__main__":
    sys.exit(main())
