# SPDX-License-Identifier: Apache-2.0
"""Lines that are kept up to date on a terminal, as top(1) does."""

import argparse
import curses
import select
import sys
import time
from collections.abc import Callable, Sequence

from gradlane.commands.view import Line
from gradlane.errors import AgentError
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


def add_interval(parser: argparse.ArgumentParser) -> None:
    """--interval."""
    parser.add_argument(
        "--interval",
        type=checked(_seconds),
        default=1.0,
        metavar="SECONDS",
        help="between two looks (default: %(default)s)",
    )


def show(
    ask: Callable[[], None], lines: Callable[[str], list[Line]], interval: float, keys: Sequence[str], first: str
) -> None:
    """Runs until q. `ask` looks again, each `interval` s; `lines` are what to show, sorted by one of `keys`.

    Raises AgentError if the terminal can't show it.
    """
    try:
        curses.wrapper(_loop, ask, lines, interval, keys, keys.index(first))
    except curses.error as error:
        raise AgentError(f"this terminal can't show it ({error}); use --once") from error


def _looks() -> dict[str, int]:
    looks = {"": curses.A_NORMAL, "title": curses.A_BOLD, "head": curses.A_REVERSE, "warning": curses.A_BOLD}
    if curses.has_colors():
        curses.use_default_colors()
        curses.init_pair(1, curses.COLOR_RED, -1)
        looks["warning"] = curses.color_pair(1) | curses.A_BOLD
    return looks


def _loop(
    screen: curses.window,
    ask: Callable[[], None],
    lines_by: Callable[[str], list[Line]],
    interval: float,
    keys: Sequence[str],
    sort: int,
) -> None:
    curses.curs_set(0) if curses.tigetstr("civis") else None
    looks = _looks()
    screen.nodelay(True)
    keyboard = select.poll()
    keyboard.register(sys.stdin, select.POLLIN)
    top, left, next_ask = 0, 0, time.monotonic()
    while True:
        if time.monotonic() >= next_ask:
            ask()
            next_ask = time.monotonic() + interval
        lines = lines_by(keys[sort])
        height, width = screen.getmaxyx()
        page = max(height - 1, 1)
        top = max(0, min(top, len(lines) - page))
        left = max(0, min(left, max(len(line.text) for line in lines) - width))
        screen.erase()
        for row, line in enumerate(lines[top : top + page]):
            text = line.text[left:].ljust(width if line.look == "head" else 0)
            screen.insnstr(row, 0, text, width, looks[line.look])
        screen.insnstr(height - 1, 0, f"sorted by {keys[sort]}; {HELP}", width, curses.A_DIM)
        screen.refresh()
        # Not getch with a timeout: when the terminal is gone it returns at once, for ever, and does not say why.
        if any(events & _GONE for _, events in keyboard.poll(max(0.0, next_ask - time.monotonic()) * 1000)):
            return
        key = screen.getch()
        if key in (ord("q"), 27):
            return
        if key == ord("s"):
            sort = (sort + 1) % len(keys)
        top += {curses.KEY_UP: -1, curses.KEY_DOWN: 1, curses.KEY_PPAGE: -page, curses.KEY_NPAGE: page}.get(key, 0)
        left += {curses.KEY_LEFT: -SIDEWAYS, curses.KEY_RIGHT: SIDEWAYS}.get(key, 0)
