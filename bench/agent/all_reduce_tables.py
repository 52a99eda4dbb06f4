# SPDX-License-Identifier: Apache-2.0
"""What bench.agent.all_reduce found, as results, tables and a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median

from bench.agent.all_reduce_team import VARIANTS
from bench.harness.figure import panels
from lab.report.tables import TextTable

PLACES = {
    "bridge": "namespaces around a bridge",
    "loopback": "one namespace, by its loopback",
    "port": "ports of limited rate",
}
"""Where the hosts are."""


@dataclass(frozen=True)
class Result:
    """One place, number of hosts, size and variant. Medians over `repeats`, of medians over the all-reduces of each.

    `by_gloo` is the time by Gloo's in the same turn, as what slows the machine down for longer slows both; None where
    Gloo was not measured. `cpu` is CPU seconds of a host (training process and agent) for a GB all-reduced. `rate`:
    bit/s of the ports, 0: no limit; `used`: of the payload rate that headers allow there.
    """

    place: str
    hosts: int
    size: int
    variant: str
    rate: int
    repeats: int
    seconds: float
    fastest: float
    slowest: float
    by_gloo: float | None
    cpu: float
    used: float | None


@dataclass(frozen=True)
class Summary:
    """A variant's times by Gloo's, over all sizes and numbers of hosts of a place: the geometric mean, and the greatest
    with its hosts and bytes."""

    place: str
    variant: str
    mean: float
    worst: float
    hosts: int
    size: int


def median_ratio(seconds: Sequence[float], others: Sequence[float]) -> float:
    """The median of the ratios turn by turn."""
    return median(mine / its for mine, its in zip(seconds, others, strict=True))


def summaries(results: Sequence[Result]) -> list[Summary]:
    """One for each place and variant that can be compared."""
    found: list[Summary] = []
    for place, variant in dict.fromkeys((result.place, result.variant) for result in results):
        same = [result for result in results if (result.place, result.variant) == (place, variant)]
        ratios = [result.by_gloo for result in same if result.by_gloo is not None]
        if variant != "gloo" and ratios:
            worst = same[ratios.index(max(ratios))]
            found.append(Summary(place, variant, geometric_mean(ratios), max(ratios), worst.hosts, worst.size))
    return found


def tables(results: Sequence[Result]) -> list[TextTable]:
    """Times, CPU, what is used of the ports, and the summaries: a row for each place, number of hosts and size."""
    variants = [variant for variant in VARIANTS if any(result.variant == variant for result in results)]
    points = list(dict.fromkeys((result.place, result.hosts, result.size) for result in results))
    times: list[list[str]] = []
    cpu: list[list[str]] = []
    used: list[list[str]] = []
    for point in points:
        of = {result.variant: result for result in results if (result.place, result.hosts, result.size) == point}
        name = f"{point[0]}, {point[1]} hosts, {_mib(point[2])}"
        row = [name]
        for variant in variants:
            row.append(f"{of[variant].seconds * 1e3:.2f}")
            if variant != "gloo":
                by_gloo = of[variant].by_gloo
                row.append("-" if by_gloo is None else f"{by_gloo:.2f}")
        times.append(row)
        cpu.append([name, *(f"{of[variant].cpu:.2f}" for variant in variants)])
        if all(result.used is not None for result in of.values()):
            used.append([name, *(f"{of[variant].used:.1%}" for variant in variants)])
    heads = [head for variant in variants for head in ((variant,) if variant == "gloo" else (variant, "by Gloo's"))]
    found = [
        TextTable("All-reduce, ms", ["place", *heads], times),
        TextTable("CPU of a host, s/GB", ["place", *variants], cpu),
    ]
    if used:
        found.append(TextTable("Used of the payload rate that the port's rate allows", ["place", *variants], used))
    if compared := summaries(results):
        columns = ["place", "variant", "geometric mean", "worst", "where"]
        found.append(TextTable("Time by Gloo's", columns, [_summary_row(summary) for summary in compared]))
    return found


def _summary_row(summary: Summary) -> list[str]:
    where = f"{summary.hosts} hosts, {_mib(summary.size)}"
    return [summary.place, summary.variant, f"{summary.mean:.2f}", f"{summary.worst:.2f}", where]


def _mib(size: int) -> str:
    return f"{size / 2**20:.3g} MiB"


def plot(results: Sequence[Result], path: Path) -> None:
    """Throughput by size: a row for each place without a limit, a panel for each number of hosts."""
    lines = [result for result in results if result.used is None]
    places = list(dict.fromkeys(result.place for result in lines))
    counts = sorted({result.hosts for result in lines})
    with panels(path, len(places), len(counts), (5, 3.5), share_y=True) as axes:
        for place, row in zip(places, axes, strict=True):
            for hosts, axis in zip(counts, row, strict=True):
                for variant in VARIANTS:
                    line = [r for r in lines if (r.place, r.hosts, r.variant) == (place, hosts, variant)]
                    if line:
                        speeds = [r.size / r.seconds / 1e9 for r in line]
                        axis.plot([r.size for r in line], speeds, marker="o", label=variant)
                axis.set(xscale="log", xlabel="bytes", title=f"{place}, {hosts} hosts")
            row[0].set_ylabel("GB/s reduced")
        axes[0][0].legend()
