# SPDX-License-Identifier: Apache-2.0
"""The command `gradlane`."""

import argparse
import json
import logging
import signal
import sys
from ipaddress import IPv4Address
from pathlib import Path
from types import FrameType
from typing import Any

from gradlane.errors import GradlaneError

DEFAULT_SOCKET = "/run/gradlane/agent.sock"

EXAMPLES = """examples:
  gradlane agent --address 10.0.1.2                     the daemon; one per training host
  gradlane serve --job job.toml --rank 4                aggregate for a job (parameter-server mode)
  gradlane status --json                                what this host's agent is doing
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradlane",
        description="Gradient-aware transport for distributed training: the host agent.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    agent = commands.add_parser("agent", help="run the daemon beside this host's training processes")
    agent.add_argument("--address", required=True, type=IPv4Address, help="this host's address in the job files")
    serve = commands.add_parser("serve", help="take a server's rank of a job, until its workers have left")
    serve.add_argument("--job", required=True, type=Path, help="the job file")
    serve.add_argument("--rank", required=True, type=int, help="this server's rank in the job file")
    status = commands.add_parser("status", help="show what the agent is doing")
    for command in (serve, status):
        command.add_argument("--json", action="store_true", help="for scripts")
    for command in (agent, serve, status):
        command.add_argument("--socket", default=DEFAULT_SOCKET, type=Path, help="default: %(default)s")
    return parser


def _exit(_number: int, _frame: FrameType | None) -> None:
    sys.exit(0)


def _serve(job: Path, rank: int, socket: Path, as_json: bool) -> None:
    from gradlane.client import Connection

    signal.signal(signal.SIGTERM, _exit)
    connection = Connection(job, rank, socket)
    print(f"ready: rank {rank} of job {connection.job.name}", file=sys.stderr, flush=True)
    counts = connection.wait_closed()
    if as_json:
        print(json.dumps(counts), flush=True)
        return
    received, lost = counts.get("slices_delivered", 0), counts.get("slices_lost", 0)
    print(
        f"job {connection.job.name} is over: {received} slices aggregated, {lost} lost within budgets", file=sys.stderr
    )


def _print_status(status: dict[str, Any]) -> None:
    print(f"agent {status['address']}: {len(status['jobs'])} job(s), {status['clients']} client(s)")
    for name, job in status["jobs"].items():
        print(f"  {name}, rank {job['rank']}:")
        for key, value in job.items():
            if key not in ("rank", "paths") and value:
                print(f"    {key:20} {value}")
        for rank, path in job["paths"].items():
            print(f"    to rank {rank:<12} {path['rate'] / 1e6:.1f} Mbit/s, round trip {path['srtt_us']} us")
            for route, count in path["routes"].items():
                print(f"      {count} trace(s) by {route or 'no switch that adds a record'}")
            for hop in path["hops"]:
                print(
                    f"      switch {hop['switch']}: port {hop['egress_port']} {hop['color']}, in class "
                    f"{hop['queue_class']} {hop['depth']} {hop['depth_unit']}, waited {hop['wait_us']:.0f} us"
                )


def main(arguments: list[str] | None = None) -> int:
    """Entry point. Returns the exit code: 0, or 1 with one line on stderr that names what was wrong."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="gradlane: %(message)s", stream=sys.stderr)
    try:
        if options.command == "agent":
            from gradlane import daemon

            daemon.run(options.address, options.socket)
        elif options.command == "serve":
            _serve(options.job, options.rank, options.socket, options.json)
        else:
            from gradlane.client import agent_status

            status = agent_status(options.socket)
            print(json.dumps(status)) if options.json else _print_status(status)
    except GradlaneError as error:
        print(f"gradlane: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
