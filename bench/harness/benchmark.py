# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks do alike: their command line, their priority, and the result that they leave."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lab import command_line
from lab.model import results
from lab.model.errors import PreconditionError
from lab.model.preconditions import check_root


def parser(name: str, description: str | None, *examples: str, root: bool = True) -> argparse.ArgumentParser:
    """The parser of bench.`name`. `examples` are options that its help shows, below the command without any."""
    prog = f"python -m bench.{name}"
    command = f"  {'sudo ' if root else ''}.venv/bin/{prog}"
    lines = ["examples:", command, *(f"{command} {options}" for options in examples)]
    return command_line.parser(prog, description, "\n".join(lines))


def run(
    parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int], arguments: Sequence[str] | None
) -> int:
    """Adds --out and --json, and calls `command` with the options; the exit status, as command_line.run has it."""
    command_line.add_output(parser, "out/bench")
    return command_line.run(parser, command, arguments)


def take_priority() -> None:
    """Real-time priority for this process and all that it will start: other load of the machine takes from none of
    them. Raises PreconditionError."""
    check_root()
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError as problem:
        raise PreconditionError(f"real-time priority is refused here: {problem.strerror}") from None


def document(settings: Mapping[str, Any], runs: Sequence[Any]) -> dict[str, Any]:
    """The result file: the machine, its load, the settings, and "runs", one for each result (a dataclass)."""
    return {
        "machine": results.machine(),
        "load": os.getloadavg(),
        **settings,
        "runs": [asdict(run) for run in runs],
    }


def chosen(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """These options, as settings of a result file."""
    return {name: getattr(options, name) for name in names}
