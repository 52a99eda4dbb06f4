# SPDX-License-Identifier: Apache-2.0
"""All-reduce by the agent against Gloo over TCP: on the same hosts, in turn, within the same minutes.

Each host is a network namespace on a Linux bridge, with the kernel's offloads and no emulated limit. Then links of
1 Gbit/s: how much of the payload rate that the headers allow is used. Gradlane reduces arrays of its own shared memory
in place ("shared", as PyTorch's buckets), any others to a new one ("plain": copied in), or tensors by its backend of
torch.distributed ("torch": copied in and out, as that reduces in place). All processes have the same real-time
priority, so that other load of the machine weighs little. docs/measurements.md has the figures.
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

from bench.harness import benchmark
from bench.harness.agent_hosts import MTU, Hosts
from bench.harness.figure import panels
from bench.harness.worker import Worker, ask_all
from gradlane.units import checked, parse_rate, parse_size
from lab.command_line import several
from lab.report.console import make_console, present
from lab.report.tables import TextTable

SIZES = ("64KiB", "1MiB", "16MiB", "64MiB")
VARIANTS = {"gloo": "torch", "shared": "gradlane", "plain": "gradlane", "torch": "torch"}  # and whose processes do it
# So many bytes are reduced in one go of a variant, but at least and at most so many times.
_VOLUME, _LEAST, _MOST = 128 << 20, 3, 100
_FRAME = 14 + 20 + 8 + 40  # bytes in front of a slice: Ethernet, IPv4, UDP, the wire header
_LINK_SIZE = 16 << 20
_UNLIMITED = 100_000_000_000  # bit/s that a job is given for links without a limit


@dataclass(frozen=True)
class Result:
    """One variant, size and number of hosts. Medians over `repeats`, of medians over the all-reduces of each.

    `cpu` is CPU seconds of a host (training process and agent) for a GB all-reduced. `rate`: bit/s of the links, 0: no
    limit; `used`: of the payload rate that headers allow there.
    """

    variant: str
    hosts: int
    size: int
    rate: int
    repeats: int
    seconds: float
    fastest: float
    slowest: float
    cpu: float
    used: float | None


class Team:
    """The processes of Gloo and of Gradlane on all hosts, ready and idle. Raises ProcessError."""

    def __init__(self, hosts: Hosts, folder: Path, stack: ExitStack, rate: int, buffer: int) -> None:
        jobs = {
            kind: hosts.write_job(folder / f"{kind}.toml", rate, buffer, number=number)
            for number, kind in enumerate(("torch", "gradlane"), 1)
        }
        self._workers: dict[str, list[Worker]] = {kind: [] for kind in jobs}
        self._agents: list[Worker] = []
        for host in range(hosts.count):
            agent, socket = hosts.start_agent(stack, host, folder)
            self._agents.append(agent)
            for kind, job in jobs.items():
                first = (hosts.address(0),) if kind == "torch" else ()
                words = ("-m", "bench.agent.all_reduce_worker", kind, f"{host}", f"{hosts.count}", *first)
                self._workers[kind].append(hosts.start(stack, host, kind, *words, str(job), str(socket)))
        for workers in self._workers.values():
            for member in workers:
                member.wait_for("ready")

    def run(self, variant: str, size: int, count: int) -> tuple[float, float]:
        """Median seconds of an all-reduce, and CPU seconds of a host for a GB."""
        agents = [] if variant == "gloo" else self._agents
        before = sum(agent.cpu_seconds() for agent in agents)
        request = {"variant": variant, "elements": size // 4, "count": count}
        answers = ask_all(self._workers[VARIANTS[variant]], request)
        # The agents' part has the two all-reduces before the measured ones in it.
        agents_cpu = (sum(agent.cpu_seconds() for agent in agents) - before) * count / (count + 2)
        cpu = (sum(answer["cpu"] for answer in answers) + agents_cpu) / len(answers)
        return median(median(answer["seconds"]) for answer in answers), cpu / (count * size / 1e9)


def _used(result: float, size: int, hosts: int, rate: int, slice_bytes: int) -> float:
    """Of the payload rate that a link allows. Every host sends and receives 2 (n - 1) / n of the array."""
    allowed = rate * slice_bytes / (slice_bytes + _FRAME)
    return 8 * size * 2 * (hosts - 1) / hosts / result / allowed


def measure(hosts: Hosts, sizes: Sequence[int], repeats: int, rate: int, buffer: int) -> Iterator[Result]:
    """The variants in turn, `repeats` times, for each size; a `rate` of 0: no limit. Raises ExperimentError."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        team = Team(hosts, Path(folder), stack, rate or _UNLIMITED, buffer)
        for size in sizes:
            count = max(_LEAST, min(_MOST, _VOLUME // size))
            found: dict[str, list[tuple[float, float]]] = {variant: [] for variant in VARIANTS}
            for _ in range(repeats):
                for variant, runs in found.items():
                    runs.append(team.run(variant, size, count))
            for variant, runs in found.items():
                seconds = [run[0] for run in runs]
                middle = median(seconds)
                used = _used(middle, size, hosts.count, rate, MTU - 68) if rate else None
                cpu = median(run[1] for run in runs)
                yield Result(variant, hosts.count, size, rate, repeats, middle, min(seconds), max(seconds), cpu, used)


def _gloo_of(results: Sequence[Result], like: Result) -> Result:
    same = (like.hosts, like.size, like.rate)
    return next(r for r in results if r.variant == "gloo" and (r.hosts, r.size, r.rate) == same)


def tables(results: Sequence[Result]) -> list[TextTable]:
    """Without a limit, and on links of limited rate."""
    rows: list[list[str]] = []
    limited: list[list[str]] = []
    for result in results:
        ratio = result.seconds / _gloo_of(results, result).seconds
        row = [str(result.hosts), f"{result.size / 2**20:g}", result.variant, f"{result.seconds * 1e3:.2f}"]
        row += [f"{result.fastest * 1e3:.2f} - {result.slowest * 1e3:.2f}", f"{ratio:.2f}", f"{result.cpu:.2f}"]
        if result.used is None:
            rows.append(row)
        else:
            limited.append([*row, f"{result.used:.1%}"])
    columns = ["hosts", "MiB", "variant", "ms", "min - max", "of Gloo's", "CPU s/GB"]
    found = [TextTable("All-reduce, no limit", columns, rows)] if rows else []
    if limited:
        found.append(TextTable("All-reduce, links of limited rate", [*columns, "of the rate"], limited))
    return found


def plot(results: Sequence[Result], path: Path) -> None:
    """Throughput by size: a panel for each number of hosts."""
    counts = sorted({r.hosts for r in results if not r.rate})
    with panels(path, 1, len(counts), (5, 3.5), share_y=True) as axes:
        for axis, hosts in zip(axes[0], counts, strict=True):
            for variant in VARIANTS:
                line = [r for r in results if r.variant == variant and r.hosts == hosts and not r.rate]
                axis.plot([r.size for r in line], [r.size / r.seconds / 1e9 for r in line], marker="o", label=variant)
            axis.set(xscale="log", xlabel="bytes", title=f"{hosts} hosts")
        axes[0][0].set_ylabel("GB/s reduced")
        axes[0][0].legend()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.all_reduce", __doc__, "--hosts 2 --sizes 1MiB --repeats 3 --rate 0")
    add = parser.add_argument
    sizes = tuple(map(parse_size, SIZES))
    add("--hosts", type=several(int), default=(2, 4), metavar="A,B", help="(default: 2,4)")
    add("--sizes", type=several(parse_size), default=sizes, metavar="A,B", help=f"(default: {','.join(SIZES)})")
    add("--repeats", type=int, default=7, metavar="N", help="of every measurement (default: %(default)s)")
    add("--rate", type=checked(_rate), default="1gbit", metavar="R", help="of limited links; 0: none (default: 1gbit)")
    return benchmark.run(parser, _run, arguments)


def _rate(text: str) -> int:
    return 0 if text == "0" else parse_rate(text)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    results: list[Result] = []
    for count in options.hosts:
        with Hosts(count) as hosts:
            results += measure(hosts, options.sizes, options.repeats, 0, 16_000_000)
    if options.rate:
        with Hosts(2, rate=options.rate) as hosts:
            results += measure(hosts, [_LINK_SIZE], options.repeats, options.rate, 200_000)
    figure = options.out / "agent.svg"
    plot(results, figure)
    present(console, options, "agent.json", benchmark.document({}, results), tables(results), plot=figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
