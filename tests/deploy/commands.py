# SPDX-License-Identifier: Apache-2.0
"""What the programs' parsers take: every command and flag of it."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gradlane import cli as agent
from gradlane_controller import cli as controller
from gradlane_switch import cli as switch

PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "gradlane": agent.make_parser,
    "gradlane-controller": controller.make_parser,
    "gradlane-switch": switch.make_parser,
}
MODULES = {
    "gradlane": "gradlane.cli",
    "gradlane-controller": "gradlane_controller.cli",
    "gradlane-switch": "gradlane_switch",
}


@dataclass(frozen=True)
class Command:
    """`words`: the program and its commands; `flags`: without --help; `below`: commands that follow; `choices`: values
    by flag, without those with blanks, which shells would take apart."""

    words: tuple[str, ...]
    flags: frozenset[str]
    below: frozenset[str]
    choices: dict[str, frozenset[str]]


def commands(words: tuple[str, ...], parser: Any) -> Iterator[Command]:
    """A command and all below it."""
    below = {
        name: each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for name, each in action.choices.items()
    }
    flags = [it for it in parser._actions if it.option_strings and it.dest != "help"]
    choices = {it.option_strings[-1]: frozenset(v for v in it.choices if " " not in v) for it in flags if it.choices}
    yield Command(words, frozenset(text for it in flags for text in it.option_strings), frozenset(below), choices)
    for name, each in below.items():
        yield from commands((*words, name), each)


def all_commands(program: str) -> list[Command]:
    """Those of a program, itself first."""
    return list(commands((program,), PARSERS[program]()))
