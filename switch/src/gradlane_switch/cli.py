# SPDX-License-Identifier: Apache-2.0
"""The command `gradlane-switch`."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from gradlane.units import format_rate, parse_size
from gradlane_switch.admin import Admin
from gradlane_switch.dataplane import DataPlane
from gradlane_switch.errors import PortError, ProgramError, SwitchError
from gradlane_switch.pipeline import Pipeline
from gradlane_switch.ports import PortSpec, parse_port
from gradlane_switch.server import DEFAULT_MAX_MESSAGE, MIN_MAX_MESSAGE, Server, Tls
from gradlane_switch.service import Service
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
    _add_tls(parser)
    parser.add_argument("--admin", type=Path, metavar="PATH", help="Unix socket for statistics and link settings")
    parser.add_argument(
        "-i", "--interface", action="append", default=[], metavar="PORT", dest="ports", help="a port, see below"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the links' impairments (default 0)")
    parser.add_argument("--program", type=Path, metavar="JSON", help="start with this program; needs --p4info")
    parser.add_argument("--p4info", type=Path, metavar="TXTPB", help="the program's P4Info in text format")
    return parser


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_tls(parser: argparse.ArgumentParser) -> None:
    """Flags of the gRPC server, named as those of simple_switch_grpc."""
    group = parser.add_argument_group("gRPC server")
    group.add_argument("--grpc-server-ssl", action="store_true", help="TLS: needs a certificate and its key")
    group.add_argument("--grpc-server-cert", type=Path, metavar="PEM", help="the switch's certificate")
    group.add_argument("--grpc-server-key", type=Path, metavar="PEM", help="the certificate's private key")
    group.add_argument("--grpc-server-cacert", type=Path, metavar="PEM", help="whose client certificates are trusted")
    group.add_argument(
        "--grpc-server-with-client-auth", action="store_true", help="mutual TLS: controllers need a certificate"
    )
    group.add_argument(
        "--grpc-server-max-message",
        type=_size,
        default=DEFAULT_MAX_MESSAGE,
        metavar="SIZE",
        help="longest request: a pipeline or a batch (default 64MiB)",
    )


def _tls(args: argparse.Namespace, parser: argparse.ArgumentParser) -> Tls | None:
    """What the flags say about TLS. Ends the program if they contradict one another."""
    if args.grpc_server_max_message < MIN_MAX_MESSAGE:
        parser.error("--grpc-server-max-message must be at least 4MiB, the least that P4Runtime wants")
    if not args.grpc_server_ssl:
        for name in ("cert", "key", "cacert", "with_client_auth"):
            if getattr(args, f"grpc_server_{name}"):
                parser.error(f"--grpc-server-{name.replace('_', '-')} needs --grpc-server-ssl")
        return None
    if args.grpc_server_cert is None or args.grpc_server_key is None:
        parser.error("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if args.grpc_server_with_client_auth and args.grpc_server_cacert is None:
        parser.error("--grpc-server-with-client-auth needs --grpc-server-cacert")
    authority, mutual = args.grpc_server_cacert, args.grpc_server_with_client_auth
    return Tls(args.grpc_server_cert, args.grpc_server_key, authority, mutual)


def main() -> int:
    """Runs the switch until SIGTERM or SIGINT. 2: bad flags, program or ports; 1: it failed while running."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    parser = _parser()
    args = parser.parse_args()
    if (args.program is None) != (args.p4info is None):
        parser.error("--program and --p4info go together")
    tls = _tls(args, parser)
    try:
        ports = [parse_port(text) for text in args.ports]
        return asyncio.run(_run(args, ports, tls))
    except (ProgramError, PortError) as error:
        print(f"gradlane-switch: error: {error}", file=sys.stderr)
        return 2
    except SwitchError as error:
        print(f"gradlane-switch: error: {error}", file=sys.stderr)
        return 1


async def _run(args: argparse.Namespace, ports: list[PortSpec], tls: Tls | None) -> int:
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
        server = Server(service, args.grpc_server_addr, tls, args.grpc_server_max_message)
        if admin is not None:
            await admin.start()
        if pipeline is not None:
            dataplane.install(pipeline)
        loop.add_reader(dataplane.event_fd, log_events)
        dataplane.start(failed)
        await server.start()
        _announce(args.device_id, server.address, ports)
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
