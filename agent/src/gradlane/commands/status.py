# SPDX-License-Identifier: Apache-2.0
"""`gradlane status`: what the agent is doing, once."""

import argparse
import json
import time

from gradlane.client import agent_socket
from gradlane.commands import flags, view


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    flags.json(parser)
    flags.socket(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """Raises AgentError if no agent answers."""
    status = agent_socket.status(options.socket)
    lines = view.agent_lines(status, None, time.time(), more=view.details)
    print(json.dumps(status) if options.json else view.plain(lines))
    return 0
