# SPDX-License-Identifier: Apache-2.0
"""All-reduce by the agent beside Gloo over TCP: the same hosts, the same minutes, in turn.

Each host is a network namespace on a Linux bridge, with the kernel's offloads and no emulated limit. Then links of
1 Gbit/s: how much of the payload rate that the headers allow is used. Gradlane reduces arrays of its own shared memory
in place ("shared", as PyTorch's buckets), any others to a new one ("plain": copied in), or tensors by its backend of
torch.distributed ("torch": copied in and out, as that reduces in place). All processes have the same real-time
priority, so that other load of the machine weighs little. docs/measurements.md has the figures.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.harness.agent_hosts import MTU, Hosts
from bench.harness.benchmark import save
from bench.harness.netns import WireError
from bench.harness.worker import Worker, ask_all
from gradlane.errors import AgentError
from gradlane.units import parse_rate, parse_size
from lab.report.console import make_console, print_tables
from lab.report.tables import TextTable

SIZES = ("64KiB", "1MiB", "16MiB", "64MiB")
SIDES = {"gloo": "torch", "shared": "gradlane", "plain": "gradlane", "torch": "torch"}  # and whose they are
# So many bytes are reduced in one go of a side, but at least and at most so many times.
_VOLUME, _LEAST, _MOST = 128 << 20, 3, 100
_FRAME = 14 + 20 + 8 + 40  # bytes in front of a slice: Ethernet, IPv4, UDP, the wire header
_LINK_SIZE = 16 << 20
_PRIORITY = 1
_EXAMPLES = """examples:
  sudo python -m bench.agent.all_reduce
  sudo python -m bench.agent.all_reduce --hosts 2 --sizes 1MiB --repeats 3 --rate 0
