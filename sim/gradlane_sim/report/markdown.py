# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/simulation.md, made of what is kept of runs.

A cell is the mean over seeds, and behind ± half of the width of the 95 % interval by Student's t, if there are two
seeds or more. What has not run keeps the cell that the page has of it.
"""

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gradlane_sim.cases import Scenario
from gradlane_sim.errors import SimulationError
from gradlane_sim.report import figures
from gradlane_sim.report.figures import NOTHING, Summary
from gradlane_sim.running import Outcome

# Of Student's t, 97.5 %, by degrees of freedom from 1 on.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
MOST_SEEDS = len(_T) + 1
ARMS = {
    "gradlane-p0": "Gradlane, p = 0",
    "gradlane-p3": "Gradlane, p = 3 %",
    "gradlane-p10": "Gradlane, p = 10 %",
    "dctcp": "DCTCP",
    "cubic": "Cubic",
    "pias": "PIAS",
    "pfabric": "pFabric",
    "trimming": "trimming",
}
# By scenario and arm: what each seed has shown.
Found: TypeAlias = Mapping[tuple[str, str], Sequence[Summary]]
Value: TypeAlias = Callable[[Summary], float | None]
# Lines of cells; the first is the head.
Table: TypeAlias = Sequence[Sequence[str]]


def _of_ideal(it: Summary) -> float | None:
    return it.step / it.ideal if it.step is not None and it.ideal else None


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _slowdown(it: Summary) -> float | None:
    return it.slowdown["all"]["mean"] if it.slowdown and it.slowdown["all"] else None


@dataclass(frozen=True)
class Comparison:
    """A row for each scenario, a column for each arm; the least of several is bold. `rows`: what is said of it, by
    scenario."""

    title: str
    rows: Mapping[str, str]
    value: Value = _of_ideal
    arms: tuple[str, ...] = ("gradlane-p0", "dctcp", "cubic", "pfabric", "trimming")

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Scenarios and arms."""
        return [(scenario, arm) for scenario in self.rows for arm in self.arms]

    def lines(self, found: Found, before: Table = ()) -> list[list[str]]:
        """`before`: the table that the page has."""
        head = [self.title, "seeds", *(ARMS[arm] for arm in self.arms)]
        old = {row[0]: dict(zip(before[0], row, strict=True)) for row in before[1:]}
        lines = [head]
        for scenario, label in self.rows.items():
            row = old.get(label, {})
            cells: list[str] = []
            seeds: set[int] = set()
            for arm in self.arms:
                runs = found.get((scenario, arm), ())
                cells.append(_cell(runs, self.value) if runs else row.get(ARMS[arm], NOTHING).strip("*"))
                seeds |= {len(runs)} if runs else _seeds_of(cells[-1], row.get("seeds", NOTHING))
            means = [_mean_of(cell) for cell in cells]
            known = [it for it in means if it is not None]
            best = [len(known) > 1 and mean == min(known) for mean in means]
            shown = [f"**{cell}**" if bold else cell for cell, bold in zip(cells, best, strict=True)]
            lines.append([label, _range(seeds), *shown])
        return lines


