# SPDX-License-Identifier: Apache-2.0
"""The reference of a program's commands and flags, from its parser, as its --help is."""

import argparse
import importlib
import re
import textwrap
from collections.abc import Iterator

from docs.site.tables import cell, table

PROGRAMS = {
    "gradlane": "gradlane.cli",
    "gradlane-switch": "gradlane_switch.cli",
    "gradlane-controller": "gradlane_controller.cli",
}


def page(program: str) -> str:
    """The whole page of a program, as Markdown."""
    parser: argparse.ArgumentParser = importlib.import_module(PROGRAMS[program]).make_parser()
    return "\n".join(_command(program, parser, 1)) + "\n"


def _command(name: str, parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}"
    yield ""
    yield _escaped(parser.description or "")
    yield ""
    yield f"```text\n{_usage(parser)}\n```"
    yield ""
    actions = parser._actions  # pyright: ignore[reportPrivateUsage]  # argparse lists them nowhere else
    below = [it for it in actions if isinstance(it, argparse._SubParsersAction)]  # pyright: ignore[reportPrivateUsage]
    rows = [_row(parser, it) for it in actions if it not in below and it.dest != "help"]
    if rows:
        yield table(("argument", "what it does"), rows)
        yield ""
    if level == 1 and parser.epilog:
        yield f"```text\n{parser.epilog.strip()}\n```"
        yield ""
    for each in below:
        for word, command in each.choices.items():
            yield from _command(f"{name} {word}", command, min(level + 1, 3))


def _usage(parser: argparse.ArgumentParser) -> str:
    """The lines of usage, as wide as a page whatever the terminal is."""
    ways = re.sub(r"\s+", " ", parser.format_usage().removeprefix("usage: ")).strip()
    if parser.usage:  # several ways, each of which begins with the program
        ways = re.sub(rf"(?<=.) (?={re.escape(parser.prog)} )", "\n", ways)
    wrapper = textwrap.TextWrapper(92, subsequent_indent="    ", break_on_hyphens=False, break_long_words=False)
    return "\n".join(wrapper.fill(way) for way in ways.splitlines())


def _row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    formatter = parser._get_formatter()  # pyright: ignore[reportPrivateUsage]
    named = formatter._format_action_invocation(action)  # pyright: ignore[reportPrivateUsage]
    text = formatter._expand_help(action) if action.help else ""  # pyright: ignore[reportPrivateUsage]
    return cell(named, code=True), cell(text)


def _escaped(text: str) -> str:
    """Text of --help in Markdown: nothing in it is markup."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", text)
