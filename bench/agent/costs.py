# SPDX-License-Identifier: Apache-2.0
"""The cost model of all-reduces against measurements: direct, by a ring and by a grid, in turn, on one loopback.

Each algorithm has a job of its own on the same agents, with arrays in shared memory. What the model says of a host's
processor is compared with the CPU time of its agent and its training process, which other load of the machine changes
less than it does seconds; its three figures are fitted to that. docs/performance.md has the figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench.harness import benchmark
from bench.harness.agent_hosts import Loopback
from bench.harness.worker import Worker, ask_all, wait_for_all
from gradlane.client import agent_socket
from gradlane.job import costs
from gradlane.job.costs import Conditions
from gradlane.units import parse_size
from lab.command_line import several
from lab.model.errors import UsageError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_ALGORITHMS = ("direct", "ring", "grid")
_UNLIMITED = (100_000_000_000, 16_000_000)  # bit/s, and bytes of a port
_VOLUME, _LEAST, _MOST = 32 << 20, 3, 40  # as many all-reduces in one go of an algorithm as these bytes take


@dataclass(frozen=True)
class Result:
    """Of one algorithm: medians of the turns of an all-reduce's seconds, and of the CPU seconds that a host takes for
    one. `chosen`: whether "auto" takes it; `latency`: one way, as the job has measured it."""

    hosts: int
    size: int
    algorithm: str
    seconds: float
    cpu: float
    latency: float
    chosen: bool


@dataclass(frozen=True)
class Fit:
    """START_SECONDS, MESSAGE_SECONDS and PROCESSED of the cost model."""

    start: float
    message: float
    processed: float

    def cpu(self, hosts: int, size: int, algorithm: str) -> float:
        """Seconds of a host."""
        messages, share = costs.work(algorithm, hosts)
        return self.start + messages * self.message + share * size * 8 / self.processed


MODEL = Fit(costs.START_SECONDS, costs.MESSAGE_SECONDS, costs.PROCESSED)


def fitted(results: Sequence[Result]) -> Fit:
    """What makes the squares of the relative errors of CPU time least."""
    rows = np.array([(1.0, messages, share * it.size * 8)
                     for it in results for messages, share in [costs.work(it.algorithm, it.hosts)]])  # fmt: skip
    measured = np.array([it.cpu for it in results])
    start, message, bit = np.linalg.lstsq(rows / measured[:, None], np.ones(len(results)), rcond=None)[0]
    return Fit(float(start), float(message), float(1 / bit))


def _measure(hosts: Loopback, sizes: Sequence[int], repeats: int) -> Iterator[list[Result]]:
    """For each size the algorithms in turn. Raises ExperimentError."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        agents, sockets = zip(*(hosts.start_agent(stack, host, folder) for host in range(hosts.count)), strict=True)
        workers: dict[str, list[Worker]] = {}
        for number, algorithm in enumerate(_ALGORITHMS, 1):
            transport = {"collective": algorithm}
            job = str(hosts.write_job(folder / f"{algorithm}.toml", *_UNLIMITED, number=number, transport=transport))
            words = ("-m", "bench.agent.all_reduce_worker", "gradlane")
            workers[algorithm] = [
                hosts.start(stack, host, algorithm, *words, f"{host}", f"{hosts.count}", job, str(sockets[host]))
                for host in range(hosts.count)
            ]
            wait_for_all(stack, workers[algorithm])
        status = agent_socket.status(sockets[0])["jobs"].values()
        latency = max(job["conditions"]["latency"] for job in status if "conditions" in job)
        for size in sizes:
            count = max(_LEAST, min(_MOST, _VOLUME // size))
            chosen = costs.choose(size, hosts.count, Conditions(_UNLIMITED[0], latency)).algorithm
            found: dict[str, list[tuple[float, float]]] = {algorithm: [] for algorithm in _ALGORITHMS}
            for _ in range(repeats):
                for algorithm, runs in found.items():
                    before = sum(agent.cpu_seconds() for agent in agents)
                    answers = ask_all(workers[algorithm], {"variant": "shared", "elements": size // 4, "count": count})
                    # The agents' part has the two all-reduces before the measured ones in it.
                    cpu = (sum(agent.cpu_seconds() for agent in agents) - before) / (count + 2)
                    cpu += sum(answer["cpu"] for answer in answers) / count
                    runs.append((median(median(answer["seconds"]) for answer in answers), cpu / hosts.count))
            of: list[Result] = []
            for it, runs in found.items():
                seconds, cpu = (median(column) for column in zip(*runs, strict=True))
                of.append(Result(hosts.count, size, it, seconds, cpu, latency, it == chosen))
            yield of


def table(results: Sequence[Result]) -> TextTable:
    """A row for each number of hosts and size."""
    columns = ("hosts", "MiB", "ms", "CPU ms of a host", "by the model", "chosen", "time by the best")
    rows: list[list[str]] = []
    for hosts, size in dict.fromkeys((it.hosts, it.size) for it in results):
        of = [it for it in results if (it.hosts, it.size) == (hosts, size)]
        best = min(it.seconds for it in of)
        rows.append([
            f"{hosts}", f"{size / (1 << 20):.3g}",
            ", ".join(f"{it.seconds * 1e3:.3g}" for it in of),
            ", ".join(f"{it.cpu * 1e3:.3g}" for it in of),
            ", ".join(f"{MODEL.cpu(it.hosts, it.size, it.algorithm) * 1e3:.3g}" for it in of),
            *next((it.algorithm, f"{it.seconds / best:.2f}") for it in of if it.chosen),
        ])  # fmt: skip
    return TextTable(f"All-reduces on the loopback: {', '.join(_ALGORITHMS)}", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.costs", __doc__, "--hosts 4 --sizes 1MiB --repeats 3")
    add = parser.add_argument
    add("--hosts", type=several(int), default=(4, 8, 16), metavar="A,B", help="(default: 4,8,16)")
    sizes = ("64KiB", "1MiB", "4MiB", "16MiB")
    chosen = tuple(map(parse_size, sizes))
    add("--sizes", type=several(parse_size), default=chosen, metavar="A,B", help=f"(default: {','.join(sizes)})")
    add("--repeats", type=int, default=5, metavar="N", help="of every measurement (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    if wrong := [count for count in options.hosts if not 4 <= count <= 64]:
        raise UsageError(f"--hosts: {wrong[0]} must be 4 to 64")
    if wrong := [size for size in options.sizes if size < 4096]:
        raise UsageError(f"--sizes: {wrong[0]} bytes must be at least 4096")
    if options.repeats < 1:
        raise UsageError("--repeats must be at least 1")
    results: list[Result] = []
    for count in options.hosts:
        with Loopback(count) as hosts:
            for of in _measure(hosts, options.sizes, options.repeats):
                results += of
                console.print(table(of).rows[0], soft_wrap=True)
    fit = fitted(results)
    console.print(
        f"fitted: {fit.start * 1e6:.0f} us, {fit.message * 1e6:.1f} us for each time, {fit.processed / 1e9:.1f} Gbit/s"
    )
    document = benchmark.document(benchmark.chosen(options, "repeats"), results)
    present(console, options, "costs.json", document, [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
