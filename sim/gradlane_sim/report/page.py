# SPDX-License-Identifier: Apache-2.0
"""The report of a study as a page: a single HTML file with everything in it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import lab.report
from gradlane_sim.cases import Scenario
from gradlane_sim.report import plots
from gradlane_sim.report.figures import COLUMNS, Found, Summary, cells, drops, summaries
from lab.report.plots import drop_map

_FOLDERS = (Path(__file__).parent, Path(lab.report.__file__).parent)
_PAGES = Environment(loader=FileSystemLoader(_FOLDERS), autoescape=True, undefined=StrictUndefined)


def render(study: str, found: Found) -> str:
    """The report as HTML."""
    color = plots.colors([arm for scenario, _ in found for arm in scenario.arms])
    with_rows = [(scenario, summaries(scenario, outcomes), outcomes) for scenario, outcomes in found]
    families: dict[str, list[tuple[Scenario, Sequence[Summary]]]] = {}
    for scenario, rows, _ in with_rows:
        families.setdefault(scenario.family, []).append((scenario, rows))
    seeds = sorted({it.case.seed for _, outcomes in found for it in outcomes})
    return _PAGES.get_template("study.html.j2").render(
        study=study,
        headline=headline(with_rows[0][0], with_rows[0][1]),
        seeds=", ".join(str(seed) for seed in seeds),
        columns=COLUMNS,
        growth=[plots.growth(of, color) for family, of in families.items() if family and len(of) > 1],
        scenarios=[
            {
                "name": scenario.name,
                "summary": scenario.summary[0].upper() + scenario.summary[1:] + ".",
                "completions": plots.completions(rows, color) if any(it.curve for it in rows) else "",
                "ideal": plots.against_ideal(rows, color) if any(it.mean is not None for it in rows) else "",
                "drops": drop_map(taken) if (taken := drops(outcomes)) else "",
                "rows": [{"color": color[it.arm.name], "note": it.arm.summary, "cells": cells(it)} for it in rows],
                "errors": _errors(rows),
            }
            for scenario, rows, outcomes in with_rows
        ],
    )


def headline(scenario: Scenario, rows: Sequence[Summary]) -> str:
    """Of the first scenario: its fastest Gradlane arm, against the best of the others; without others, against
    ideal."""
    ours = [it for it in rows if it.arm.subject and it.mean is not None]
    others = [it for it in rows if not it.arm.subject and it.mean is not None]
    if not ours:
        return f"{scenario.name}: Gradlane completed nothing"
    best = min(ours, key=lambda it: it.mean or 0)
    if not others:
        return f"{scenario.name}: {best.arm.name} took {(best.step or 0) / best.ideal:.2f} times the ideal step"
    rival = min(others, key=lambda it: it.mean or 0)
    change = (best.mean or 0) / (rival.mean or 1) - 1
    than = f"{abs(change):.0%} {'below' if change < 0 else 'above'} {rival.arm.name}'s"
    return f"{scenario.name}: the mean completion of {best.arm.name} is {than}"


def _errors(rows: Sequence[Summary]) -> list[Any]:
    return [f"{it.arm.name}: {error}" for it in rows for error in dict.fromkeys(it.errors)]
