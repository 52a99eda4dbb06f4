# SPDX-License-Identifier: Apache-2.0
"""`gradlane top`: what the agent is doing, live."""

import argparse
import sys
import time
from dataclasses import dataclass

from gradlane.client import agent_socket
from gradlane.commands import flags, screen, view
from gradlane.commands.view import Line
from gradlane.errors import AgentError
from gradlane.ipc.status import AgentStatus


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    screen.add_interval(parser)
    parser.add_argument("--once", action="store_true", help="print one interval, and exit")
    columns = ", ".join(view.SORT_KEYS).replace("%", "%%")
    parser.add_argument(
        "--sort",
        choices=view.SORT_KEYS,
        default="name",
        metavar="COLUMN",
        help=f"sort by one of: {columns} (default: name)",
    )
    flags.socket(parser)
    parser.set_defaults(command=run)


@dataclass
class Watch:
    """The latest answer of the agent and the one before, with the monotonic times when they came."""

    options: argparse.Namespace
    latest: AgentStatus
    at: float
    before: AgentStatus | None = None
    before_at: float = 0.0
    problem: str = ""

    def ask(self) -> None:
        """Asks again. An agent that is gone may come back, so its absence is only reported."""
        try:
            status = agent_socket.status(self.options.socket)
        except AgentError as error:
            self.problem = str(error)
            return
        self.before, self.before_at = self.latest, self.at
        self.latest, self.at, self.problem = status, time.monotonic(), ""

    def lines(self, sort: str) -> list[Line]:
        """What to show."""
        seconds = self.at - self.before_at if self.before is not None else None
        problem = [Line(self.problem, "warning")] if self.problem else []
        return problem + view.agent_lines(self.latest, self.before, time.time(), seconds, sort)


def run(options: argparse.Namespace) -> int:
    """Runs until q. Raises AgentError if no agent answers at the start."""
    watch = Watch(options, agent_socket.status(options.socket), time.monotonic())
    if options.once:
        time.sleep(options.interval)
        watch.ask()
        if watch.problem:
            raise AgentError(watch.problem)
        print(view.plain(watch.lines(options.sort)))
        return 0
    if not sys.stdout.isatty() or not sys.stdin.isatty():
        raise AgentError(
            "top needs a terminal; for a script there is `gradlane top --once`, or `gradlane status --json`"
        )
    screen.show(watch.ask, watch.lines, options.interval, view.SORT_KEYS, options.sort)
    return 0
