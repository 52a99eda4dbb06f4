# SPDX-License-Identifier: Apache-2.0
"""The processes of a run: five switches, three controllers and their store, and a relay for every connection."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from gradlane_controller.desired.pipeline import DEFAULT_FOLDER, load
from gradlane_controller.network import fabric_file
from tests.chaos.entries import Reader
from tests.chaos.jobs import Record as Jobs
from tests.chaos.ports import FramesOfBmv2, Port
from tests.chaos.relay import Relay, Relays
from tests.chaos.traffic import Excused, Flow, Traffic
from tests.chaos.written import Record, Watcher
from tests.gradlane_controller.controller_process import PATIENCE, Running
from tests.gradlane_controller.running_switches import SwitchProcess, bmv2, find, gradlane_switch
from tests.gradlane_controller.texts import job_text, leafspine_text
from tests.support.ports import free_ports
from tests.support.postgresql import Postgresql

CONTROLLERS = ("a", "b", "c")
HOSTS = {"leaf1": (1, 2), "leaf2": (3, 4), "spine1": (), "spine2": (), "rack": (5, 6)}
SWITCHES = tuple(HOSTS)
LINKS = [((f"leaf{leaf}", 4 + spine), (f"spine{spine}", leaf)) for leaf in (1, 2) for spine in (1, 2)]
TO_RACK = (("leaf1", 7), ("rack", 3))
_ACROSS = frozenset(("leaf1", "leaf2", "spine1", "spine2"))
FLOWS = (
    Flow(1, 2, frozenset(("leaf1",))),
    Flow(4, 3, frozenset(("leaf2",))),
    Flow(1, 3, _ACROSS, gradients=True),
    Flow(3, 1, _ACROSS, gradients=True),
    Flow(4, 2, _ACROSS),
    Flow(5, 6, frozenset(("rack",))),
)
START_SECONDS = 120.0  # for what takes seconds where the machine is not busy
END_SECONDS = 10.0  # that a controller may take to stop
_DISK = "16m"  # of what the store may fill


class Controller:
    """A controller process that somebody keeps running, as systemd does, unless it was ended here."""

    def __init__(self, name: str, arguments: list[str], http_port: int, token_file: Path) -> None:
        self.name, self._arguments, self._token_file = name, arguments, token_file
        self.http_port = http_port
        self.wanted = False
        self.running: Running | None = None
        self._said: list[tuple[float, str]] = []  # by those that have ended

    def start(self) -> None:
        """It runs from now on."""
        self.wanted = True
        if self.running is None:
            self.running = Running(self._arguments, self.http_port, self._token_file)

    def end(self, number: int) -> str | None:
        """It does not. What is wrong, if it does not end soon."""
        self.wanted = False
        if self.running is None:
            return None
        process, problem = self.running.process, None
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            problem = f"controller {self.name} has not ended {END_SECONDS:g} s after signal {number}"
        self._bury()
        return problem

    def signal(self, number: int) -> None:
        """To the process, if it runs."""
        if self.running is not None:
            self.running.process.send_signal(number)

    def tend(self) -> str | None:
        """Starts it anew if it has ended by itself; with which exit code, and what it said last."""
        if self.running is None or (code := self.running.process.poll()) is None:
            return None
        self._bury()
        last = self._said[-1][1] if self._said else "nothing"
        if self.wanted:
            self.start()
        return f"exit code {code}: {last}"

    def _bury(self) -> None:
        assert self.running is not None
        if self.running.process.poll() is None:
            self.running.process.kill()
            self.running.process.wait(PATIENCE)
        self.running.reader.join(PATIENCE)
        self._said += self.running.said_at
        self.running = None

    @property
    def log(self) -> list[tuple[float, str]]:
        """All that it has ever said, and when."""
        return [*self._said, *(self.running.said_at if self.running is not None else ())]


class World:
    """Everything, by name; `close` ends it."""

    def __init__(self, folder: Path, store: str, controllers: int, *, with_bmv2: bool) -> None:
        """`store`: "sqlite" or "postgresql". So many `controllers`, of CONTROLLERS."""
        self.folder, self.store = folder, store
        self.stack = ExitStack()
        self.writes, self.excused = Record(), Excused()
        self.relays = Relays()
        self._under_way: list[threading.Thread] = []
        self.stack.callback(self.relays.close)
        try:
            self._make(CONTROLLERS[:controllers], with_bmv2)
        except BaseException:
            self.stack.close()
            raise

    def _make(self, controllers: Sequence[str], with_bmv2: bool) -> None:
        self.schema = load(DEFAULT_FOLDER, "gradlane").schema
        command = find("simple_switch_grpc") if with_bmv2 else None
        self.bmv2 = command is not None
        self._make_switches(command)
        self.disk: Path | None = None
        self.server: Postgresql | None = None
        url = self._make_store()
        files = {"demo": job_text(hosts=(1, 3), mask=255)}
        (self.folder / "demo.toml").write_text(files["demo"])
        self.jobs = Jobs(files)
        self.paths: dict[tuple[str, str], Relay] = {}  # of controllers to switches
        self.to_store: dict[str, Relay] = {}
        self.to_http: dict[str, Relay] = {}
        self.controllers = {name: self._make_controller(name, url) for name in controllers}
        self.fabric = fabric_file.load(self.folder / "a.toml", {})

    def _make_switches(self, command: str | None) -> None:
        self.ports = {host: Port() for hosts in HOSTS.values() for host in hosts}
        interfaces: dict[str, dict[int, str]] = {
            name: {2 - host % 2: self.ports[host].interface for host in hosts} for name, hosts in HOSTS.items()
        }
        (leaf, at_leaf), (_, at_rack) = TO_RACK
        for (a, at), (b, there) in LINKS if command else [*LINKS, TO_RACK]:
            one, other = free_ports(2, socket.SOCK_DGRAM)
            interfaces[a][at] = f"udp:127.0.0.1:{one}-127.0.0.1:{other}"
            interfaces[b][there] = f"udp:127.0.0.1:{other}-127.0.0.1:{one}"
        wire = Port()  # of the rack's link, where that is BMv2's
        if command:
            interfaces[leaf][at_leaf] = wire.interface
        grpc_ports = free_ports(len(SWITCHES))
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(SWITCHES, grpc_ports, strict=True)}
        self.device_ids = {name: number for number, name in enumerate(SWITCHES, 1)}
        self.switches: dict[str, SwitchProcess] = {
            name: gradlane_switch(self.addresses[name], interfaces[name], self.folder, self.device_ids[name])
            for name in SWITCHES
        }
        self.frames: FramesOfBmv2 | None = None
        if command is not None:
            (port,) = free_ports(1)
            frames, number = f"127.0.0.1:{port}", self.device_ids["rack"]
            self.switches["rack"] = bmv2(command, self.addresses["rack"], frames, self.folder, number)
            self.frames = FramesOfBmv2(frames, number, {5: 1, 6: 2}, wire, at_rack)
            self.stack.callback(self.frames.close)
        self.readers = {
            name: Reader(self.schema, address, self.device_ids[name]) for name, address in self.addresses.items()
        }
        self.flows = FLOWS
        self.traffic = Traffic(FLOWS, self.ports, self.frames)

    def _make_store(self) -> str:
        if self.store == "postgresql":
            self.server = Postgresql()
            self.stack.callback(self.server.close)
            self.server.start()
            return self.server.make_database()
        folder = self.folder / "store"
        folder.mkdir()
        if os.geteuid() == 0:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK}", "tmpfs", folder], check=True)
            self.stack.callback(subprocess.run, ["umount", "-l", folder], check=True)
            self.disk = folder
        return f"sqlite:///{folder}/store.db"

    def _make_controller(self, name: str, url: str) -> Controller:
        for switch, address in self.addresses.items():
            self.paths[name, switch] = self.relays.add(
                f"{name} to {switch}", _port(address), lambda switch=switch: Watcher(self.writes, name, switch)
            )
        if self.server is not None:
            self.to_store[name] = self.relays.add(f"{name} to the store", self.server.port)
            url = url.replace(f":{self.server.port}/", f":{self.to_store[name].port}/")
        (http_port,) = free_ports(1)
        self.to_http[name] = self.relays.add(f"clients to {name}", http_port)
        fabric = self.folder / f"{name}.toml"
        fabric.write_text(self._fabric_text({switch: self.paths[name, switch].port for switch in SWITCHES}))
        token_file = self.folder / "token"
        arguments = ["--fabric", str(fabric), "--job", str(self.folder / "demo.toml"), "--store", url]
        arguments += ["--token-file", str(token_file), "--name", name]
        return Controller(name, arguments, http_port, token_file)

    def _fabric_text(self, ports: dict[str, int]) -> str:
        addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        text = leafspine_text(addresses=[addresses[name] for name in SWITCHES if name != "rack"])
        text += f'[[switch]]\nname = "rack"\naddress = "{addresses["rack"]}"\n'
        text += f'device_id = {self.device_ids["rack"]}\ntarget = "{"bmv2" if self.bmv2 else "gradlane-switch"}"\n'
        for host in HOSTS["rack"]:
            text += f"""
