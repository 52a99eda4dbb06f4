# SPDX-License-Identifier: Apache-2.0
"""All-reduce by the agent against Gloo and Open MPI over TCP: on the same hosts, in turn, within the same minutes.

Places: "bridge" - each host is a network namespace on a Linux bridge, with the kernel's offloads and no emulated limit;
"loopback" - all hosts are in one namespace, as on one machine, with an address of its loopback each; "port" - two hosts
on the bridge, whose ports have a rate: how much of the payload rate that the headers allow is used.

Variants: "gloo"; "mpi" (left out where Open MPI is not installed); and Gradlane, which reduces arrays of its own shared
memory in place ("shared", as PyTorch's buckets), any others to a new one ("plain": copied in), or tensors by its
backend of torch.distributed ("torch": copied in and out, as that reduces in place); the latter two also with the agent
in the training process ("process", "torch-process": not copied). All processes have the same real-time priority, so
that other load of the machine weighs little. docs/measurements/agent.md has the figures.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.agent import mpi
from bench.agent.all_reduce_tables import PLACES, Result, median_ratio, plot, summaries, tables
from bench.agent.all_reduce_team import COLLECTIVES, VARIANTS, Team
from bench.harness import benchmark
from bench.harness.agent_hosts import MTU, AgentHosts, Hosts, Loopback
from gradlane.units import checked, parse_rate, parse_size
from lab.command_line import names_of, several
from lab.model.errors import UsageError
from lab.report.console import make_console, present

SIZES = ("64KiB", "1MiB", "4MiB", "16MiB", "64MiB")
# So many bytes are reduced in one go of a variant, but at least and at most so many times.
_VOLUME, _LEAST, _MOST = 128 << 20, 3, 100
_FRAME = 14 + 20 + 8 + 40  # bytes in front of a slice: Ethernet, IPv4, UDP, the wire header
_PORT_SIZE = 16 << 20


def _used(result: float, size: int, hosts: int, rate: int, slice_bytes: int) -> float:
    """Of the payload rate that a link allows. Every host sends and receives 2 (n - 1) / n of the array."""
    allowed = rate * slice_bytes / (slice_bytes + _FRAME)
    return 8 * size * 2 * (hosts - 1) / hosts / result / allowed


def _measure(
    place: str,
    hosts: AgentHosts,
    variants: Sequence[str],
    sizes: Sequence[int],
    repeats: int,
    rate: int,
    runners: int,
    collective: str,
) -> Iterator[Result]:
    """The variants in turn, `repeats` times, for each size; a `rate` of 0: no limit. Raises ExperimentError."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        team = Team(hosts, Path(folder), stack, variants, rate, runners, collective)
        for size in sizes:
            count = max(_LEAST, min(_MOST, _VOLUME // size))
            found: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
            for _ in range(repeats):
                for variant, runs in found.items():
                    runs.append(team.run(variant, size, count))
            gloo = [seconds for seconds, _ in found.get("gloo", [])]
            for variant, runs in found.items():
                seconds, cpu = zip(*runs, strict=True)
                middle = median(seconds)
                used = _used(middle, size, hosts.count, rate, MTU - 68) if rate else None
                yield Result(
                    place=place,
                    hosts=hosts.count,
                    size=size,
                    variant=variant,
                    rate=rate,
                    repeats=repeats,
                    seconds=middle,
                    fastest=min(seconds),
                    slowest=max(seconds),
                    by_gloo=median_ratio(seconds, gloo) if gloo else None,
                    cpu=median(cpu),
                    used=used,
                )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("agent.all_reduce", __doc__, "--hosts 2 --sizes 1MiB --repeats 3 --places loopback")
    add = parser.add_argument
    sizes = tuple(map(parse_size, SIZES))
    every = {"places": PLACES, "variants": VARIANTS}
    add("--hosts", type=several(int), default=(2, 4, 8, 16), metavar="A,B", help="(default: 2,4,8,16)")
    add("--sizes", type=several(parse_size), default=sizes, metavar="A,B", help=f"(default: {','.join(SIZES)})")
    for option, known in every.items():
        kind = names_of(known, option[:-1])
        add(f"--{option}", type=kind, default=tuple(known), metavar="A,B", help=f"(default: {','.join(known)})")
    add("--repeats", type=int, default=3, metavar="N", help="of every measurement (default: %(default)s)")
    add("--rate", type=checked(parse_rate), default="1gbit", metavar="R", help="of the ports (default: 1gbit)")
    add("--runners", type=int, default=1, metavar="N", help="of each agent (default: %(default)s)")
    add("--collective", choices=COLLECTIVES, default="auto", help="of Gradlane's jobs (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    variants: list[str] = [variant for variant in VARIANTS if variant in options.variants]
    if "mpi" in variants and not mpi.installed():
        variants.remove("mpi")
        how = f"apt-get install {mpi.PACKAGES}"
        if not variants:
            raise UsageError(f"Open MPI is not installed: {how}")
        console.print(f"mpi is left out, as Open MPI is not installed: {how}", soft_wrap=True)
    benchmark.take_priority()
    results: list[Result] = []

    def measure(place: str, hosts: AgentHosts, sizes: Sequence[int], rate: int = 0) -> None:
        console.print(f"{place}: {hosts.count} hosts")
        results.extend(
            _measure(place, hosts, variants, sizes, options.repeats, rate, options.runners, options.collective)
        )

    for place, kind in (("bridge", Hosts), ("loopback", Loopback)):
        for count in options.hosts if place in options.places else ():
            with kind(count) as hosts:
                measure(place, hosts, options.sizes)
    if "port" in options.places:
        with Hosts(2, rate=options.rate) as hosts:
            measure("port", hosts, [_PORT_SIZE], options.rate)
    chosen = benchmark.chosen(options, "runners", "collective")
    settings = {**chosen, "summary": [asdict(summary) for summary in summaries(results)]}
    figures = {}
    if any(result.used is None for result in results):
        figures["plot"] = options.out / "agent.svg"
        plot(results, figures["plot"])
    present(console, options, "agent.json", benchmark.document(settings, results), tables(results), **figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
