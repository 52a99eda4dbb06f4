# SPDX-License-Identifier: Apache-2.0
"""What one late worker costs the others where a switch sums, and where hosts reduce, with `[loss.late]` and without.

The hosts are at one gradlane-switch. The last worker computes several times as long as the others in each step, or
stalls now and then, alike in all arms. docs/measurements/stragglers.md has the figures.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w

from bench.agent.late_steps import Result, add_training, medians, stalls, trained
from bench.harness import benchmark
from bench.harness.job import document
from bench.harness.worker import Worker, wait_for_all
from lab.experiment.runner import ready_machine
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan
from lab.model.topology import Topology
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_BUFFER = 256_000  # bytes of a port
_SWITCH = {"collective": "switch", "wire": "int32", "multicast": "239.1.1.1"}
_ALGORITHMS: Mapping[str, Mapping[str, str]] = {"hosts": {"collective": "direct"}, "switch": _SWITCH}
ARMS = tuple((who, late) for who in _ALGORITHMS for late in (False, True))
_LEAST_SUMMED = 0.8  # of the bytes: all but the first step


def _measure(network: Any, by: str, late: bool, case: str, stall: float, options: argparse.Namespace) -> Result:
    """One training. Raises ExperimentError."""
    from lab.net.network import agent_socket

    hosts = network.plan.hosts
    members = [(host.name, host.address) for host in hosts]
    job = dict(document("late", 1, members, options.rate, _BUFFER, transport=_ALGORITHMS[by]))
    if late:
        job["loss"] = {"late": {"after": options.after / 1e3, "steps": options.allowed, "window": 20}}
    file: Path = options.out / "late.toml"
    file.write_text(tomli_w.dumps(job), encoding="utf-8")
    plan = stalls("one", len(hosts), options.steps, stall, 1.0 if case == "slow" else options.share, options.seed)
    network.controller.put_job(job)
    with ExitStack() as stack:
        stack.callback(network.controller.delete_job, "late")
        workers: list[Worker] = []
        for rank, host in enumerate(hosts):
            words = ("-m", "bench.agent.late_steps_worker", rank, file, agent_socket(host), options.size // 4)
            inside = network.fabric.inside(host.name, [sys.executable, *map(str, words)])
            workers.append(stack.enter_context(Worker(f"the worker at {host.name}", inside)))
        wait_for_all(stack, workers)
        found = trained(f"{by}, {'late' if late else 'wait'}", "one", stall, workers, options.compute / 1e3, plan)
    if (found.summed < _LEAST_SUMMED) != (by == "hosts"):
        raise ExperimentError(f"{found.arm}: the switch has summed {found.summed:.0%}")
    return replace(found, who=case)


def tables(results: Sequence[Result]) -> list[TextTable]:
    """One for all."""
    columns = ["the last worker", "later by, ms", "arm", "ms per step", "steps/s", "95 % below, ms", "steps left out"]
    rows = [
        [r.who, f"{r.stall * 1e3:.0f}", r.arm, f"{r.step * 1e3:.1f}", f"{1 / r.step:.2f}", f"{r.p95 * 1e3:.1f}",
         str(r.left_out)]
        for r in results
    ]  # fmt: skip
    return [TextTable("Steps of the other workers", columns, rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.late_sums", __doc__, "--steps 100 --factor 3")
    add_training(parser)
    add = parser.add_argument
    add("--factor", type=float, default=5.0, metavar="F", help="the slow worker's computation (default: %(default)s)")
    add("--stall", type=int, default=300, metavar="MS", help="of the one that stalls (default: %(default)s)")
    add("--steps", type=int, default=60, metavar="N", help="of a training (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    from lab.net.network import Network

    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    options.out.mkdir(parents=True, exist_ok=True)
    plan = FabricPlan.of_hosts(Topology(), options.hosts, options.rate, _BUFFER, "gradlane")
    plan = replace(plan, aggregation=True)
    cases = {"stalls": options.stall / 1e3, "slow": options.compute / 1e3 * (options.factor - 1)}
    results: list[Result] = []
    with ready_machine([plan]), Network(plan, options.out) as network:
        network.start_agents(plan.hosts)
        for case, stall in cases.items():
            runs = [
                [_measure(network, by, late, case, stall, options) for by, late in ARMS] for _ in range(options.repeats)
            ]
            found = [medians(of_arm) for of_arm in zip(*runs, strict=True)]
            figures = ", ".join(f"{r.arm} {r.step * 1e3:.1f} ms per step" for r in found)
            console.print(f"{case}: {figures}", soft_wrap=True)
            results += found
    names = ("hosts", "size", "rate", "compute", "factor", "share", "after", "allowed", "steps", "repeats", "seed")
    settings = benchmark.chosen(options, *names)
    present(console, options, "late_sums.json", benchmark.document(settings, results), tables(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
