# SPDX-License-Identifier: Apache-2.0
"""The report of one scenario as a page: a single HTML file with everything in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from lab.model.arms import ARMS
from lab.model.results import ArmResult, Claim, best_baseline, same_work, speed_up
from lab.report import plots, tables, waiting_plots

_PAGES = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)


def render(
    scenario: str, summary: str, settings: Mapping[str, Any], results: Sequence[ArmResult], claims: Sequence[Claim]
) -> str:
    """The report as HTML. `results` are the arms of one scenario with one seed, the subject of the headline first."""
    subject = results[0]
    color = plots.colors(results)
    dropped = next((result for result in results if result.switch.drop_map), None)
    waits = any(result.exchanges for result in results)
    return _PAGES.get_template("report.html.j2").render(
        scenario=scenario,
        summary=summary[0].upper() + summary[1:] + ".",
        headline=_headline_of_work(results) if waits else _headline(results),
        figures=_figures_of_work(results) if waits else _key_figures(results),
        waiting_timeline=waiting_plots.timeline(results) if waits else "",
        waiting_shares=waiting_plots.shares(results) if waits else "",
        work_columns=tables.WORK,
        work_rows=tables.work(results) if waits else [],
        metric=subject.metric,
        metric_plot=plots.metric_over_time(results, color),
        step_plot=plots.step_times(results, color),
        drop_plot=plots.drop_map(plots.drops(dropped)) if dropped else "",
        drop_arm=dropped.arm if dropped else "",
        columns=tables.FIGURES,
        bounded=any(result.seconds_to_target is None for result in results),
        rows=[
            {"color": color[result.arm], "note": ARMS[result.arm].summary, "cells": cells}
            for result, cells in zip(results, tables.figures(results), strict=True)
        ],
        sum_columns=tables.SUMS,
        sum_rows=tables.sums(results),
        drop_columns=tables.DROPS,
        drop_rows=tables.drops(results),
        claims=[
            {"name": claim.name, "value": tables.claim_value(claim), "goal": claim.to_json()["goal"], "met": claim.met}
            for claim in claims
        ],
        settings=settings,
    )


def _headline(results: Sequence[ArmResult]) -> str:
    subject = results[0]
    target = f"{subject.target:.4g}" if subject.metric != "accuracy" else f"{100 * subject.target:.4g} %"
    baseline = best_baseline(results, subject)
    ratio = speed_up(results, subject)
    if subject.seconds_to_target is None:
        return f"{subject.arm} did not reach {target} {subject.metric} in {subject.seconds:.1f} seconds"
    if baseline is None or ratio is None:
        return f"{subject.arm} reached {target} {subject.metric} in {subject.seconds_to_target:.1f} seconds"
    least = "at least " if baseline.seconds_to_target is None else ""
    return f"{subject.arm} reached {target} {subject.metric} {least}{ratio:.2f} times as fast as {baseline.arm}"


def _headline_of_work(results: Sequence[ArmResult]) -> str:
    subject = results[0]
    ratio = same_work(results, subject)
    if ratio is None:
        return f"{subject.arm} did all steps in {subject.seconds:.1f} seconds"
    baseline = min((result for result in results if result.is_baseline), key=lambda result: result.seconds)
    return f"{subject.arm} did the same work {ratio:.2f} times as fast as {baseline.arm}"


def _figures_of_work(results: Sequence[ArmResult]) -> list[dict[str, str]]:
    return [
        {
            "value": f"{result.seconds:.1f} s",
            "label": f"for all steps, {result.arm}; final {result.metric} {tables.metric(result.metric, result.final)}",
        }
        for result in results
    ]


def _key_figures(results: Sequence[ArmResult]) -> list[dict[str, str]]:
    subject = results[0]
    baseline = best_baseline(results, subject)
    shown = [(tables.time_to_target(subject), f"to the target, {subject.arm}")]
    if baseline is not None:
        shown.append((tables.time_to_target(baseline), f"to the target, {baseline.arm} (best baseline)"))
        shown.append(
            (
                f"{1000 * subject.step.p99:.1f} ms",
                f"99th percentile step; {baseline.arm}: {1000 * baseline.step.p99:.1f} ms",
            )
        )
    if subject.transport is not None:
        shown.append((f"{subject.transport.delivered_fraction:.2%}", "of the gradient slices delivered"))
        shown.append((f"{subject.budget_violations}", "budget violations"))
    return [{"value": value, "label": label} for value, label in shown]
