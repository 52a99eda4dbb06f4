# SPDX-License-Identifier: Apache-2.0
"""What an exchange of gradients costs in each framework: Gradlane beside the framework's own distribution.

Two ranks on one machine's loopback train a stack of square layers with a small batch, so nearly all of a step is the
exchange. A framework without Gradlane's package or its own is left out, and said so.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness import benchmark
from bench.harness.agent_hosts import Loopback
from bench.harness.worker import ask_all, wait_for_all
from lab.model.errors import PreconditionError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

METHODS = {
    "torch-own": "PyTorch: DistributedDataParallel, Gloo",
    "torch-gradlane": "PyTorch: DistributedDataParallel, the hook",
    "tensorflow-own": "TensorFlow: MultiWorkerMirroredStrategy",
    "tensorflow-gradlane": "TensorFlow: DistributedGradientTape",
    "jax-own": "JAX: pmean, Gloo",
    "jax-gradlane": "JAX: gradlane.jax.mean",
    "jax-callback": "JAX: gradlane.jax.mean, through io_callback",
}
_RANKS = 2
_PORTS = 29_410  # from there on
_PATIENCE = 180.0  # s
_UNLIMITED = (100_000_000_000, 16_000_000)  # bit/s and bytes


@dataclass(frozen=True)
class Result:
    """One method at one size: medians over the repeats of a step's seconds, of the slower rank, and of the seconds of
    processor time in it, of both ranks and their agents."""

    method: str
    gradient_bytes: int
    step: float
    fastest: float
    slowest: float
    cpu: float


def _measure(options: argparse.Namespace, method: str, layers: int, turn: int) -> tuple[float, float]:
    with Loopback(_RANKS) as hosts, tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        job = hosts.write_job(folder / "job.toml", *_UNLIMITED)
        agents = [hosts.start_agent(stack, host, folder) for host in range(_RANKS)]
        places = ",".join(f"{hosts.address(host)}:{_PORTS + 10 * turn + host}" for host in range(_RANKS))
        workers = [
            hosts.start(
                *(stack, host, method, "-m", "bench.agent.framework_worker", method, str(host), str(layers)),
                *(str(options.width), places, str(job), str(socket)),
            )
            for host, (_, socket) in enumerate(agents)
        ]
        wait_for_all(stack, workers, _PATIENCE)
        before = sum(agent.cpu_seconds() for agent, _ in agents)
        answers = ask_all(workers, {"steps": options.steps})
        agents_cpu = (sum(agent.cpu_seconds() for agent, _ in agents) - before) / options.steps
        return max(it["step"] for it in answers), agents_cpu + sum(it["cpu"] for it in answers)


def measure(options: argparse.Namespace, methods: Sequence[str]) -> list[Result]:
    """All methods in turn, `repeats` times, at each size. Raises ExperimentError."""
    results: list[Result] = []
    for layers in options.layers:
        found: dict[str, list[tuple[float, float]]] = {method: [] for method in methods}
        for repeat in range(options.repeats):
            for number, (method, runs) in enumerate(found.items()):
                runs.append(_measure(options, method, layers, repeat * len(methods) + number))
        for method, runs in found.items():
            steps, cpu = zip(*runs, strict=True)
            size = 4 * layers * options.width**2
            results.append(Result(method, size, median(steps), min(steps), max(steps), median(cpu)))
    return results


def table(results: Sequence[Result]) -> TextTable:
    """A row for each method and size."""
    by = {(it.method, it.gradient_bytes): it for it in results}

    def of(it: Result, method: str) -> str:
        other = by.get((method, it.gradient_bytes))
        return "-" if other is None else f"{it.step / other.step:.2f}"

    rows = [
        [
            METHODS[it.method],
            f"{it.gradient_bytes >> 20}",
            f"{it.step * 1e3:.1f}",
            f"{it.fastest * 1e3:.1f} - {it.slowest * 1e3:.1f}",
            f"{it.cpu * 1e3:.1f}",
            of(it, f"{it.method.partition('-')[0]}-own"),
            "-" if it.method.endswith("-own") else of(it, "torch-gradlane"),
        ]
        for it in results
    ]
    columns = ["method", "MiB", "ms a step", "min - max", "CPU ms", "of its own", "of the hook"]
    return TextTable("An exchange of gradients between two ranks", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.frameworks", __doc__, "--layers 16 --methods torch-own,torch-gradlane")
    add = parser.add_argument
    known = ", ".join(METHODS)
    add("--methods", default=",".join(METHODS), metavar="A,B", help=f"of {known} (default: all)")
    add("--layers", default="4,16,64", metavar="A,B", help="how many, one run for each (default: 4,16,64)")
    add("--width", type=int, default=512, metavar="N", help="of a layer: 512 is 1 MiB of gradients (default: 512)")
    add("--steps", type=int, default=40, metavar="N", help="of each run (default: 40)")
    add("--repeats", type=int, default=3, metavar="N", help="of all methods in turn (default: 3)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    options.layers = [int(it) for it in options.layers.split(",")]
    wanted = options.methods.split(",")
    if unknown := [it for it in wanted if it not in METHODS]:
        raise PreconditionError(f"there is no method {unknown[0]!r}; there are {', '.join(METHODS)}")
    methods = [it for it in wanted if importlib.util.find_spec(it.partition("-")[0]) is not None]
    if not methods:
        raise PreconditionError(f"none of these is installed: {', '.join(wanted)}: `make bench-frameworks` does it")
    console = make_console(to_stderr=options.json)
    for method in wanted:
        if method not in methods:
            console.print(f"left out, as it is not installed: {METHODS[method]}")
    results = measure(options, methods)
    settings = benchmark.chosen(options, "layers", "width", "steps", "repeats")
    present(console, options, "frameworks.json", benchmark.document(settings, results), [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
