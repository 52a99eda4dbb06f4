# SPDX-License-Identifier: Apache-2.0
"""`gradlane top`: what the agent is doing, live."""

import argparse
import curses
import select
import sys
import time
from dataclasses import dataclass

from gradlane.client import agent_socket
from gradlane.commands import flags, view
from gradlane.commands.view import Line
from gradlane.errors import AgentError
from gradlane.ipc.status import AgentStatus
from gradlane.units import checked

HELP = "q: quit, s: sort by the next column, arrows: scroll"
SIDEWAYS = 16  # characters that one press of an arrow moves
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise ValueError(f"{text!r} must be seconds from 0.1 to 3600")
    return value


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.add_argument(
        "--interval",
        type=checked(_seconds),
        default=1.0,
        metavar="SECONDS",
        help="between two looks (default: %(default)s)",
    )
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
    try:
        curses.wrapper(_loop, watch)
    except curses.error as error:
        raise AgentError(f"this terminal can't show it ({error}); use `gradlane top --once`") from error
    return 0


def _looks() -> dict[str, int]:
    looks = {"": curses.A_NORMAL, "title": curses.A_BOLD, "head": curses.A_REVERSE, "warning": curses.A_BOLD}
    if curses.has_colors():
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        looks["warning"] = curses.color_pair(1) | curses.A_BOLD
    return looks


def _loop(screen: curses.window, watch: Watch) -> None:
    curses.curs_set(0) if curses.tigetstr("civis") else None
    looks = _looks()
    screen.nodelay(True)
    keyboard = select.poll()
    keyboard.register(sys.stdin, select.POLLIN)
    sort = view.SORT_KEYS.index(watch.options.sort)
    top, left, next_ask = 0, 0, time.monotonic()
    while True:
        if time.monotonic() >= next_ask:
            watch.ask()
            next_ask = time.monotonic() + watch.options.interval
        lines = watch.lines(view.SORT_KEYS[sort])
        height, width = screen.getmaxyx()
        page = max(height - 1, 1)
        top = max(0, min(top, len(lines) - page))
        left = max(0, min(left, max(len(line.text) for line in lines) - width))
        screen.erase()
        for row, line in enumerate(lines[top : top + page]):
            text = line.text[left:].ljust(width if line.look == "head" else 0)
            screen.insnstr(row, 0, text, width, looks[line.look])
        screen.insnstr(height - 1, 0, f"sorted by {view.SORT_KEYS[sort]}; {HELP}", width, curses.A_DIM)
        screen.refresh()
        # Not getch with a timeout: when the terminal is gone it returns at once, for ever, and does not say why.
        if any(events & _GONE for _, events in keyboard.poll(max(0.0, next_ask - time.monotonic()) * 1000)):
            return
        key = screen.getch()
        if key in (ord("q"), 27):
            return
        if key == ord("s"):
            sort = (sort + 1) % len(view.SORT_KEYS)
        top += {curses.KEY_UP: -1, curses.KEY_DOWN: 1, curses.KEY_PPAGE: -page, curses.KEY_NPAGE: page}.get(key, 0)
        left += {curses.KEY_LEFT: -SIDEWAYS, curses.KEY_RIGHT: SIDEWAYS}.get(key, 0)
