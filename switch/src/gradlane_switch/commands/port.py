# SPDX-License-Identifier: Apache-2.0
"""`gradlane-switch port ...`: the ports of a running switch."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gradlane.units import format_rate
from gradlane_switch.dataplane.port_config import PortConfig, changed, parse_port
from gradlane_switch.errors import PortError
from gradlane_switch.management.admin_client import ask

_EPILOG = """\
examples:
  gradlane-switch port list --admin s1.sock
  gradlane-switch port add 4@s1-eth4,rate=100mbit,buffer=64kB --admin s1.sock
  gradlane-switch port set 4 rate=50mbit burst-loss=0.01:0.3 --admin s1.sock
  gradlane-switch port set 4 up=no --admin s1.sock
  gradlane-switch port remove 4 --admin s1.sock
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.set_defaults(command=_run)
    parser.epilog = _EPILOG
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--admin", type=Path, required=True, metavar="PATH", help="the switch's admin socket")
    common.add_argument("--json", action="store_true", help="print the answer as JSON")
    commands = parser.add_subparsers(dest="action", required=True, metavar="COMMAND")
    commands.add_parser("list", parents=[common], help="show every port with its settings and counts")
    new = commands.add_parser("add", parents=[common], help="add a port")
    new.add_argument("port", metavar="NUMBER@INTERFACE[,KEY=VALUE...]", help="as for -i, see gradlane-switch --help")
    remove = commands.add_parser("remove", parents=[common], help="remove a port; packets in its queues are dropped")
    remove.add_argument("number", type=int, metavar="NUMBER")
    change = commands.add_parser("set", parents=[common], help="change settings of a port")
    change.add_argument("number", type=int, metavar="NUMBER")
    change.add_argument("settings", nargs="+", metavar="KEY=VALUE", help="as for -i; up=yes, up=no")


def _run(args: argparse.Namespace) -> int:
    """Raises PortError for bad arguments, SwitchError with what the switch answered."""
    answer = ask(args.admin, _request(args))
    if args.json:
        print(json.dumps(answer, indent=2))
    elif args.action == "list":
        print(port_table(answer["ports"]))
    return 0


def _request(args: argparse.Namespace) -> dict[str, Any]:
    match args.action:
        case "list":
            return {"op": "ports"}
        case "add":
            parse_port(args.port)
            return {"op": "add", "port": args.port}
        case "remove":
            return {"op": "remove", "port": args.number}
        case _:
            settings: dict[str, str] = {}
            for setting in args.settings:
                key, _, value = setting.partition("=")
                try:
                    changed(PortConfig(), key, value)
                except ValueError as error:
                    raise PortError(str(error)) from None
                settings[key] = value
            return {"op": "set", "port": args.number, **settings}


_COLUMNS = ("port", "interface", "state", "rate", "rx", "tx", "queued", "tail drops", "lost", "other drops")


def port_table(ports: list[dict[str, Any]]) -> str:
    """Ports with their most important counts, in packets, one line each."""
    rows = [_COLUMNS, *(_row(port) for port in ports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def _row(port: dict[str, Any]) -> tuple[str, ...]:
    queues = port["queues"]
    return (
        str(port["port"]),
        port["interface"],
        "up" if port["up"] else "down",
        format_rate(port["rate"]) if port["rate"] else "unlimited",
        str(port["rx"]["packets"]),
        str(port["tx"]["packets"]),
        str(sum(queue["depth_packets"] for queue in queues)),
        str(sum(queue["tail_dropped"]["packets"] for queue in queues)),
        str(sum(port[link]["lost"]["packets"] for link in ("tx_link", "rx_link"))),
        str(
            sum(drop["packets"] for drop in port["drops"].values())
            + sum(queue["flushed"]["packets"] for queue in queues)
        ),
    )
