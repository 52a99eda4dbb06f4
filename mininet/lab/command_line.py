# SPDX-License-Identifier: Apache-2.0
"""The command lines of the laboratory and of the benchmarks: their options, what these take, and how a command ends.

Converters are for argparse's `type`; they raise argparse.ArgumentTypeError.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

from gradlane.units import checked, parse_rate, parse_size
from lab.model.arms import ARMS
from lab.model.errors import LabError
from lab.model.scenarios import Scenario
from lab.model.topology import KINDS

_Value = TypeVar("_Value")


def parser(prog: str, description: str | None, examples: str) -> argparse.ArgumentParser:
    """A parser whose help keeps the lines of the description, and ends with examples. `prog` is what users type."""
    return argparse.ArgumentParser(
        prog=prog, description=description, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_switch(parser: argparse.ArgumentParser) -> None:
    """--switch: what runs as each switch, as Topology.targets takes it."""
    text = "gradlane or bmv2, or by name, e.g. bmv2,leaf1=gradlane: the first is for all that are not named"
    parser.add_argument("--switch", default="gradlane", metavar="S", help=f"{text} (default: %(default)s)")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """What `with_settings` takes: the user's word on a scenario's fabric, arms and steps."""
    parser.add_argument("--topo", choices=KINDS, help="(default: the scenario's own)")
    parser.add_argument("--leaves", type=int, metavar="N", help="of a leafspine, 1 to 8; workers are spread over them")
    parser.add_argument("--spines", type=int, metavar="N", help="of a leafspine, 1 to 8")
    parser.add_argument("--workers", type=int, metavar="N", help="2 to 16")
    parser.add_argument("--servers", type=int, metavar="N", help="1 to 8, for arms with parameter servers")
    parser.add_argument("--rate", type=checked(parse_rate), metavar="R", help="of every link, 1mbit to 1gbit")
    parser.add_argument("--buffer", type=checked(parse_size), metavar="B", help="of every switch port, 8kB to 4MB")
    parser.add_argument("--steps", type=int, metavar="N", help="of training, the same for every arm")
    text = f"of {', '.join(ARMS)}; the others are compared with the first"
    parser.add_argument("--arms", type=names, metavar="A,B", help=text)


def with_settings(scenario: Scenario, options: argparse.Namespace) -> Scenario:
    """The scenario with what the user set by the options of `add_settings` and `add_switch`.

    Raises ScenarioError or TopologyError.
    """
    given = {"kind": options.topo, "leaves": options.leaves, "spines": options.spines}
    topology = dataclasses.replace(
        scenario.topology, **{key: value for key, value in given.items() if value is not None}
    )
    return scenario.with_settings(
        topology=topology,
        arms=options.arms,
        workers=options.workers,
        servers=options.servers,
        rate=options.rate,
        buffer=options.buffer,
        steps=options.steps,
    ).for_switch(options.switch)


def add_seeds(parser: argparse.ArgumentParser, default: tuple[int, ...]) -> None:
    """--seeds."""
    shown = ",".join(map(str, default))
    parser.add_argument("--seeds", type=seeds, default=default, metavar="A,B", help=f"(default: {shown})")


def add_model(parser: argparse.ArgumentParser) -> None:
    """--model."""
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn", help="(default: %(default)s)")


def add_out(parser: argparse.ArgumentParser, folder: str) -> None:
    """--out."""
    text = "for all files (default: %(default)s)"
    parser.add_argument("--out", type=Path, default=Path(folder), metavar="DIR", help=text)


def add_output(parser: argparse.ArgumentParser, folder: str) -> None:
    """--out; and --json: what the result file holds, on standard output, too."""
    add_out(parser, folder)
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")


def run(
    parser: argparse.ArgumentParser,
    command: Callable[[argparse.Namespace], int],
    arguments: Sequence[str] | None,
) -> int:
    """Calls `command` with the options; the exit status: what it returns, or that of the LabError that ended it.

    0: done; 1: something failed, or a goal was missed; 2: wrong usage (from argparse by SystemExit), or the machine.
    """
    options = parser.parse_args(arguments)
    try:
        return command(options)
    except LabError as problem:
        print(f"{parser.prog}: error: {problem}", file=sys.stderr)
        return problem.exit_status


def several(convert: Callable[[str], _Value]) -> Callable[[str], tuple[_Value, ...]]:
    """A converter of values with commas between them."""

    def convert_all(text: str) -> tuple[_Value, ...]:
        try:
            return tuple(convert(word) for word in names(text))
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return convert_all


def names(text: str) -> tuple[str, ...]:
    """Names with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def names_of(known: Collection[str], what: str) -> Callable[[str], tuple[str, ...]]:
    """A converter of names with commas between them, each of which must be `known`. `what`: a scenario, a case ..."""

    def convert(text: str) -> tuple[str, ...]:
        for name in names(text):
            if name not in known:
                raise argparse.ArgumentTypeError(f"{what} {name!r} is unknown; there are {', '.join(known)}")
        return names(text)

    return convert


def seed(text: str) -> int:
    """A whole number below 2^31."""
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: a whole number from 0 to {2**31 - 1}")
    return int(text)


def seeds(text: str) -> tuple[int, ...]:
    """Different seeds with commas between them."""
    words = names(text)
    if not words or len(set(words)) < len(words) or not all(w.isdecimal() and int(w) < 2**31 for w in words):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of different seeds, e.g. 1,2,3")
    return tuple(int(word) for word in words)
