# SPDX-License-Identifier: Apache-2.0
"""`gradlane-switch trace ...`: what happens to a packet, and why."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradlane_switch.commands.trace_text import text
from gradlane_switch.dataplane import pcap
from gradlane_switch.errors import PortError, UsageError
from gradlane_switch.management.admin_client import ask_many
from gradlane_switch.p4runtime.files import write_entries
from gradlane_switch.switch import Switch

_EPILOG = """\
PACKET is hex digits, or the name of a pcap file.

With --program, it goes through the program alone, without ports and queues. With --admin, a running switch processes
it as if it had come in at --port; without PACKET, the trace shows packets as they come.

examples:
  gradlane-switch trace 0200000000ff0200000000010800... --port 1 --program p.json --p4info p.txtpb --entries e.txtpb
  gradlane-switch trace capture.pcap --program p.json --p4info p.txtpb --json
  gradlane-switch trace --admin s1.sock --packets 5 --port 2
  gradlane-switch trace 0200000000ff0200000000010800... --port 1 --admin s1.sock
"""
_LONGEST_PATH = 4095


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.set_defaults(command=_run)
    parser.epilog = _EPILOG
    parser.add_argument("packet", nargs="?", metavar="PACKET", help="hex digits, or a pcap file")
    parser.add_argument("--port", type=int, metavar="NUMBER", help="where packets come in (with --program: default 1)")
    parser.add_argument("--admin", type=Path, metavar="PATH", help="admin socket of a running switch")
    parser.add_argument(
        "--packets", type=int, default=1, metavar="COUNT", help="with --admin: how many packets to show (default 1)"
    )
    parser.add_argument(
        "--time", default="3600s", metavar="TIME", help="with --admin: how long to wait for them (default 3600s)"
    )
    parser.add_argument("--program", type=Path, metavar="JSON", help="BMv2 JSON of a program; needs --p4info")
    parser.add_argument("--p4info", type=Path, metavar="TXTPB", help="the program's P4Info in text format")
    parser.add_argument(
        "--entries", type=Path, metavar="TXTPB", help="entries to write first, a text-format WriteRequest"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON object per packet, each on a line")


def _run(args: argparse.Namespace) -> int:
    """Raises UsageError, ProgramError, PortError or SwitchError."""
    if (args.admin is None) == (args.program is None):
        raise UsageError("give either --program and --p4info, or --admin")
    if args.program is not None and (args.p4info is None or args.packet is None):
        raise UsageError("--program needs --p4info and a packet")
    for packet in _live(args) if args.program is None else _offline(args):
        print(json.dumps(packet) if args.json else text(packet), flush=True)
    return 0


def _offline(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    switch = Switch.load(args.program, args.p4info)
    if args.entries is not None:
        write_entries(switch.pipeline, args.entries)
    for switch.now, frame in _frames(args.packet):
        yield switch.trace(1 if args.port is None else args.port, frame)


def _frames(given: str) -> Iterator[tuple[int, bytes]]:
    """(time in ns, frame) of hex digits or of a file."""
    try:
        yield 0, bytes.fromhex(given)
        return
    except ValueError:
        path = Path(given)
    if len(given) > _LONGEST_PATH or not path.is_file():
        raise PortError(f"{given!r} is neither hex digits nor a file")
    yield from pcap.frames(path)


def _live(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    request: dict[str, Any] = {"op": "trace", "packets": args.packets, "time": args.time}
    if args.port is not None:
        request["port"] = args.port
    if args.packet is not None:
        frames = [frame for _, frame in _frames(args.packet)]
        if len(frames) != 1:
            raise PortError(f"{args.packet} has {len(frames)} packets: a running switch takes one")
        request["inject"] = frames[0].hex()
    for answer in ask_many(args.admin, request, None):
        if "ok" in answer:
            if answer["lost_events"]:
                print(
                    f"gradlane-switch: {answer['lost_events']} events were lost",
                    file=sys.stderr,
                )
            return
        yield answer
