# SPDX-License-Identifier: Apache-2.0
"""`python -m gradlane_sim`: lists studies, runs them, and writes what is shown."""

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gradlane.errors import GradlaneError
from gradlane_sim import program, studies
from gradlane_sim.cases import Case, Scenario
from gradlane_sim.document import document
from gradlane_sim.errors import SimulationError
from gradlane_sim.running import Outcome, Work
from gradlane_sim.specification import Capture

_EXAMPLES = """examples:
  python -m gradlane_sim list study                      what a study has: scenarios, and who carries them
  python -m gradlane_sim run small                       32 hosts -> out/sim/report.html and result.json
  python -m gradlane_sim run study --seeds 1,2,3,4,5     the whole study; what has run before is not run again
  python -m gradlane_sim run study --only incast --arms gradlane-p0,gradlane-p3 --json -
  python -m gradlane_sim table --seeds 1,2,3,4,5         the tables of docs/simulation.md, of what has run
  python -m gradlane_sim input study --only direct-144-100G --arms gradlane-p3 | sim/build/gradlane-sim
  python -m gradlane_sim input small --only incast --arms gradlane-p3 --pcap 31:1:server.pcap | sim/build/gradlane-sim
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gradlane_sim",
        description="Simulates Gradlane and its rivals on ns-3.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, does in (
        ("list", "print the scenarios and arms of a study"),
        ("input", "print the program's input for one case"),
        ("run", "run a study, and write its report"),
        ("table", "print the tables of docs/simulation.md, of what is kept of runs"),
    ):
        command = commands.add_parser(name, help=does, description=does[0].upper() + does[1:] + ".")
        if name != "table":
            command.add_argument("study", choices=sorted(studies.STUDIES), help="which study")
            command.add_argument("--only", default="", help="scenarios whose names have this in them")
            command.add_argument("--arms", default="", help="only these, e.g. gradlane-p0,gradlane-p3")
        command.add_argument("--seeds", type=_numbers, default=(1,), help="e.g. 1,2,3; default: 1")
        if name == "input":
            command.add_argument(
                "--pcap", type=_capture, metavar="NODE:PORT:FILE", help="capture a port; hosts have port 1"
            )
        if name == "run":
            command.add_argument(
                "--processes", type=int, default=os.cpu_count() or 1, help="at a time; default: as many as CPUs"
            )
            command.add_argument("--json", metavar="FILE", help="write the figures there, too; - is standard output")
        if name == "table":
            command.add_argument(
                "--into",
                type=Path,
                metavar="PAGE",
                help="put them between its markers instead; what is not kept of runs stays as the page has it",
            )
        if name in ("run", "table"):
            command.add_argument(
                "--out", type=Path, default=Path("out/sim"), help="folder of the report; default: out/sim"
            )
            command.add_argument(
                "--program", type=Path, default=program.DEFAULT, help="default: sim/build/gradlane-sim"
            )
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(it) for it in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} must be whole numbers, as in 1,2,3") from None
    if min(found) < 1 or max(found) >= 1 << 31:
        raise argparse.ArgumentTypeError(f"seeds are 1 to {(1 << 31) - 1}")
    return found


def _capture(text: str) -> Capture:
    node, _, rest = text.partition(":")
    port, _, file = rest.partition(":")
    if not (node.isdecimal() and port.isdecimal() and file):
        raise argparse.ArgumentTypeError(f"{text!r} must be NODE:PORT:FILE, as in 31:1:server.pcap")
    return Capture(int(node), int(port), file)


def _scenarios(options: argparse.Namespace) -> list[tuple[Scenario, list[Case]]]:
    asked = [it for it in options.arms.split(",") if it]
    found = [it for it in studies.STUDIES[options.study]() if options.only in it.name]
    known = list(dict.fromkeys(arm.name for it in found for arm in it.arms))
    for it in asked if found else ():
        if it not in known:
            raise SimulationError(f"there is no arm {it!r}; there are {', '.join(known)}")
    chosen: list[tuple[Scenario, list[Case]]] = []
    for scenario in found:
        cases = [case for case in scenario.cases(options.seeds) if not asked or case.arm.name in asked]
        if cases:
            chosen.append((scenario, cases))
    if not chosen:
        raise SimulationError(f"study {options.study} has no scenario with {options.only!r} in its name; see `list`")
    return chosen


def _run(options: argparse.Namespace) -> int:
    from gradlane_sim.report import figures, page  # matplotlib takes a second

    chosen = _scenarios(options)
    cases = [case for _, some in chosen for case in some]
    bar = _Bar(len(cases))
    work = Work(program.Program(options.program), options.out / "kept", bar.show)
    outcomes = work.run(cases, max(1, options.processes))
    bar.over()
    by_scenario: list[tuple[Scenario, list[Outcome]]] = []
    for scenario, some in chosen:
        by_scenario.append((scenario, [it for it in outcomes if it.case in some]))
    options.out.mkdir(parents=True, exist_ok=True)
    found = figures.document(by_scenario)
    text = json.dumps(found, indent=1)
    (options.out / "result.json").write_text(text)
    report = options.out / "report.html"
    report.write_text(page.render(options.study, by_scenario), encoding="utf-8")
    if options.json == "-":
        print(text)
    else:
        if options.json:
            Path(options.json).write_text(text)
        print(figures.table(by_scenario))
        print(f"report: {report}")
    broken = [it for it in outcomes if it.measured is None or it.measured["violations"]]
    for it in broken:
        why = it.error if it.measured is None else f"breaks a guarantee: {it.measured['violations'][0]}"
        print(f"{it.case.name}: {why}", file=sys.stderr)
    return 1 if broken else 0


def _table(options: argparse.Namespace) -> int:
    from gradlane_sim.report import markdown

    scenarios = {it.name: it for it in (*studies.small(), *studies.study())}
    work = Work(program.Program(options.program), options.out / "kept")
    asked = dict.fromkeys(it for table in markdown.TABLES.values() for it in table.asked)
    outcomes: list[Outcome] = []
    for name, arm in asked:
        cases = [it for it in scenarios[name].cases(options.seeds) if it.arm.name == arm]
        outcomes += [kept for it in cases if (kept := work.kept(it))]
    found = markdown.found_of(scenarios, outcomes)
    page = options.into.read_text() if options.into else ""
    tables = {
        name: markdown.render(table.lines(found, markdown.table_of(page, name) if page else ()))
        for name, table in markdown.TABLES.items()
    }
    if options.into:
        options.into.write_text(markdown.replaced(page, tables))
    else:
        print("\n\n".join(tables.values()))
    return 0


class _Bar:
    """A line that says how much is done, and how long the rest will take."""

    def __init__(self, cases: int) -> None:
        self._cases = cases
        self._began = self._last = time.monotonic()
        self._shown = sys.stderr.isatty()

    def show(self, part: float, over: int) -> None:
        """Called from any thread."""
        now = time.monotonic()
        if now - self._last < (0.5 if self._shown else 20) and over < self._cases:
            return
        self._last = now
        spent = now - self._began
        left = f", about {spent / part - spent:.0f} s left" if 0.02 < part < 1 else ""
        line = f"{100 * part:3.0f} %  {over} of {self._cases} runs, {spent:.0f} s{left}"
        sys.stderr.write(f"\r\x1b[K{line}" if self._shown else f"{line}\n")
        sys.stderr.flush()

    def over(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what it has started ends with it
    try:
        if options.command == "list":
            for scenario, cases in _scenarios(options):
                print(f"{scenario.name:22} {scenario.summary}: {', '.join(dict.fromkeys(it.arm.name for it in cases))}")
            return 0
        if options.command == "input":
            cases = [case for _, some in _scenarios(options) for case in some]
            if len(cases) > 1:
                raise SimulationError(f"{len(cases)} cases are meant; say which one by --only, --arms and --seeds")
            print(json.dumps(document(replace(cases[0].specification, capture=options.pcap))))
            return 0
        return _table(options) if options.command == "table" else _run(options)
    except (SimulationError, GradlaneError) as problem:
        print(f"gradlane_sim: error: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gradlane_sim: stopped; what has run is kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
