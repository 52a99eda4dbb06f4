# SPDX-License-Identifier: Apache-2.0
"""Checks of the interface that has the agent's address: state, MTU, offloads."""

import array
import fcntl
import json
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradlane.doctor.findings import FAIL, OK, WARN, Finding, judge
from gradlane.errors import GradlaneError
from gradlane.toml_file import Address

_SIOCETHTOOL = 0x8946
_ETHTOOL_GSTRINGS, _ETHTOOL_GFEATURES, _ETHTOOL_GSSET_INFO = 0x1B, 0x3A, 0x37
_ETH_SS_FEATURES = 4
_NAME_BYTES = 32
# What the agent gains by, and how ethtool calls it where its short name differs.
_OFFLOADS = (
    ("tx-udp-segmentation", "the interface splits what the agent sends at once", "tx-udp-segmentation"),
    ("rx-gro", "arrivals reach the agent many at once", "gro"),
    ("tx-checksum", "the interface computes checksums", "tx"),
)


@dataclass(frozen=True)
class Interface:
    """A network interface and its MTU in bytes."""

    name: str
    mtu: int
    up: bool


def ip(*arguments: str) -> list[dict[str, Any]]:
    """What `ip -json` answers. Raises GradlaneError with what it says."""
    try:
        found = subprocess.run(["ip", "-json", *arguments], capture_output=True, text=True, timeout=10, check=False)
    except OSError as error:
        raise GradlaneError(f"`ip` can't be run ({error.strerror}): apt-get install iproute2") from error
    if found.returncode:
        raise GradlaneError(found.stderr.strip() or f"ip {' '.join(arguments)} failed")
    return json.loads(found.stdout or "[]")


def find(address: Address) -> Interface | None:
    """The interface with that address, or None."""
    for link in ip("address"):
        for entry in link.get("addr_info", []):
            if entry.get("local") == str(address) or (address.is_loopback and link["ifname"] == "lo"):
                return Interface(
                    link["ifname"], int(link["mtu"]), "UP" in link["flags"] and link["operstate"] != "DOWN"
                )
    return None


def checks(address: Address, interface: Interface | None) -> Iterator[Finding]:
    """Of the interface of `address`."""
    if interface is None:
        yield Finding(
            FAIL, "interface", f"no interface of this host has {address}", "correct the address, or `ip address add` it"
        )
        return
    name = interface.name
    yield judge(
        interface.up, "interface", f"{name} has {address}" + ("" if interface.up else ", but it is down"),
        f"ip link set {name} up; look at cable and switch port", FAIL,
    )  # fmt: skip
    yield judge(
        interface.mtu >= 1500,
        "MTU",
        f"{name} has {interface.mtu} bytes" + ("; 9000 would take fewer packets" if interface.mtu == 1500 else ""),
        f"ip link set {name} mtu 1500 (or 9000, if every switch and host takes it): small packets cost time",
    )
    yield from _offloads(name)


def _ethtool(sock: socket.socket, name: str, data: "array.array[int]") -> None:
    pointer, _ = data.buffer_info()
    fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP", name.encode(), pointer).ljust(40, b"\0"))


def features(name: str) -> dict[str, bool]:
    """The offloads of an interface, by the kernel's names, and whether they are on. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        count = array.array("B", struct.pack("=IIQI", _ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_FEATURES, 0))
        _ethtool(sock, name, count)
        (number,) = struct.unpack_from("=I", count, 16)
        strings = array.array(
            "B", struct.pack("=III", _ETHTOOL_GSTRINGS, _ETH_SS_FEATURES, number) + bytes(number * _NAME_BYTES)
        )
        _ethtool(sock, name, strings)
        blocks = (number + 31) // 32
        # Of each block of 32: available, requested, active, never changed.
        states = array.array("B", struct.pack("=II", _ETHTOOL_GFEATURES, blocks) + bytes(16 * blocks))
        _ethtool(sock, name, states)
    found: dict[str, bool] = {}
    for index in range(number):
        text = bytes(strings[12 + index * _NAME_BYTES : 12 + (index + 1) * _NAME_BYTES]).split(b"\0", 1)[0].decode()
        (active,) = struct.unpack_from("=I", states, 8 + 16 * (index // 32) + 8)
        found[text] = bool(active >> (index % 32) & 1)
    return found


def _offloads(name: str) -> Iterator[Finding]:
    try:
        known = features(name)
    except OSError as error:
        yield Finding(WARN, "offloads", f"those of {name} can't be read: {error.strerror}")
        return
    for offload, gain, short in _OFFLOADS:
        on = any(value for key, value in known.items() if key.startswith(offload))
        text = f"{name}: {offload} is {'on' if on else 'off'}"
        yield (
            Finding(OK, "offloads", text)
            if on
            else Finding(
                WARN,
                "offloads",
                f"{text}; with it {gain}, at less CPU time",
                f"ethtool -K {name} {short} on (where the interface can)",
            )
        )
