# SPDX-License-Identifier: Apache-2.0
"""Network namespaces; and hosts in such around a switch in one of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import threading
import time
from dataclasses import dataclass

_CLONE_NEWNET = 0x40000000
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def socket_in(namespace: str, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """A socket of another network namespace; made by a thread that moves there and ends."""
    made: list[socket.socket] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{namespace}") as there:
            if libc.setns(there.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {namespace}")
        made.append(socket.socket(family, kind, protocol))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


@dataclass
class Arrival:
    """A datagram: what was in it, and the kernel's receive time in s."""

    payload: bytes
    at: float


class Namespaces(contextlib.AbstractContextManager):
    """Network namespaces with what `_build` puts between them; all are removed at the end."""

    def __init__(self, *names: str) -> None:
        self.names = names
        try:
            for name in names:
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        """Makes the links."""

    @staticmethod
    def inside(name: str) -> tuple[str, ...]:
        """What makes a command run in a namespace."""
        return ("ip", "netns", "exec", name)

    def run(self, name: str, *command: str) -> None:
        """Runs a command in a namespace."""
        subprocess.run([*self.inside(name), *command], check=True, capture_output=True, text=True)

    def close(self) -> None:
        """Removes the namespaces."""
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def __exit__(self, *_: object) -> None:
        self.close()


class Network(Namespaces):
    """Hosts 1..n, host k at 10.0.k.2 behind interface s{k} of the switch's namespace."""

    def __init__(self, hosts: int, name: str = "") -> None:
        self.prefix = f"glt{os.getpid()}{name}"
        self.switch = f"{self.prefix}-s"
        self.hosts = hosts
        self._sockets: list[socket.socket] = []
        super().__init__(self.switch, *(self.host(k) for k in range(1, hosts + 1)))

    def host(self, number: int) -> str:
        """Namespace of a host."""
        return f"{self.prefix}-{number}"

    def _build(self) -> None:
        for namespace in self.names:
            self.run(namespace, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        for k in range(1, self.hosts + 1):
            host = self.host(k)
            ip("link", "add", f"s{k}", "netns", self.switch, "type", "veth", "peer", "name", "eth0", "netns", host)
            for namespace, name in ((self.switch, f"s{k}"), (host, "eth0")):
                offloads = [word for what in ("tx", "rx", "sg", "tso", "gso", "gro") for word in (what, "off")]
                self.run(namespace, "ethtool", "-K", name, *offloads)
            ip("-n", self.switch, "link", "set", f"s{k}", "up")
            ip("-n", host, "link", "set", "eth0", "address", f"02:00:00:00:00:{k:02x}", "up")
            ip("-n", host, "addr", "add", f"10.0.{k}.2/24", "dev", "eth0")
            ip("-n", host, "route", "add", "default", "via", f"10.0.{k}.1")
            ip("-n", host, "neigh", "add", f"10.0.{k}.1", "lladdr", "02:00:00:00:00:ff", "dev", "eth0")

    def add_ipv6(self) -> None:
        """Host k is at fd00:k::2, too."""
        for k in range(1, self.hosts + 1):
            host = self.host(k)
            self.run(host, "sysctl", "-qw", "net.ipv6.conf.eth0.disable_ipv6=0")
            ip("-n", host, "addr", "add", f"fd00:{k}::2/64", "dev", "eth0", "nodad")
            ip("-n", host, "route", "add", "default", "via", f"fd00:{k}::1")
            ip("-n", host, "neigh", "add", f"fd00:{k}::1", "lladdr", "02:00:00:00:00:ff", "dev", "eth0")

    def udp(self, host: int, *, tos: int = 0) -> socket.socket:
        """A UDP socket of a host, bound to port 9, with receive timestamps and a deep buffer."""
        made = socket_in(self.host(host), socket.AF_INET, socket.SOCK_DGRAM)
        self._sockets.append(made)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        made.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 16 << 20)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((f"10.0.{host}.2", 9 if tos == 0 else 0))
        return made

    def close_sockets(self) -> None:
        """Closes what `udp` gave out."""
        for made in self._sockets:
            made.close()
        self._sockets.clear()

    def close(self) -> None:
        self.close_sockets()
        super().close()


def send(sender: socket.socket, host: int, count: int, size: int, *, rate: float = 0.0, first: int = 0) -> None:
    """Numbered datagrams of `size` bytes of payload to a host, at a rate in packets/s, or at once."""
    start = time.monotonic()
    for number in range(first, first + count):
        while rate and time.monotonic() < start + (number - first) / rate:
            time.sleep(0.0002)
        sender.sendto(struct.pack("!I", number) + bytes(size - 4), (f"10.0.{host}.2", 9))


def receive(receiver: socket.socket, count: int, *, silence: float = 0.5) -> list[Arrival]:
    """Datagrams until there are `count`, or none for `silence` seconds."""
    arrivals: list[Arrival] = []
    receiver.settimeout(silence)
    while len(arrivals) < count:
        try:
            payload, ancillary, _, _ = receiver.recvmsg(2048, 64)
        except TimeoutError:
            break
        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
        arrivals.append(Arrival(payload, seconds + nanoseconds / 1e9))
    return arrivals


def numbers(arrivals: list[Arrival]) -> list[int]:
    """The numbers that `send` gave the datagrams."""
    return [struct.unpack_from("!I", item.payload)[0] for item in arrivals]