[[port]]
switch = "rack"
number = {2 - host % 2}
host = "h{host}"
mac = "02:00:00:00:0{host}:01"
host_mac = "02:00:00:00:0{host}:02"
address = "10.0.{host}.2"
prefix = "10.0.{host}.0/24"
gateway = "10.0.{host}.1"
rate = "100mbit"
buffer = "64kB"
"""
        (leaf, at_leaf), (rack, at_rack) = TO_RACK
        return f'{text}[[link]]\nends = ["{leaf}:{at_leaf}", "{rack}:{at_rack}"]\nrate = "100mbit"\nbuffer = "64kB"\n'

    def start(self) -> None:
        """Everything runs, in order."""
        for each in self.switches.values():
            each.start()
            self.stack.callback(each.stop)
        for each in self.switches.values():
            each.wait_until_reachable()
        for each in self.controllers.values():
            self.stack.callback(each.end, signal.SIGKILL)
        first, *others = self.controllers.values()
        first.start()
        assert first.running is not None
        first.running.wait_for("leads, as number", START_SECONDS)  # it has made the store's tables and the token
        for each in others:
            each.start()

    @property
    def token(self) -> str:
        """Of scope admin."""
        return (self.folder / "token").read_text().strip()

    def pids(self) -> list[int]:
        """Of switches and controllers, and this process."""
        controllers = [it.running.process.pid for it in self.controllers.values() if it.running is not None]
        return [os.getpid(), *controllers, *(it.pid for it in self.switches.values() if it.pid is not None)]

    def start_switch(self, name: str) -> None:
        """Unless it runs."""
        if not self.switches[name].running:
            self.switches[name].start()

    def start_store(self) -> None:
        """Unless it runs."""
        assert self.server is not None
        if not self.server.running:
            self.server.start()

    def pause_store(self, *, resume: bool = False) -> None:
        """If it runs."""
        assert self.server is not None
        if self.server.running:
            self.server.pause(resume=resume)

    def fill_disk(self) -> None:
        """Of SQLite, to the last byte."""
        assert self.disk is not None
        with suppress(OSError), (self.disk / "filler").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

    def empty_disk(self) -> None:
        """As before."""
        assert self.disk is not None
        (self.disk / "filler").unlink(missing_ok=True)

    def background(self, what: Callable[[], object]) -> None:
        """Beside all else."""
        thread = threading.Thread(target=what, daemon=True)
        thread.start()
        self._under_way.append(thread)

    @property
    def in_background(self) -> bool:
        """Whether any of that goes on."""
        self._under_way = [it for it in self._under_way if it.is_alive()]
        return bool(self._under_way)

    def lock_store(self, seconds: float) -> None:
        """Somebody has SQLite's lock for so long: nobody else can write."""

        def hold() -> None:
            with suppress(sqlite3.OperationalError):
                connection = sqlite3.connect(self.folder / "store" / "store.db", timeout=2, isolation_level=None)
                try:
                    connection.execute("BEGIN IMMEDIATE")
                    time.sleep(seconds)
                    connection.execute("ROLLBACK")
                finally:
                    connection.close()

        self.background(hold)

    def all_relays(self) -> Iterator[Relay]:
        """Every one."""
        yield from self.paths.values()
        yield from self.to_store.values()
        yield from self.to_http.values()

    def close(self) -> None:
        """Ends everything, and leaves nothing behind."""
        for each in self.readers.values():
            each.close()
        self.stack.close()


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
