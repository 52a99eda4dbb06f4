# SPDX-License-Identifier: Apache-2.0
"""Training on a GPU: DistributedDataParallel with Gloo, with Gradlane's hook and backend, and overlap(), beside none.

All ranks share one GPU and one machine's loopback, so what is compared is what gradients cost on their way between the
GPU and the network: the copies to the host and back, the sums, and how much of it computation hides. The model is a
decoder-only transformer in bfloat16 autocast, by default of GPT-2's smallest size (124 million parameters, 497 MB of
gradients).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import torch

from bench.harness import benchmark
from bench.harness.agent_hosts import Loopback
from bench.harness.worker import ask_all, wait_for_all
from lab.model.errors import PreconditionError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

METHODS = {
    "none": "no exchange",
    "gloo": "DDP, Gloo",
    "backend": "DDP, the backend",
    "hook": "DDP, the hook",
    "overlap": "overlap()",
}
_UNLIMITED = (100_000_000_000, 16_000_000)  # bit/s and bytes


@dataclass(frozen=True)
class Result:
    """One method: medians over `repeats` of a step's seconds, of the slowest rank, and of the mean loss after the last
    step."""

    method: str
    repeats: int
    step: float
    fastest: float
    slowest: float
    loss: float


def measure(options: argparse.Namespace) -> list[Result]:
    """The methods in turn, `repeats` times. Raises ExperimentError."""
    names = ("layers", "width", "batch", "length", "steps")
    shape = {name: getattr(options, name) for name in names}
    found: dict[str, list[tuple[float, float]]] = {method: [] for method in METHODS}
    with Loopback(options.hosts) as hosts, tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        jobs = [
            hosts.write_job(folder / f"{number}.toml", *_UNLIMITED, number=number, transport={"wire": options.wire})
            for number in (1, 2)  # the backend's, and that of sessions
        ]
        agents = [hosts.start_agent(stack, host, folder)[1] for host in range(hosts.count)]
        words = ("-m", "bench.agent.gpu_worker", f"{hosts.count}", hosts.address(0), *map(str, jobs))
        workers = [
            hosts.start(stack, host, "training", *words, str(host), str(socket)) for host, socket in enumerate(agents)
        ]
        wait_for_all(stack, workers)
        for _ in range(options.repeats):
            for method, runs in found.items():
                answers = ask_all(workers, {"method": method, **shape})
                steps, losses = zip(*((answer["step"], answer["loss"]) for answer in answers), strict=True)
                runs.append((max(steps), mean(losses)))
    results: list[Result] = []
    for method, runs in found.items():
        steps, losses = zip(*runs, strict=True)
        results.append(Result(method, options.repeats, median(steps), min(steps), max(steps), median(losses)))
    return results


def table(results: Sequence[Result]) -> TextTable:
    """A row for each method."""
    by = {result.method: result.step for result in results}
    rows = [
        [
            METHODS[it.method],
            f"{it.step * 1e3:.0f}",
            f"{it.fastest * 1e3:.0f} - {it.slowest * 1e3:.0f}",
            f"{it.step / by['gloo']:.2f}",
            f"{(it.step - by['none']) * 1e3:.0f}",
            f"{it.loss:.3f}",
        ]
        for it in results
    ]
    columns = ["method", "ms a step", "min - max", "of Gloo's", "not hidden, ms", "loss"]
    return TextTable("A step of a transformer on one GPU", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.gpu", __doc__, "--hosts 4 --layers 6 --wire float16")
    add = parser.add_argument
    add("--hosts", type=int, default=2, metavar="N", help="(default: 2)")
    add("--layers", type=int, default=12, metavar="N", help="of the transformer (default: 12)")
    add("--width", type=int, default=768, metavar="N", help="of a layer, 64 a head (default: 768)")
    add("--batch", type=int, default=8, metavar="N", help="sequences of a rank in a step (default: 8)")
    add("--length", type=int, default=512, metavar="N", help="of a sequence (default: 512)")
    add("--wire", default="float32", metavar="TYPE", help="how gradients travel (default: float32)")
    add("--steps", type=int, default=10, metavar="N", help="of each run (default: 10)")
    add("--repeats", type=int, default=3, metavar="N", help="of all methods in turn (default: 3)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    if not torch.cuda.is_available():
        raise PreconditionError("this needs a GPU that PyTorch knows by CUDA, and there is none")
    console = make_console(to_stderr=options.json)
    results = measure(options)
    settings = benchmark.chosen(options, "hosts", "layers", "width", "batch", "length", "wire", "steps")
    present(console, options, "gpu.json", benchmark.document(settings, results), [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
