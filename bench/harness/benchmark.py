# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks do alike: their command line, their priority, and the result that they leave."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lab import command_line
from lab.model import results
from lab.model.errors import PreconditionError
from lab.model.preconditions import check_root


def parser(name: str, description: str | None, *examples: str, root: bool = True) -> argparse.ArgumentParser:
    """The parser of bench.`name`, which has --out and --json; `examples` are options, below those of none."""
    prog = f"python -m bench.{name}"
    command = f"  {'sudo ' if root else ''}.venv/bin/{prog}"
    lines = ["examples:", command, *(f"{command} {options}" for options in examples)]
    made = command_line.parser(prog, description, "\n".join(lines))
    command_line.add_output(made, "out/bench")
    return made


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