"""


@dataclass(frozen=True)
class Result:
    """One side, size and number of hosts. Medians over `repeats`, of medians over the all-reduces of each.

    `cpu` is CPU seconds of a host (training process and agent) for a GB all-reduced. `rate`: bit/s of the links, 0: no
    limit; `used`: of the payload rate that headers allow there.
    """

    side: str
    hosts: int
    size: int
    rate: int
    repeats: int
    seconds: float
    fastest: float
    slowest: float
    cpu: float
    used: float | None


class Sides:
    """The processes of Gloo and of Gradlane on all hosts, ready and idle. Raises WireError."""

    def __init__(self, hosts: Hosts, folder: Path, stack: ExitStack, rate: str, buffer: str) -> None:
        jobs = {"torch": folder / "torch.toml", "gradlane": folder / "gradlane.toml"}
        for number, job in enumerate(jobs.values(), 1):
            job.write_text(hosts.job(rate, buffer, number))
        worker = ("-m", "bench.agent.all_reduce_worker")
        self._workers: dict[str, list[Worker]] = {kind: [] for kind in jobs}
        self._agents: list[Worker] = []
        for host in range(hosts.count):
            agent, socket = hosts.start_agent(stack, host, folder)
            self._agents.append(agent)
            for kind, job in jobs.items():
                first = (hosts.address(0),) if kind == "torch" else ()
                words = (*worker, kind, str(host), str(hosts.count), *first, str(job), str(socket))
                self._workers[kind].append(hosts.start(stack, host, kind, *words))
        for workers in self._workers.values():
            for member in workers:
                member.wait_for("ready")

    def run(self, side: str, size: int, count: int) -> tuple[float, float]:
        """Median seconds of an all-reduce, and CPU seconds of a host for a GB."""
        agents = [] if side == "gloo" else self._agents
        before = sum(agent.cpu_seconds() for agent in agents)
        answers = ask_all(self._workers[SIDES[side]], {"variant": side, "elements": size // 4, "count": count})
        # The agents' part has the two all-reduces before the measured ones in it.
        agents_cpu = (sum(agent.cpu_seconds() for agent in agents) - before) * count / (count + 2)
        cpu = (sum(answer["cpu"] for answer in answers) + agents_cpu) / len(answers)
        return median(median(answer["seconds"]) for answer in answers), cpu / (count * size / 1e9)


def _used(result: float, size: int, hosts: int, rate: int, slice_bytes: int) -> float:
    """Of the payload rate that a link allows. Every host sends and receives 2 (n - 1) / n of the array."""
    allowed = rate * slice_bytes / (slice_bytes + _FRAME)
    return 8 * size * 2 * (hosts - 1) / hosts / result / allowed


def measure(hosts: Hosts, sizes: Sequence[int], repeats: int, rate: int, buffer: str) -> Iterator[Result]:
    """The sides in turn, `repeats` times, for each size. Raises WireError."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        sides = Sides(hosts, Path(folder), stack, f"{rate or 100_000_000_000}bit", buffer)
        for size in sizes:
            count = max(_LEAST, min(_MOST, _VOLUME // size))
            found: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
            for _ in range(repeats):
                for side, runs in found.items():
                    runs.append(sides.run(side, size, count))
            for side, runs in found.items():
                seconds = [run[0] for run in runs]
                middle = median(seconds)
                used = _used(middle, size, hosts.count, rate, MTU - 68) if rate else None
                cpu = median(run[1] for run in runs)
                yield Result(side, hosts.count, size, rate, repeats, middle, min(seconds), max(seconds), cpu, used)


def _gloo_of(results: Sequence[Result], like: Result) -> Result:
    same = (like.hosts, like.size, like.rate)
    return next(r for r in results if r.side == "gloo" and (r.hosts, r.size, r.rate) == same)


def tables(results: Sequence[Result]) -> list[TextTable]:
    """Without a limit, and on links of limited rate."""
    rows: list[list[str]] = []
    limited: list[list[str]] = []
    for result in results:
        ratio = result.seconds / _gloo_of(results, result).seconds
        row = [str(result.hosts), f"{result.size / 2**20:g}", result.side, f"{result.seconds * 1e3:.2f}"]
        row += [f"{result.fastest * 1e3:.2f} - {result.slowest * 1e3:.2f}", f"{ratio:.2f}", f"{result.cpu:.2f}"]
        if result.used is None:
            rows.append(row)
        else:
            limited.append([*row, f"{result.used:.1%}"])
    columns = ["hosts", "MiB", "side", "ms", "min - max", "of Gloo's", "CPU s/GB"]
    found = [TextTable("All-reduce, no limit", columns, rows)] if rows else []
    if limited:
        found.append(TextTable("All-reduce, links of limited rate", [*columns, "of the rate"], limited))
    return found


def plot(results: Sequence[Result], path: Path) -> None:
    """Time beside Gloo's, by size."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    counts = sorted({r.hosts for r in results if not r.rate})
    figure, axes = plt.subplots(1, len(counts), figsize=(5 * len(counts), 3.5), sharey=True, squeeze=False)
    for axis, hosts in zip(axes[0], counts, strict=True):
        for side in SIDES:
            line = [r for r in results if r.side == side and r.hosts == hosts and not r.rate]
            axis.plot([r.size for r in line], [r.size / r.seconds / 1e9 for r in line], marker="o", label=side)
        axis.set(xscale="log", xlabel="bytes", title=f"{hosts} hosts")
    axes[0][0].set_ylabel("GB/s reduced")
    axes[0][0].legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit code: 0, 1 (something failed on the way), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    console = make_console(to_stderr=options.json)
    results: list[Result] = []
    try:
        # For every process of both sides: other load of the machine is to take from neither.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
        for count in options.hosts:
            with Hosts(count) as hosts:
                results += measure(hosts, options.sizes, options.repeats, 0, "16MB")
        if options.rate:
            with Hosts(2, rate=options.rate) as hosts:
                results += measure(hosts, [_LINK_SIZE], options.repeats, options.rate, "200kB")
    except (WireError, AgentError, PermissionError) as problem:
        print(f"agent: error: {problem}", file=sys.stderr)
        return 1
    print_tables(console, tables(results))
    save(options.out / "agent.json", {}, results, show=options.json)
    plot(results, options.out / "agent.svg")
    return 0


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(parse_size(part.strip()) for part in text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _rate(text: str) -> int:
    return 0 if text == "0" else parse_rate(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agent.py", description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=_numbers, default=(2, 4), metavar="A,B", help="(default: 2,4)")
    parser.add_argument("--sizes", type=_sizes, default=_sizes(",".join(SIZES)), metavar="A,B", help=f"({SIZES})")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="of every measurement (default: 7)")
    parser.add_argument("--rate", type=_rate, default=10**9, metavar="R", help="of limited links; 0: none (1gbit)")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="results as JSON on standard output")
    return parser


if __name__ == "__main__":
    sys.exit(main())
