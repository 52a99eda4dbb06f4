# SPDX-License-Identifier: Apache-2.0
"""What commands say on the terminal: one refreshing line while an arm runs, tables and names of files at the end."""

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lab.model import results
from lab.report.metrics import Progress
from lab.report.tables import TextTable

_FILE_WIDTH = 160
_WIDEST_CELL = 40  # longer ones break into lines
_LINE_SECONDS = 2.0  # between two lines where there is no terminal to refresh one


def make_console(*, to_stderr: bool = False) -> Console:
    """The console of a command, on standard error where its output is JSON; a file has room for the widest table."""
    console = Console(stderr=to_stderr, highlight=False)
    if not console.is_terminal:
        console.width = _FILE_WIDTH
    return console


class ProgressLine:
    """Shows the progress of arms. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._last = 0.0
        self._shown: Progress | None = None

    def __enter__(self) -> "ProgressLine":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._console.print(Text(text), soft_wrap=True)

    def show(self, progress: Progress) -> None:
        """The state of the arm that runs."""
        if self._live is not None:
            self._live.update(Text(describe(progress), no_wrap=True, overflow="ellipsis"), refresh=True)
        elif progress != self._shown and time.monotonic() - self._last >= _LINE_SECONDS:
            self._shown, self._last = progress, time.monotonic()
            self.say(describe(progress))


def describe(progress: Progress) -> str:
    """The progress in one line."""
    parts = [f"{progress.arm:14} step {progress.step:4}/{progress.steps}  {progress.seconds:6.1f} s"]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:6.3f}")
    if progress.step == progress.steps:
        parts.append("evaluating")
    if progress.steps_of:
        parts.append("of the workers " + " ".join(map(str, progress.steps_of)))
    if progress.awaited is not None:
        parts.append(f"waiting for worker {progress.awaited.worker}: {progress.awaited.share:.0%} of the others' time")
    if progress.delivered:
        parts.append(
            f"slices: {progress.delivered:,} delivered, {progress.dropped:,} dropped by the switch, "
            f"{progress.repaired:,} repaired"
        )
    return "  ".join(parts)


def present(
    console: Console,
    options: argparse.Namespace,
    name: str,
    document: Mapping[str, Any],
    shown: Sequence[TextTable],
    **others: Path,
) -> None:
    """How a command ends: the result file `name`, the tables, and where that file and `others` are (by what they are).

    `options` are those of command_line.add_output.
    """
    file = options.out / name
    results.save(file, document)
    print_tables(console, shown)
    files = {"figures": file, **others}
    console.print("   ".join(f"{what}: {path}" for what, path in files.items()), soft_wrap=True)
    if options.json:
        print(json.dumps(document, indent=1))


def print_tables(console: Console, shown: Sequence[TextTable]) -> None:
    """The tables at the end. One that is too wide for the terminal continues below, with its first column again."""
    for table in shown:
        for part in _parts(table, console.width):
            console.print(part)


def _parts(text: TextTable, width: int) -> list[Table]:
    widths = [min(max(map(len, column)), _WIDEST_CELL) + 3 for column in zip(text.columns, *text.rows, strict=True)]
    groups: list[list[int]] = [[0]]
    for index in range(1, len(widths)):
        if len(groups[-1]) > 1 and sum(widths[i] for i in groups[-1]) + widths[index] > width - 2:
            groups.append([0])
        groups[-1].append(index)
    return [_part(text, group, text.title if group is groups[0] else None) for group in groups]


def _part(text: TextTable, columns: Sequence[int], title: str | None) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=SIMPLE_HEAD)
    for index in columns:
        name = text.columns[index]
        table.add_column(name, justify="left" if index == 0 or name == "arm" else "right")
    for row in text.rows:
        table.add_row(*(Text(row[index]) for index in columns))
    return table
