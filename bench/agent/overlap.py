# SPDX-License-Identifier: Apache-2.0
"""What training without the barrier brings: DistributedDataParallel, with the hook and without, DeAR, and overlap().

Each host is a network namespace behind a port of limited rate. The model is a few wide linear layers whose computation
is a pause, as long as an accelerator might take: so hosts that share a machine's cores take no time from one another.
Computation and communication are about as long. "last layer first" is overlap() with the priorities turned round.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness import benchmark
from bench.harness.agent_hosts import Hosts
from bench.harness.worker import Worker, ask_all, wait_for_all
from gradlane.units import checked, parse_rate
from lab.report.console import make_console, present
from lab.report.tables import TextTable

METHODS = {
    "gloo": "DDP, Gloo",
    "dear": "DeAR, Gloo",
    "hook": "DDP, the hook",
    "reversed": "overlap(), last layer first",
    "overlap": "overlap()",
}
_BUFFER = 200_000  # bytes of a port, half of what it holds
_WORKER = ("-m", "bench.agent.overlap_worker")


@dataclass(frozen=True)
class Result:
    """One method of training. Medians over `repeats`, of medians over the steps of each; seconds.

    `waits`: of each layer, from the model's input on, in the next forward pass for its update; the slowest host's.
    """

    method: str
    repeats: int
    step: float
    fastest: float
    slowest: float
    waits: list[float]


class Team:
    """The training processes of all hosts, with their agents. Raises ExperimentError."""

    def __init__(self, hosts: Hosts, rate: int, folder: Path, stack: ExitStack) -> None:
        job = hosts.write_job(folder / "job.toml", rate, _BUFFER)
        self._workers: list[Worker] = []
        for host in range(hosts.count):
            _, socket = hosts.start_agent(stack, host, folder)
            words = (*_WORKER, str(host), str(hosts.count), hosts.address(0), str(job), str(socket))
            self._workers.append(hosts.start(stack, host, "training", *words))
        wait_for_all(stack, self._workers)

    def run(self, method: str, options: argparse.Namespace) -> tuple[float, list[float]]:
        """Median seconds of a step, and the layers' waits, of the slowest host."""
        computation = options.computation / 1e3 / options.layers
        request = {"method": method, "layers": options.layers, "width": options.width, "steps": options.steps}
        request |= {"forward": computation / 3, "backward": computation * 2 / 3}
        answers = ask_all(self._workers, request)
        return max((median(answer["steps"]), answer["waits"]) for answer in answers)


def measure(options: argparse.Namespace) -> list[Result]:
    """The methods in turn, `repeats` times. Raises ExperimentError."""
    found: dict[str, list[tuple[float, list[float]]]] = {method: [] for method in METHODS}
    with (
        Hosts(options.hosts, rate=options.rate) as hosts,
        tempfile.TemporaryDirectory() as folder,
        ExitStack() as stack,
    ):
        team = Team(hosts, options.rate, Path(folder), stack)
        for _ in range(options.repeats):
            for method, runs in found.items():
                runs.append(team.run(method, options))
    results: list[Result] = []
    for method, runs in found.items():
        steps = [step for step, _ in runs]
        waits = [median(column) for column in zip(*(waits for _, waits in runs), strict=True)]
        results.append(Result(method, options.repeats, median(steps), min(steps), max(steps), waits))
    return results


def communication(options: argparse.Namespace) -> float:
    """The least seconds that the gradients of a step need: each host sends and receives 2 (n - 1) / n of them."""
    gradients = 4 * options.layers * options.width**2
    return 8 * gradients * 2 * (options.hosts - 1) / options.hosts / options.rate


def table(results: Sequence[Result], options: argparse.Namespace) -> TextTable:
    """A row for each method; `not hidden` is what a step takes beyond computation."""
    hook = next(result for result in results if result.method == "hook")
    rows: list[list[str]] = []
    for result in results:
        waits = [f"{seconds * 1e3:.0f}" for seconds in (result.waits[0], sum(result.waits))]
        rows.append(
            [
                METHODS[result.method],
                f"{result.step * 1e3:.0f}",
                f"{result.fastest * 1e3:.0f} - {result.slowest * 1e3:.0f}",
                f"{result.step / hook.step:.2f}",
                f"{result.step * 1e3 - options.computation:.0f}",
                *waits,
            ]
        )
    title = (
        f"A step, {options.hosts} hosts at {options.rate / 1e6:g} Mbit/s: {options.computation:g} ms of computation, "
        f"{communication(options) * 1e3:.0f} ms of communication at least"
    )
    columns = ["method", "ms", "min - max", "of the hook's", "not hidden, ms", "first layer waits", "all layers wait"]
    return TextTable(title, columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.overlap", __doc__, "--hosts 4 --rate 500mbit --repeats 5")
    add = parser.add_argument
    add("--hosts", type=int, default=2, metavar="N", help="(default: 2)")
    add("--rate", type=checked(parse_rate), default="200mbit", metavar="R", help="of links (default: 200mbit)")
    add("--layers", type=int, default=8, metavar="N", help="of the model (default: 8)")
    add("--width", type=int, default=512, metavar="N", help="of a layer (default: 512, 1 MiB each)")
    add("--computation", type=float, default=360, metavar="MS", help="of a step (default: 360)")
    add("--steps", type=int, default=12, metavar="N", help="of each run (default: 12)")
    add("--repeats", type=int, default=3, metavar="N", help="of all methods in turn (default: 3)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    results = measure(options)
    settings = benchmark.chosen(options, "hosts", "rate", "layers", "width", "computation", "steps")
    present(console, options, "overlap.json", benchmark.document(settings, results), [table(results, options)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
