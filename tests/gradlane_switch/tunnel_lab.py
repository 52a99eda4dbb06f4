# SPDX-License-Identifier: Apache-2.0
"""A switch with UDP tunnels as ports, which needs no privileges; hosts are sockets. The program is replaying.py's."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from tests.gradlane_switch.replaying import steering
from tests.gradlane_switch.small_programs import p4info
from tests.gradlane_switch.switch_process import Process, admin


class Host:
    """One end of a tunnel; `interface` is how the switch names it."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.bind(("127.0.0.1", 0))
        self._held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._held.bind(("127.0.0.1", 0))
        self.switch = self._held.getsockname()
        self.interface = f"udp:127.0.0.1:{self.switch[1]}-127.0.0.1:{self.socket.getsockname()[1]}"

    def release(self) -> None:
        """Leaves the switch its end, which was held so that nobody else gets that port."""
        self._held.close()

    def send(self, data: bytes) -> None:
        """A frame to the switch."""
        self.socket.sendto(data, self.switch)

    def receive(self, count: int, silence: float = 0.5) -> list[bytes]:
        """Frames until there are `count`, or none for `silence` seconds."""
        frames: list[bytes] = []
        self.socket.settimeout(silence)
        while len(frames) < count:
            try:
                frames.append(self.socket.recv(65536))
            except TimeoutError:
                break
        return frames

    def close(self) -> None:
        self.release()
        self.socket.close()


class TunnelLab:
    """Hosts 1, 2 ... on ports of those numbers, each with the settings given."""

    def __init__(self, folder: Path, *settings: str, flags: tuple[str, ...] = (), environment: Any = None) -> None:
        document = steering()
        (folder / "p.json").write_text(json.dumps(document))
        (folder / "p.txtpb").write_text(text_format.MessageToString(p4info(document)))
        self.path = folder / "admin.sock"
        self.hosts = {n: Host() for n in range(1, len(settings) + 1)}
        words = [
            f"{n}@{host.interface}{text and ','}{text}"
            for (n, host), text in zip(self.hosts.items(), settings, strict=True)
        ]
        for host in self.hosts.values():
            host.release()
        self.process = Process(
            *("--program", str(folder / "p.json"), "--p4info", str(folder / "p.txtpb"), "--admin", str(self.path)),
            *(word for text in words for word in ("-i", text)),
            *flags,
            environment=environment,
        )

    def admin(self, **request: Any) -> dict[str, Any]:
        return admin(self.path, request)

    def ports(self) -> dict[int, dict[str, Any]]:
        return {item["port"]: item for item in self.admin(op="ports")["ports"]}

    def wait_until(self, true: Callable[[dict[int, dict[str, Any]]], bool]) -> dict[int, dict[str, Any]]:
        """The ports' statistics, as soon as something is true of them."""
        end = time.monotonic() + 60
        while True:
            ports = self.ports()
            if true(ports):
                return ports
            assert time.monotonic() < end, ports
            time.sleep(0.01)

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        if self.process.running:
            self.process.stop()
