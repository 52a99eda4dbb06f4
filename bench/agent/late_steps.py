# SPDX-License-Identifier: Apache-2.0
"""What workers that stall now and then cost the others: time per step, with and without `[loss.late]`.

Each host is a network namespace behind a port of limited rate. In a step a worker computes for some time, and takes
part in the all-reduce of an array. In a part of the steps a worker stalls: one worker alone, or each at its own times.
The stalls are the same in both arms. docs/stragglers.md has the figures.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from bench.harness import benchmark
from bench.harness.agent_hosts import Hosts
from bench.harness.worker import Worker, wait_for_all
from gradlane.units import checked, parse_rate, parse_size
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_BUFFER = 200_000  # bytes of a port, half of what it holds
_RULE = "\n[loss.late]\nafter = {after}\nsteps = {steps}\nwindow = 20\n"
ARMS = ("waits", "late")


@dataclass(frozen=True)
class Result:
    """Of the workers that do not stall, or of all where each does: seconds. `left_out`: steps, of all workers together.
    `summed`: the part of the bytes that a switch has summed. Each value is the median of several trainings'."""

    arm: str
    who: str
    stall: float
    step: float
    p95: float
    left_out: int
    summed: float = 0.0


Plan = list[list[float]]  # seconds that each worker stalls, by step


def stalls(who: str, hosts: int, steps: int, stall: float, share: float, seed: int) -> Plan:
    """Seconds that each worker stalls, by step. `who`: "one", the last worker, "each", or "nobody"."""
    chance = random.Random(seed)
    return [
        [stall if stalls_here and chance.random() < share else 0.0 for _ in range(steps)]
        for stalls_here in (who == "each" or (who == "one" and rank == hosts - 1) for rank in range(hosts))
    ]


def trained(arm: str, who: str, stall: float, workers: Sequence[Worker], compute: float, plan: Plan) -> Result:
    """Lets ready workers take the steps of a plan, after so many seconds of computation each. Raises ProcessError."""
    for worker, its in zip(workers, plan, strict=True):
        worker.ask({"compute": compute, "stalls": its})
    answers = [json.loads(worker.hear()) for worker in workers]
    counted = answers[:-1] if who == "one" else answers
    steps = [seconds for answer in counted for seconds in answer["steps"]]
    left_out, summed = sum(answer["left_out"] for answer in answers), min(answer["summed"] for answer in answers)
    return Result(arm, who, stall, mean(steps), sorted(steps)[len(steps) * 95 // 100], left_out, summed)


def _measure(hosts: Hosts, arm: str, who: str, stall: float, options: argparse.Namespace) -> Result:
    """One training in one arm. Raises ExperimentError."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        job = hosts.write_job(folder / "job.toml", options.rate, _BUFFER, transport={"collective": "direct"})
        if arm == "late":
            rule = _RULE.format(after=options.after / 1e3, steps=options.allowed)
            job.write_text(job.read_text(encoding="utf-8") + rule, encoding="utf-8")
        plan = stalls(who, hosts.count, options.steps, stall, options.share, options.seed)
        workers: list[Worker] = []
        for host in range(hosts.count):
            _, socket = hosts.start_agent(stack, host, folder)
            words = ("-m", "bench.agent.late_steps_worker", str(host), str(job), str(socket), str(options.size // 4))
            workers.append(hosts.start(stack, host, "the worker", *words))
        wait_for_all(stack, workers)
        return trained(arm, who, stall, workers, options.compute / 1e3, plan)


def medians(runs: Sequence[Result]) -> Result:
    """Of the same training, again and again."""
    step, p95, left_out = (median(values) for values in zip(*((r.step, r.p95, r.left_out) for r in runs), strict=True))
    return replace(runs[0], step=step, p95=p95, left_out=round(left_out))


def tables(results: Sequence[Result]) -> list[TextTable]:
    """One for all."""
    columns = ["who stalls", "ms", "arm", "ms per step", "95 % below, ms", "steps left out"]
    rows = [
        [r.who, f"{r.stall * 1e3:.0f}", r.arm, f"{r.step * 1e3:.1f}", f"{r.p95 * 1e3:.1f}", str(r.left_out)]
        for r in results
    ]
    return [TextTable("Time per step", columns, rows)]


def add_training(parser: argparse.ArgumentParser) -> None:
    """The options of a training, and of what may be late in it."""
    add = parser.add_argument
    add("--hosts", type=int, default=4, metavar="N", help="(default: %(default)s)")
    add("--size", type=checked(parse_size), default="512KiB", metavar="S", help="of the array (default: %(default)s)")
    add("--rate", type=checked(parse_rate), default="100mbit", metavar="R", help="of a port (default: %(default)s)")
    add("--compute", type=int, default=20, metavar="MS", help="of a worker in a step (default: %(default)s)")
    add("--share", type=float, default=0.05, metavar="P", help="of the steps with a stall (default: %(default)s)")
    add("--after", type=int, default=30, metavar="MS", help="loss.late.after (default: %(default)s)")
    add("--allowed", type=int, default=10, metavar="N", help="loss.late.steps, of 20 (default: %(default)s)")
    add("--repeats", type=int, default=3, metavar="N", help="trainings in each arm, in turn (default: %(default)s)")
    add("--seed", type=int, default=1, metavar="N", help="of the stalls (default: %(default)s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.late_steps", __doc__, "--steps 100 --stall 300")
    add_training(parser)
    add = parser.add_argument
    add("--stall", type=int, nargs="+", default=[100, 300], metavar="MS", help="(default: %(default)s)")
    add("--steps", type=int, default=100, metavar="N", help="of a training (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    results: list[Result] = []
    cases = [("nobody", 0.0), *((who, stall / 1e3) for who in ("one", "each") for stall in options.stall)]
    with Hosts(options.hosts, rate=options.rate) as hosts:
        for who, stall in cases:
            runs = [[_measure(hosts, arm, who, stall, options) for arm in ARMS] for _ in range(options.repeats)]
            found = [medians(of_arm) for of_arm in zip(*runs, strict=True)]
            figures = ", ".join(f"{r.arm} {r.step * 1e3:.1f} ms per step" for r in found)
            console.print(f"{who} stalls, {stall * 1e3:.0f} ms: {figures}", soft_wrap=True)
            results += found
    names = ("hosts", "size", "rate", "compute", "share", "after", "allowed", "steps", "repeats", "seed")
    settings = benchmark.chosen(options, *names)
    present(console, options, "late_steps.json", benchmark.document(settings, results), tables(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
