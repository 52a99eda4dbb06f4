# SPDX-License-Identifier: Apache-2.0
"""`gradlane-switch` without a command: runs the switch until a signal ends it, or pcap files are at their end."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal

from gradlane import hangup, logs, systemd
from gradlane.flag_file import FlagFile
from gradlane.logs import Log
from gradlane.toml_file import FileError
from gradlane.units import format_rate
from gradlane_switch.commands import flags
from gradlane_switch.commands.port import port_table
from gradlane_switch.dataplane.forwarding import DataPlane
from gradlane_switch.dataplane.interfaces import is_file
from gradlane_switch.dataplane.port_config import PortSpec, parse_port
from gradlane_switch.errors import PortError, SwitchError
from gradlane_switch.management.admin_server import Admin
from gradlane_switch.management.metrics import MetricsServer
from gradlane_switch.p4runtime.files import read_p4info, read_program, write_entries
from gradlane_switch.p4runtime.server import Server
from gradlane_switch.p4runtime.service import CpuPort, Service
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock

_LOG = logging.getLogger("gradlane-switch")
# What the P4 program has to say (log_msg) is asked for.
_PROGRAM = logs.Program("gradlane-switch", ("gradlane-switch",), limited=logging.WARNING)


RELOADED = {"log_level", "grpc_server_cert", "grpc_server_key", "grpc_server_cacert"}
"""The keys that a running switch takes from its file on SIGHUP; all others need a restart."""


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.set_defaults(command=_command, config_file=flags.add(parser))


def _command(given: argparse.Namespace) -> int:
    """Until SIGTERM or SIGINT. Raises SwitchError or FileError."""
    args = _options(given)
    logs.setup(Log(args.log_level, args.log_format), _PROGRAM)
    try:
        return _do(given, args)
    finally:
        logging.shutdown()


def _do(given: argparse.Namespace, args: argparse.Namespace) -> int:
    ports = [parse_port(text) for text in args.ports]
    if ports and all(is_file(port) for port in ports):
        return _replay(args, ports)
    return asyncio.run(_run(given, args, ports))


def _options(given: argparse.Namespace) -> argparse.Namespace:
    file: FlagFile = given.config_file
    args = file.resolve(given)
    flags.check(args)
    return args


def _reload(given: argparse.Namespace, args: argparse.Namespace, server: Server) -> None:
    """SIGHUP: what can't be used changes nothing."""
    systemd.reloading()
    try:
        new = _options(given)
        server.reload(flags.tls_of(new))
    except (SwitchError, FileError) as problem:
        _LOG.error("reload failed, nothing has changed: %s", problem)
    else:
        _LOG.setLevel(new.log_level.upper())
        for key in given.config_file.changed(args, new):
            if key not in RELOADED:
                how = (
                    "use `gradlane-switch port`, or restart the switch" if key == "interface" else "restart the switch"
                )
                _LOG.warning("%s has changed in %s: %s to apply it", key, new.config, how)
        _LOG.info("configuration and certificates read again")
    systemd.notify("READY=1")


def _load(args: argparse.Namespace, lock: Lock) -> Pipeline:
    pipeline = Pipeline(read_program(args.program), read_p4info(args.p4info), lock)
    if args.entries is not None:
        write_entries(pipeline, args.entries)
    return pipeline


def _replay(args: argparse.Namespace, ports: list[PortSpec]) -> int:
    """Forwards what is in files, without a controller, and prints the counts."""
    if args.program is None:
        raise PortError("pcap ports need --program: there is no time to wait for a controller")
    lock = Lock()
    dataplane = DataPlane(lock, ports, args.seed, args.coalesce, args.mtu)
    try:
        dataplane.install(_load(args, lock))
        dataplane.replay()
        for text in dataplane.events():
            _LOG.warning("%s", text)
        statistics = dataplane.statistics()
    finally:
        dataplane.stop()
    print(json.dumps({"ports": statistics}, indent=2) if args.json else port_table(statistics))
    return 0


async def _run(given: argparse.Namespace, args: argparse.Namespace, ports: list[PortSpec]) -> int:
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
    pipeline = _load(args, lock) if args.program is not None else None
    dataplane = DataPlane(lock, ports, args.seed, args.coalesce, args.mtu)
    cpu = None if args.cpu_port is None else CpuPort(args.cpu_port, dataplane.inject)
    service = Service(args.device_id, lock, dataplane.install, pipeline, cpu)
    server = metrics = watchdog = None
    admin = Admin(dataplane, args.admin, service.losses) if args.admin else None
    try:
        server = Server(service, args.grpc_server_addr, flags.tls_of(args), args.grpc_server_max_message)
        if args.metrics is not None:
            host, port = args.metrics
            metrics = MetricsServer(host, port, dataplane.accounts, dataplane.losses)
            _LOG.info("metrics at http://%s/metrics", metrics.address)
        if admin is not None:
            await admin.start()
        if pipeline is not None:
            dataplane.install(pipeline)
        loop.add_reader(dataplane.event_fd, log_events)
        loop.add_reader(dataplane.link_events, dataplane.look_at_links)
        dataplane.start(failed)
        await server.start()
        hangup.hear(_reload, given, args, server)
        _announce(args.device_id, server.address, ports)
        systemd.notify("READY=1", f"STATUS=P4Runtime at {server.address}, {len(ports)} ports")
        watchdog = asyncio.create_task(systemd.feed_watchdog())
        reason = await stopped
        systemd.notify("STOPPING=1")
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        if watchdog is not None:
            watchdog.cancel()
        loop.remove_reader(dataplane.event_fd)
        loop.remove_reader(dataplane.link_events)
        if admin is not None:
            await admin.stop()
        if server is not None:
            await server.stop(0.2)
        if metrics is not None:
            metrics.close()
        waiting = dataplane.stop(args.drain / 1e9)
    if waiting:
        _LOG.warning("%d packets still waited after %g s, and are lost", waiting, args.drain / 1e9)
    if reason is not None:
        raise SwitchError(reason)
    return 0


def _announce(device_id: int, address: str, ports: list[PortSpec]) -> None:
    shown = ", ".join(
        f"{port.number}@{port.interface}" + (f" {format_rate(port.config.rate)}" if port.config.rate else "")
        for port in ports
    )
    logs.announce(_LOG, "ready device %d on %s; ports: %s", device_id, address, shown or "none")
