# SPDX-License-Identifier: Apache-2.0
"""`completion`: a script with which a shell completes a program's commands, flags and files."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradlane.errors import GradlaneError

SHELLS = ("bash", "zsh")


def add(parser: argparse.ArgumentParser, program: argparse.ArgumentParser) -> None:
    """Its flags; `program`: what it completes, which may get more commands after this."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that reads the script")
    parser.set_defaults(command=_run, program=program)


def _run(options: argparse.Namespace) -> int:
    program: argparse.ArgumentParser = options.program
    try:
        import shtab
    except ImportError:
        raise GradlaneError("completion needs shtab: `pip install 'gradlane[completion]'`") from None
    for action in _actions(program):
        if isinstance(action.choices, tuple | list):  # a shell would take those with blanks apart
            action.choices = [it for it in action.choices if " " not in it]
        if action.type is Path:
            folder = action.metavar in ("DIR", "FOLDER")
            setattr(action, "complete", shtab.DIRECTORY if folder else shtab.FILE)  # noqa: B010  # as shtab wants it
    print(shtab.complete(program, options.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Of a parser and all below it."""
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]  # argparse has no other way to ask
        yield action
        if isinstance(action.choices, dict):
            below: dict[str, Any] = action.choices
            for each in below.values():
                yield from _actions(each)
