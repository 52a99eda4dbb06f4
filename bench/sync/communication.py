# SPDX-License-Identifier: Apache-2.0
"""What an exchange costs, without computation: groups of DS-Sync against all-reduces of all, float32.

Each host is a network namespace behind a port of limited rate. A ring sends and receives 2 (n - 1) / n of the array, a
pair once, a group of a grid 2 (g - 1) / g. The least that can be is the time of that at a port.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.harness import benchmark
from bench.harness.agent_hosts import MTU, Hosts
from bench.harness.worker import Worker, wait_for_all
from gradlane.units import checked, parse_rate, parse_size
from lab.command_line import several
from lab.report.console import make_console, present
from lab.report.tables import TextTable

ARMS: Mapping[str, Mapping[str, Any]] = {
    "gloo": {},
    "ring": {"transport": {"collective": "ring"}},
    "direct": {"transport": {"collective": "direct"}},
    "grid": {"sync": {"scheme": "ds-sync", "schedule": "grid"}},
    "pairs": {"sync": {"scheme": "ds-sync", "schedule": "pairs"}},
}
_WORKER = ("-m", "bench.sync.communication_worker")
_BUFFER = 200_000  # bytes of a port, half of what it holds
_SLICE, _FRAME = MTU - 68, 14 + 20 + 8 + 40  # bytes of payload; in front of it
_NOTICE = 0.1  # s from a request to its beginning


@dataclass(frozen=True)
class Result:
    """Medians over `repeats`, seconds of an exchange at the slowest worker. `least`: at the rate of the payload."""

    arm: str
    hosts: int
    repeats: int
    seconds: float
    fastest: float
    slowest: float
    least: float


def crossing(arm: str, hosts: int) -> float:
    """How many times a worker receives the array in an exchange; of a full grid."""
    members = {"pairs": 2, "grid": math.ceil(math.sqrt(hosts))}.get(arm, hosts)
    return 2 * (members - 1) / members


def measure(hosts: Hosts, options: argparse.Namespace, say: Callable[[str], None]) -> list[Result]:
    """The arms in turn, `repeats` times. `say` is told how far it is. Raises ExperimentError."""
    found: dict[str, list[float]] = {arm: [] for arm in ARMS}
    with tempfile.TemporaryDirectory() as place, ExitStack() as stack:
        folder = Path(place)
        named: list[str] = []
        for number, (arm, tables) in enumerate(ARMS.items(), 1):
            if tables:
                job = hosts.write_job(folder / f"{arm}.toml", options.rate, _BUFFER, number=number, **tables)
                named.append(f"{arm}={'scheme' if 'sync' in tables else 'all-reduce'}={job}")
        first = (*_WORKER, f"{hosts.count}", f"{options.size // 4}", hosts.address(0))
        workers: list[Worker] = []
        for host in range(hosts.count):
            _, socket = hosts.start_agent(stack, host, folder)
            workers.append(hosts.start(stack, host, "exchanging", *first, f"{host}", f"{socket}", *named))
        wait_for_all(stack, workers)
        for turn in range(options.repeats + 1):
            for arm, times in found.items():
                at = time.monotonic() + _NOTICE
                for worker in workers:
                    worker.ask({"arm": arm, "at": at, "count": options.count if turn else 1})
                seconds = max(json.loads(worker.hear()) for worker in workers)
                if turn:  # the first one makes connections and groups
                    times.append(seconds)
            say(f"{hosts.count} hosts: {turn} of {options.repeats} measurements of each of {', '.join(found)}")
    one = 8 * options.size / (options.rate * _SLICE / (_SLICE + _FRAME))
    results: list[Result] = []
    for arm, times in found.items():
        least = crossing(arm, hosts.count) * one
        results.append(Result(arm, hosts.count, options.repeats, median(times), min(times), max(times), least))
    return results


def table(results: Sequence[Result]) -> TextTable:
    """A row for each arm and number of hosts."""
    rows: list[list[str]] = []
    for r in results:
        ring = next(other for other in results if (other.arm, other.hosts) == ("ring", r.hosts))
        rows.append(
            [
                f"{r.hosts} hosts, {r.arm}",
                f"{r.seconds * 1e3:.1f}",
                f"{r.fastest * 1e3:.1f} to {r.slowest * 1e3:.1f}",
                f"{r.least * 1e3:.1f}",
                f"{r.seconds / r.least:.2f}",
                f"{ring.seconds / r.seconds:.2f}",
            ]
        )
    columns = ("", "ms", "least to greatest", "theory, ms", "of it", "ring's of this")
    return TextTable("An exchange", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("sync.communication", __doc__, "--hosts 8,16 --size 2MiB")
    add = parser.add_argument
    add("--hosts", type=several(int), default=(16,), metavar="N,M", help="(default: 16)")
    add("--size", type=checked(parse_size), default="1MiB", metavar="S", help="of the array (default: 1MiB)")
    add("--rate", type=checked(parse_rate), default="25mbit", metavar="R", help="of links (default: 25mbit)")
    add("--count", type=int, default=4, metavar="N", help="exchanges of a measurement (default: %(default)s)")
    add("--repeats", type=int, default=5, metavar="N", help="of every measurement (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    benchmark.take_priority()
    results: list[Result] = []
    for count in options.hosts:
        with Hosts(count, rate=options.rate) as hosts:
            results += measure(hosts, options, lambda text: console.print(text, soft_wrap=True))
    settings = benchmark.chosen(options, "size", "rate", "count")
    document = benchmark.document(settings, results)
    present(console, options, "sync-communication.json", document, [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