@dataclass(frozen=True)
class Details:
    """A row for each scenario and arm, the best first."""

    title: str
    rows: Mapping[str, str]
    arms: tuple[str, ...] = ("gradlane-p0", "gradlane-p10", "dctcp", "cubic", "pfabric", "trimming")

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Scenarios and arms."""
        return [(scenario, arm) for scenario in self.rows for arm in self.arms]

    def lines(self, found: Found, before: Table = ()) -> list[list[str]]:
        """`before`: the table that the page has."""
        lines = [[self.title, "arm", "seeds", *(name for name, _ in _DETAILS), "no room in a port"]]
        old: dict[tuple[str, str], Sequence[str]] = {}
        first = ""
        for row in before[1:]:
            first = row[0] or first
            old[first, row[1]] = row[2:]
        for scenario, label in self.rows.items():
            there: list[list[str]] = []
            for arm in self.arms:
                if runs := found.get((scenario, arm), ()):
                    cells = [_cell(runs, value) for _, value in _DETAILS]
                    no_room = f"{statistics.fmean(it.no_room for it in runs):,.0f}"
                    there.append([ARMS[arm], str(len(runs)), *cells, no_room])
                elif kept := old.get((label, ARMS[arm])):
                    there.append([ARMS[arm], *kept])
            there.sort(key=lambda row: _mean_of(row[2]) or math.inf)
            lines += [["" if place else label, *row] for place, row in enumerate(there)]
        return lines


_DETAILS: tuple[tuple[str, Value], ...] = (
    ("of ideal", _of_ideal),
    ("operation p99", lambda it: _ms(it.p99)),
    ("message mean", lambda it: _ms(it.message_mean)),
    ("message p99", lambda it: _ms(it.message_p99)),
)
_LOADS = {
    f"{sizes}-{load}": f"{name}, load {load}"
    for sizes, name in (("web-search", "web search"), ("data-mining", "data mining"))
    for load in ("0.2", "0.4", "0.6", "0.8")
}
_RACKS = {
    of: f"{what}, {how}"
    for what, scenarios in (
        ("oversubscription 2, 1 MB", ("oversubscribed-2", "racks-grid-2", "racks-ring-2")),
        ("oversubscription 4, 1 MB", ("oversubscribed-4", "racks-grid-4", "racks-ring-4")),
        ("oversubscription 2, 4 MB", [f"racks-4MB-32-{how}-2" for how in ("direct", "grid", "ring")]),
        ("oversubscription 4, 4 MB", [f"racks-4MB-32-{how}-4" for how in ("direct", "grid", "ring")]),
        ("144 hosts, oversubscription 4, 1 MB", [f"racks-1MB-144-{how}-4" for how in ("direct", "grid", "ring")]),
        ("two jobs, oversubscription 2, 1 MB", ("jobs-2", "jobs-grid-2", "jobs-ring-2")),
        ("four jobs, oversubscription 2, 1 MB", ("jobs-4", "jobs-grid-4", "jobs-ring-4")),
    )
    for of, how in zip(scenarios, ("direct", "grid", "ring"), strict=True)
}
_WITH_PIAS = ("gradlane-p0", "dctcp", "cubic", "pias", "pfabric", "trimming")
TABLES: dict[str, Comparison | Details] = {
    "incast": Details(
        "incast; times in ms",
        {
            "incast-32": "31 workers, 256 kB, 10/20 Gbit/s",
            "incast-144-10G": "143 workers, 256 kB, 10/40 Gbit/s",
            "incast-144-100G": "143 workers, 256 kB, 100/400 Gbit/s",
            "incast-1024": "1,023 workers, 64 kB, three tiers",
        },
    ),
    "all-reduce": Details(
        "all-reduce of 1 MB; times in ms",
        {
            "direct-32": "32 hosts, 10/20 Gbit/s",
            "direct-144-10G": "144 hosts, 10/40 Gbit/s",
            "direct-144-100G": "144 hosts, 100/400 Gbit/s",
        },
    ),
    "fabrics": Comparison(
        "all-reduce of 1 MB, 10 Gbit/s",
        {
            "growth-8": "8 hosts",
            "growth-16": "16 hosts",
            "growth-32": "32 hosts",
            "growth-64": "64 hosts",
            "ring-144-10G": "144 hosts in a ring",
            "grid-144-10G": "144 hosts in a grid",
            "fat-tree-128": "128 hosts of a fat tree, 500 kB",
            "oversubscribed-2": "32 hosts, oversubscription 2 (1.55 is ideal)",
            "oversubscribed-4": "32, oversubscription 4 (3.10 is ideal)",
            "deep-4": "the same, ports of 2 MB",
            "slow-link": "32, a link between switches at a quarter",
            "jobs-2": "two jobs of 16, oversubscription 2",
            "jobs-4": "four jobs of 8, oversubscription 2",
            "mixed-rates-even": "32, links of 2.5, 5 and 10 Gbit/s, 4 MB in equal shares",
            "mixed-rates-uneven": "the same, uneven shares",
        },
    ),
    "racks": Comparison("32 hosts in four racks, or 144 in nine", _RACKS),
    "models": Comparison(
        "32 hosts train",
        {
            "resnet50": "ResNet-50, 100 Gbit/s",
            "bert-large": "BERT-large",
            "gpt2-xl": "GPT-2 XL",
            "vgg16": "VGG-16",
            "tail-1.5": "250 kB, 10 Gbit/s; p99 of computations 1.5 times the median",
            "tail-3": "the same, 3 times",
        },
    ),
    "loads": Comparison(
        "32 hosts reduce 1 MB beside",
        {**_LOADS, "beside-three-tiers": "web search, load 0.4; 16 hosts of a fat tree"},
        arms=_WITH_PIAS,
    ),
    "flows": Comparison("slowdown of flows beside them", _LOADS, _slowdown, _WITH_PIAS),
    "faults": Comparison(
        "32 hosts reduce 1 MB",
        {
            "dying-spine": "a spine fails after 0.5 ms",
            "loss-0.0001": "each link loses 0.01 %",
            "loss-0.001": "0.1 %",
            "loss-0.01": "1 %",
            "loss-0.1": "10 %",
        },
    ),
}


def found_of(scenarios: Mapping[str, Scenario], outcomes: Sequence[Outcome]) -> Found:
    """What the tables are made of. Raises SimulationError if there are more seeds than intervals are known for."""
    found: dict[tuple[str, str], list[Summary]] = {}
    for it in outcomes:
        runs = found.setdefault((it.case.scenario, it.case.arm.name), [])
        runs += figures.summaries(scenarios[it.case.scenario], [it])
        if len(runs) > MOST_SEEDS:
            raise SimulationError(f"tables are of at most {MOST_SEEDS} seeds")
    return found


def render(lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    head, *rows = lines
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def replaced(text: str, tables: Mapping[str, str]) -> str:
    """A page with these tables between their markers. Raises SimulationError if it has no place for one."""
    for name, table in tables.items():
        before, _, after = _parted(text, name)
        text = f"{before}\n{table}\n{after}"
    return text


def table_of(text: str, name: str) -> Table:
    """What a page has between the markers of a table. Raises SimulationError if it has no place for it."""
    lines = [line[2:-2].split(" | ") for line in _parted(text, name)[1].split("\n") if line.startswith("|")]
    return [*lines[:1], *lines[2:]]


def _parted(text: str, name: str) -> tuple[str, str, str]:
    """What is before, between and behind the markers, which are in the first and the last part."""
    begin, end = f"<!-- table {name} -->\n", f"\n<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    between, over, after = rest.partition(end)
    if not found or not over:
        raise SimulationError(f"the page has no place for a table: {begin.strip()} and {end.strip()}")
    return before + begin, between, end + after


def interval(values: Sequence[float]) -> float | None:
    """Half of the width of the 95 % interval of the mean, by Student's t. None of a single value."""
    if len(values) < 2:
        return None
    return _T[len(values) - 2] * statistics.stdev(values) / math.sqrt(len(values))


