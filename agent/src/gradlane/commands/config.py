# SPDX-License-Identifier: Apache-2.0
"""`gradlane config check`: is this configuration valid?"""

import argparse
from pathlib import Path

from gradlane.daemon import config


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    check = actions.add_parser("check", help="check a configuration file without starting the agent")
    check.add_argument("file", type=Path, nargs="?", default=config.DEFAULT_FILE, help="default: %(default)s")
    check.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Raises ConfigError."""
    found = config.load(options.file)
    addresses = ", ".join(map(str, found.addresses)) or "none: the agent needs --address"
    print(f"{options.file}: good; address {addresses}; socket {found.socket}; metrics {found.metrics or 'off'}")
    return 0
