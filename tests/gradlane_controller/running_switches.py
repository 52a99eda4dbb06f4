# SPDX-License-Identifier: Apache-2.0
"""Switches as processes whose ports are here: frames are sent and received without interfaces or privileges."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import grpc
from scapy.layers.l2 import Ether
from scapy.packet import Packet

from tests.support import zygote
from tests.support.bmv2_process import Frame, wait_until_started
from tests.support.ports import free_ports

START_SECONDS = 120  # for one of several switches on a busy machine
# Beside this Python, where pip puts the command, or on PATH.
SEARCH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def find(command: str) -> str | None:
    """Where the command is, None if it is not installed."""
    return shutil.which(command, path=SEARCH)


class Wires(ABC):
    """The ends of a switch's ports that are here."""

    @abstractmethod
    def send(self, port: int, frame: Packet | bytes) -> None:
        """A frame to the switch."""

    @abstractmethod
    def receive(self, seconds: float) -> tuple[int, bytes] | None:
        """The next frame from the switch, as (port, frame); None if none comes in time."""

    def expect(self, port: int, like: Callable[[Packet], bool], seconds: float = 60) -> Packet:
        """The next frame of that port of which `like` is true; others are skipped. AssertionError if none comes."""
        end = time.monotonic() + seconds
        seen: list[str] = []
        while (left := end - time.monotonic()) > 0:
            found = self.receive(left)
            if found is not None:
                packet = Ether(found[1])
                if found[0] == port and like(packet):
                    return packet
                seen.append(f"port {found[0]}: {packet.summary()}")
        raise AssertionError(f"no such frame at port {port} in {seconds} s; there were {seen}")

    def ask(self, port: int, frame: Packet, like: Callable[[Packet], bool]) -> Packet:
        """Sends a frame until it is answered at the same port: what the controller is to answer may be lost."""
        for _ in range(20):
            self.send(port, frame)
            try:
                return self.expect(port, like, 2)
            except AssertionError as problem:
                last = problem
        raise last

    @abstractmethod
    def close(self) -> None:
        """Nothing more is sent or received."""


class Tunnels(Wires):
    """UDP sockets at the other ends of gradlane-switch's tunnels."""

    def __init__(self, ports: Sequence[int]) -> None:
        numbers = free_ports(len(ports), socket.SOCK_DGRAM)
        self._sockets = {port: socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for port in ports}
        self._switch = dict(zip(ports, numbers, strict=True))
        for each in self._sockets.values():
            each.bind(("127.0.0.1", 0))
            each.settimeout(0)
        self.interfaces = {
            port: f"udp:127.0.0.1:{self._switch[port]}-127.0.0.1:{each.getsockname()[1]}"
            for port, each in self._sockets.items()
        }

    def send(self, port: int, frame: Packet | bytes) -> None:
        self._sockets[port].sendto(bytes(frame), ("127.0.0.1", self._switch[port]))

    def receive(self, seconds: float) -> tuple[int, bytes] | None:
        end = time.monotonic() + seconds
        while select.select(self._sockets.values(), (), (), max(0, end - time.monotonic()))[0]:
            for port, each in self._sockets.items():
                with contextlib.suppress(BlockingIOError):
                    return port, each.recv(65536)
        return None

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()


class FramesOverGrpc(Wires):
    """BMv2's ports as a stream of its gRPC server (`--dp-grpc-server-addr`), which it takes once it has a program."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._out: SimpleQueue[Any] = SimpleQueue()
        self._in: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._channel: grpc.Channel | None = None

    def _open(self) -> None:
        self._channel = grpc.insecure_channel(self._address)
        grpc.channel_ready_future(self._channel).result(60)
        method = self._channel.stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream", Frame.SerializeToString, Frame.FromString
        )
        wait_until_started(method)
        threading.Thread(target=self._read, args=(method(iter(self._out.get, None)),), daemon=True).start()

    def _read(self, frames: Any) -> None:
        try:
            for frame in frames:
                self._in.put((frame.port, frame.packet))
        except grpc.RpcError:
            pass  # closed

    def send(self, port: int, frame: Packet | bytes) -> None:
        if self._channel is None:
            self._open()
        self._out.put(Frame(device_id=1, port=port, packet=bytes(frame)))

    def receive(self, seconds: float) -> tuple[int, bytes] | None:
        try:
            return self._in.get(timeout=seconds)
        except Empty:
            return None

    def close(self) -> None:
        self._out.put(None)
        if self._channel is not None:
            self._channel.close()


class SwitchProcess:
    """One switch, started anew by `start`. Its log is in the folder."""

    def __init__(self, command: Sequence[str], address: str, folder: Path, name: str = "switch") -> None:
        self.address = address
        self._command = command
        self._folder = folder
        self._log = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = zygote.start(self._command, cwd=self._folder, stdout=log, stderr=log)

    def wait_until_reachable(self) -> None:
        """Returns once its gRPC server is there. Raises AssertionError with its log if it has ended."""
        assert self._process is not None
        with grpc.insecure_channel(self.address) as channel:
            ready = grpc.channel_ready_future(channel)
            deadline = time.monotonic() + START_SECONDS
            while True:
                try:
                    return ready.result(0.5)
                except grpc.FutureTimeoutError:
                    assert self._process.poll() is None, self._log.read_text()
                    assert time.monotonic() < deadline, f"not reachable in time: {self._log.read_text()}"

    def wait_until_listening(self) -> None:
        """As `wait_until_reachable`, where this process can't speak to it: its port is open."""
        assert self._process is not None
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + START_SECONDS
        while True:
            with socket.socket() as caller:
                if caller.connect_ex((host, int(port))) == 0:
                    return
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, f"not listening in time: {self._log.read_text()}"
            time.sleep(0.05)

    @property
    def running(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return None if self._process is None else self._process.pid

    def signal(self, number: int) -> None:
        """To the process, if there is one."""
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(timeout=60)
            self._process = None


@dataclass
class Target:
    """One switch process with hosts' ends of its ports here."""

    kind: str
    process: SwitchProcess
    wires: Wires

    @property
    def address(self) -> str:
        return self.process.address


def gradlane_switch(
    address: str, interfaces: dict[int, str], folder: Path, device_id: int = 1, more: Sequence[str] = ()
) -> SwitchProcess:
    """A gradlane-switch with these interfaces by port, and more flags."""
    ports = [word for port, interface in interfaces.items() for word in ("-i", f"{port}@{interface}")]
    command = [sys.executable, "-m", "gradlane_switch", "--device-id", str(device_id), "--cpu-port", "255", *ports]
    return SwitchProcess([*command, "--grpc-server-addr", address, *more], address, folder, f"switch{device_id}")


def bmv2(command: str, address: str, frames: str, folder: Path, device_id: int = 1) -> SwitchProcess:
    """A simple_switch_grpc whose frames go over gRPC."""
    arguments = ["--no-p4", "--device-id", str(device_id), "--thrift-port", str(free_ports(1)[0])]
    arguments += ["--notifications-addr", f"ipc://{folder}/notifications.ipc", "--", "--grpc-server-addr", address]
    arguments += ["--dp-grpc-server-addr", frames, "--cpu-port", "255", "--priority-queues", "8"]
    return SwitchProcess([command, *arguments], address, folder)
