# SPDX-License-Identifier: Apache-2.0
"""Flags that several commands have."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from gradlane.client import agent_socket

Value = TypeVar("Value")


def socket(parser: argparse.ArgumentParser) -> None:
    """--socket: the agent's; the environment may name it, too."""
    default = agent_socket.default_path()
    parser.add_argument(
        "--socket",
        default=default,
        type=Path,
        metavar="PATH",
        help="the agent's (GRADLANE_SOCKET; default: %(default)s)",
    )


def json(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")


def checked(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """A `type` for argparse whose message is what `parse` says is wrong."""

    def convert(text: str) -> Value:
        try:
            return parse(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return convert
