# SPDX-License-Identifier: Apache-2.0
"""What the soaks of a fabric share: their options, what fails meanwhile, and how they report."""

import argparse
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from bench.fabric.growth import Held, held_table
from bench.harness import benchmark
from gradlane.units import checked, parse_rate
from lab.model.errors import ExperimentError
from lab.report.console import make_console, present
from lab.report.tables import TextTable


class Report(Protocol):
    """What was `held` by processes, and what must not have happened."""

    held: Held
    failures: list[str]


def failures(network: Any) -> dict[str, Callable[[], None]]:
    """What fails in a leaf-spine, and comes back, by what that is called. Each may raise ExperimentError."""
    (one, _), *_ = network.plan.links

    def flap() -> None:
        for state in ("down", "up"):
            subprocess.run(["ip", "link", "set", "dev", one.interface, state], check=True)
            time.sleep(1)

    def kill(switch: str, *, links: bool) -> None:
        network.fail_switch(switch, links=links)
        network.restore_switch(switch)

    return {
        "nothing": lambda: None,
        "a link flaps": flap,
        "the controller is killed": network.restart_controller,
        "a spine is killed": lambda: kill("spine2", links=True),
        "a spine's process is killed": lambda: kill("spine2", links=False),
        "a leaf's process is killed": lambda: kill("leaf1", links=False),
    }


def main(
    name: str,
    file: str,
    text: str | None,
    soak: Callable[[argparse.Namespace, ExitStack], Report],
    table: Callable[[Any], TextTable],
    arguments: Sequence[str] | None,
) -> int:
    """Runs bench.fabric.`name`, whose `text` says what it does; the exit status: 1 also if something happened that must
    not. `soak` raises ExperimentError; `table` is that of its report, `file` what it is written to."""
    parser = benchmark.parser(f"fabric.{name}", text, f"--seconds 60 --json > {file}")
    add, rate = parser.add_argument, checked(parse_rate)
    add("--seconds", type=float, default=600.0, metavar="S", help="(default: %(default)g)")
    add("--rate", type=rate, default="25mbit", metavar="R", help="of every link (default: 25mbit)")

    def run(options: argparse.Namespace) -> int:
        with ExitStack() as stack:
            report = soak(options, stack)
        document = benchmark.document(benchmark.chosen(options, "seconds", "rate"), [report])
        tables = [table(report), held_table(report.held)]
        present(make_console(to_stderr=options.json), options, file, document, tables)
        if report.failures:
            raise ExperimentError("; ".join(report.failures))
        return 0

    return benchmark.run(parser, run, arguments)
