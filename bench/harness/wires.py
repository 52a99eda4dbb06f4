# SPDX-License-Identifier: Apache-2.0
"""Links between hosts and a switch, each side in a network namespace, and frames on them."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

from bench.harness.netns import Namespaces, run

SENDER, SENDER_MAC = b"\x0a\0\xfe\2", b"\2\0\0\0\0\1"
"""Of every frame."""
HEADERS = 14 + 20 + 8
"""Bytes of a datagram's frame in front of its payload."""


class Wires(Namespaces):
    """Links 1..n: `host-1` in the hosts' namespace to `switch-1` in the switch's, and so on. Raises FabricError."""

    def __init__(self, links: int) -> None:
        self._links = links
        self.switch, self.hosts = f"glw{os.getpid()}s", f"glw{os.getpid()}h"
        super().__init__((self.switch, self.hosts))

    def _build(self) -> None:
        for number in range(1, self._links + 1):
            peer = ("peer", "name", f"host-{number}", "netns", self.hosts)
            run("ip", "link", "add", f"switch-{number}", "netns", self.switch, "type", "veth", *peer)
            for namespace, name in ((self.switch, f"switch-{number}"), (self.hosts, f"host-{number}")):
                words = [word for what in ("tx", "rx", "sg", "tso", "gso", "gro") for word in (what, "off")]
                self.run(namespace, "sysctl", "-qw", f"net.ipv6.conf.{name}.disable_ipv6=1")
                self.run(namespace, "ethtool", "-K", name, *words)
                run("ip", "-n", namespace, "link", "set", name, "up")

    def run(self, namespace: str, *command: str) -> str:
        """Output of a command in a namespace. Raises FabricError."""
        return run("ip", "netns", "exec", namespace, *command)

    def frames(self) -> dict[int, tuple[int, int]]:
        """By host, frames that the kernel has sent and received."""
        found: dict[int, tuple[int, int]] = {}
        for link in json.loads(run("ip", "-n", self.hosts, "-s", "-j", "link", "show")):
            name, stats = link["ifname"], link["stats64"]
            if name.startswith("host-"):
                found[int(name[5:])] = stats["tx"]["packets"], stats["rx"]["packets"]
        return found


def compiled(source: Path, folder: Path) -> Path:
    """The program of a C file, for example one that sends frames at a rate. Raises FabricError."""
    program = folder / source.stem
    run("cc", "-O2", "-D_GNU_SOURCE", "-o", str(program), str(source))
    return program


def frame(destination: str, payload: int, dscp: int = 0) -> str:
    """A UDP datagram with so many bytes of payload, as a frame in hex."""
    length = 20 + 8 + payload
    address = bytes(map(int, destination.split(".")))
    header = struct.pack("!BBHHHBBH4s4s", 0x45, dscp << 2, length, 0, 0, 64, 17, 0, SENDER, address)
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", (total & 0xFFFF) + (total >> 16) ^ 0xFFFF) + header[12:]
    ethernet = bytes.fromhex("0200000000ff") + SENDER_MAC + b"\x08\0"
    return (ethernet + header + struct.pack("!HHHH", 9, 9, 8 + payload, 0) + bytes(payload)).hex()
