# SPDX-License-Identifier: Apache-2.0
"""Flags that several commands have."""

import argparse
from pathlib import Path

from gradlane.client import agent_socket


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
