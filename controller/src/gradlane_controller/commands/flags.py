# SPDX-License-Identifier: Apache-2.0
"""What several commands have in common."""

import argparse
from collections.abc import Callable
from pathlib import Path

from gradlane import GradlaneError
from gradlane_controller.client import DEFAULT_ADDRESS

Add = Callable[[str, Callable[[argparse.Namespace], int], str], argparse.ArgumentParser]
"""Adds a command of that name, which runs that function, with a line of help."""


class UsageError(GradlaneError):
    """A flag has a wrong value; the message names it."""


def files(parser: argparse.ArgumentParser) -> None:
    """--fabric and --job."""
    parser.add_argument("--fabric", type=Path, required=True, metavar="FILE", help="the fabric file (TOML)")
    parser.add_argument("--job", type=Path, action="append", default=[], metavar="FILE", help="a job file; repeatable")


def programs(parser: argparse.ArgumentParser) -> None:
    """--p4-dir."""
    from gradlane_controller.desired.pipeline import DEFAULT_FOLDER

    parser.add_argument(
        "--p4-dir",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="DIR",
        help="where p4c's output is: the .json and .p4info.txtpb of the programs (default: the packaged ones)",
    )


def parse_endpoint(text: str) -> tuple[str, int]:
    """HOST and PORT. Raises UsageError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"--http: {text!r} must be HOST:PORT, e.g. {DEFAULT_ADDRESS!r}")
    return host.strip("[]"), int(port)
