# SPDX-License-Identifier: Apache-2.0
"""`top`: switches, the links' loads and jobs, live."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradlane import GradlaneError
from gradlane.commands import screen
from gradlane.commands.view import Line, plain
from gradlane.units import format_rate
from gradlane_controller import client
from gradlane_controller.commands import flags

SORT_KEYS = ("name", "load")


def add(command: flags.Add) -> None:
    """Its flags."""
    top = command(
        "top", _top, "show switches, links and jobs of a running controller, live; plain lines if not on a terminal"
    )
    screen.add_interval(top)
    top.add_argument("--once", action="store_true", help="print them once, and exit")
    top.add_argument("--sort", choices=SORT_KEYS, default="name", help="of links (default: name)")
    client.add_flags(top)


class Watch:
    """The latest answers of a controller."""

    def __init__(self, asked: client.Client) -> None:
        self._asked = asked
        self.problem = ""
        self._look()

    def ask(self) -> None:
        """Asks again. A controller that is gone may come back, so its absence is only reported."""
        try:
            self._look()
        except GradlaneError as problem:
            self.problem = str(problem)

    def lines(self, sort: str) -> list[Line]:
        """What to show."""
        problem = [Line(self.problem, "warning")] if self.problem else []
        return problem + lines(self._asked.url, self._status, self._links, sort)

    def _look(self) -> None:
        self._status = self._asked.get("/v1/status", {"ready", "switches", "jobs"})
        self._links = self._asked.get("/v1/links", {"checked", "links"})
        self.problem = ""


def _top(options: argparse.Namespace) -> int:
    watch = Watch(client.of_flags(options))
    if options.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        while True:
            print(plain(watch.lines(options.sort)), flush=True)
            if options.once:
                return 0
            time.sleep(options.interval)
            watch.ask()
    screen.show(watch.ask, watch.lines, options.interval, SORT_KEYS, options.sort)
    return 0


def lines(where: str, status: dict[str, Any], links: dict[str, Any], sort: str) -> list[Line]:
    """A title and a table each of switches, links and jobs; what is wrong is a warning."""
    switches, jobs = status["switches"], status["jobs"]
    ready, up = sum(it["ready"] for it in switches), sum(it["up"] for it in links["links"])
    checked = "" if links["checked"] else " (not checked)"
    counts = f"{ready} of {len(switches)} switches ready, {up} of {len(links['links'])} links work{checked}"
    found = [Line(f"controller at {where}: {counts}, {len(jobs)} job(s)", "title"), Line("")]
    found += _table(
        ("switch", "address", "entries", "mended", "state"),
        [
            (
                (it["name"], it["address"], sum(it["entries"].values()), it["mended"]["times"], _state(it)),
                not it["ready"],
            )
            for it in switches
        ],
    )
    by_load: Callable[[dict[str, Any]], float] = lambda it: -max((load or 0.0 for load in it["load"]), default=0.0)  # noqa: E731
    ordered = sorted(links["links"], key=by_load) if sort == "load" else links["links"]
    found += _table(
        ("link", "others send", "back", "state"),
        [((" - ".join(it["ends"]), *map(_rate, it["load"]), _link(it)), not it["up"]) for it in ordered],
    )
    found += _table(
        ("job", "id", "workers", "servers", "summed by"),
        [
            ((it["name"], it["id"], len(it["workers"]), len(it["servers"]), _sums(it["sums"])), _flawed(it))
            for it in jobs
        ],
    )
    return found[:-1]


def _state(switch: dict[str, Any]) -> str:
    state = switch["problem"] or ("ready" if switch["ready"] else "not connected")
    return f"drained, {state}" if switch["drained"] else state


def _link(link: dict[str, Any]) -> str:
    return "works" if link["up"] else f"nothing arrives at {' and '.join(link['deaf'])} since {link['since']}"


def _rate(load: float | None) -> str:
    return "?" if load is None else format_rate(round(load))


def _sums(sums: dict[str, Any] | None) -> str:
    if sums is None:
        return "hosts"
    roots = ", ".join(f"{root} ({buckets})" for root, buckets in sums["roots"].items())
    return f"hosts: {sums['reason']}" if sums["reason"] else roots


def _flawed(job: dict[str, Any]) -> bool:
    return bool(job["sums"] and job["sums"]["reason"])


def _table(head: Sequence[str], rows: Iterable[tuple[Sequence[object], bool]]) -> list[Line]:
    """Rows, and whether each is a warning; behind it an empty line."""
    some = [(tuple(map(str, row)), warning) for row, warning in rows]
    widths = [max(map(len, column)) for column in zip(head, *(row for row, _ in some), strict=True)]

    def line(row: Sequence[str]) -> str:
        return "  ".join(value.ljust(width) for value, width in zip(row, widths, strict=True)).rstrip()

    return [
        Line(line(head), "head"),
        *(Line(line(row), "warning" if warning else "") for row, warning in some),
        Line(""),
    ]
