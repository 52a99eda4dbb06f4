# SPDX-License-Identifier: Apache-2.0
"""The command `gradlane-switch`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from gradlane.units import format_rate
from gradlane_switch.admin import Admin
from gradlane_switch.dataplane import DataPlane
from gradlane_switch.errors import PortError, ProgramError, SwitchError
from gradlane_switch.pipeline import Pipeline
from gradlane_switch.ports import PortSpec, parse_port
from gradlane_switch.service import Service, make_server
from gradlane_switch.state import Lock
from gradlane_switch.switch import read_p4info, read_program

_LOG = logging.getLogger("gradlane-switch")

_EPILOG = """\
A port is NUMBER@INTERFACE with settings after commas:
  rate=100mbit  buffer=64kB        towards the host; eight strict-priority queues share the buffer
  loss=0.01  delay=1ms  jitter=200us  reorder=0.01  reorder-delay=1ms
                                   what the link to the host does; with rx- in front, the link from the host

examples:
  gradlane-switch --grpc-server-addr 127.0.0.1:9559 -i 1@s1-eth1,rate=100mbit,buffer=64kB -i 2@s1-eth2
  gradlane-switch --program gradlane.json --p4info gradlane.p4info.txtpb -i 1@s1-eth1 -i 2@s1-eth2,loss=0.01 --seed 7
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradlane-switch",
        description="A software switch that runs the BMv2 JSON of a v1model P4 program and speaks P4Runtime.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device-id", type=int, default=1, help="P4Runtime device id (default 1)")
    parser.add_argument(
        "--grpc-server-addr", default="127.0.0.1:9559", metavar="ADDRESS:PORT", help="P4Runtime server; or unix:PATH"
    )
    parser.add_argument("--admin", type=Path, metavar="PATH", help="Unix socket for statistics and link settings")
    parser.add_argument(
        "-i", "--interface", action="append", default=[], metavar="PORT", dest="ports", help="a port, see below"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the links' impairments (default 0)")
    parser.add_argument("--program", type=Path, metavar="JSON", help="start with this program; needs --p4info")
    parser.add_argument("--p4info", type=Path, metavar="TXTPB", help="the program's P4Info in text format")
    return parser


def main() -> int:
    """Runs the switch until SIGTERM or SIGINT. 2: bad flags, program or ports; 1: it failed while running."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    parser = _parser()
    args = parser.parse_args()
    if (args.program is None) != (args.p4info is None):
        parser.error("--program and --p4info go together")
    try:
        ports = [parse_port(text) for text in args.ports]
        return asyncio.run(_run(args, ports))
    except (ProgramError, PortError) as error:
        print(f"gradlane-switch: error: {error}", file=sys.stderr)
        return 2
    except SwitchError as error:
        print(f"gradlane-switch: error: {error}", file=sys.stderr)
        return 1


async def _run(args: argparse.Namespace, ports: list[PortSpec]) -> int:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[str | None] = loop.create_future()

    def stop(reason: str | None = None) -> None:
        if not stopped.done():
            stopped.set_result(reason)

    def failed(reason: str) -> None:
        loop.call_soon_threadsafe(stop, reason)

    def log_events() -> None:
        for text in dataplane.events():
            _LOG.warning("%s", text)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    lock = Lock()
    pipeline = None
    if args.program is not None:
        pipeline = Pipeline(read_program(args.program), read_p4info(args.p4info), lock)
    dataplane = DataPlane(lock, ports, args.seed)
    service = Service(args.device_id, lock, dataplane.install, pipeline)
    server = None
    admin = Admin(dataplane, args.admin) if args.admin else None
    try:
        server, address = make_server(service, args.grpc_server_addr)
        if admin is not None:
            await admin.start()
        if pipeline is not None:
            dataplane.install(pipeline)
        loop.add_reader(dataplane.event_fd, log_events)
        dataplane.start(failed)
        await server.start()
        _announce(args.device_id, address, ports)
        reason = await stopped
    finally:
        loop.remove_reader(dataplane.event_fd)
        if admin is not None:
            await admin.stop()
        if server is not None:
            await server.stop(0.2)
        dataplane.stop()
    if reason is not None:
        raise SwitchError(reason)
    return 0


def _announce(device_id: int, address: str, ports: list[PortSpec]) -> None:
    shown = ", ".join(
        f"{port.number}@{port.interface}" + (f" {format_rate(port.config.rate)}" if port.config.rate else "")
        for port in ports
    )
    print(f"ready device {device_id} on {address}; ports: {shown or 'none'}", file=sys.stderr, flush=True)