def number(mean: float, half: float | None) -> str:
    """In three digits, but never more than two behind the point."""
    places = min(2, max(0, 2 - math.floor(math.log10(mean)))) if mean > 0 else 0
    return f"{mean:,.{places}f}" + ("" if half is None else f" ± {half:,.{places}f}")


def _failed(runs: Sequence[Summary]) -> int:
    return sum(bool(it.errors) for it in runs)


def _values(runs: Sequence[Summary], value: Value) -> list[float]:
    return [found for it in runs if (found := value(it)) is not None]


def _mean_of(cell: str) -> float | None:
    """None: there is nothing, or a run has failed."""
    found = re.fullmatch(r"([\d,.]+)( ± [\d,.]+)?", cell)
    return float(found[1].replace(",", "")) if found else None


def _cell(runs: Sequence[Summary], value: Value) -> str:
    if failed := _failed(runs):
        return f"{failed} of {len(runs)} fail"
    values = _values(runs, value)
    return number(statistics.fmean(values), interval(values)) if values else NOTHING


def _seeds_of(cell: str, column: str) -> set[int]:
    """Of how many seeds a page's cell is, or may be, by what stands there for its row."""
    if failed := re.fullmatch(r"\d+ of (\d+) fail", cell):
        return {int(failed[1])}
    if _mean_of(cell) is None:
        return set()
    return {it for it in map(int, re.findall(r"\d+", column)) if it > 1} if "±" in cell else {1}


def _range(seeds: set[int]) -> str:
    return NOTHING if not seeds else " to ".join(map(str, sorted({min(seeds), max(seeds)})))
