# SPDX-License-Identifier: Apache-2.0
"""Checks of the interface that has the agent's address: state, MTU, offloads."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gradlane.doctor import ethtool, placement
from gradlane.doctor.card import System
from gradlane.doctor.findings import FAIL, OK, WARN, Finding, judge
from gradlane.errors import GradlaneError
from gradlane.job import MAX_PACKET
from gradlane.toml_file import Address

_USUAL_MTU = 1500
# What the agent gains by, and how ethtool calls it where its short name differs.
_OFFLOADS = (
    ("tx-udp-segmentation", "the interface splits what the agent sends at once", "tx-udp-segmentation"),
    ("rx-gro", "arrivals reach the agent many at once", "gro"),
    ("tx-checksum", "the interface computes checksums", "tx"),
)


@dataclass(frozen=True)
class Interface:
    """A network interface, and its MTU in bytes; `most`: the largest that it can have."""

    name: str
    mtu: int
    up: bool
    most: int


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
    for link in ip("-details", "address"):
        for entry in link.get("addr_info", []):
            if entry.get("local") == str(address) or (address.is_loopback and link["ifname"] == "lo"):
                mtu = int(link["mtu"])
                up = "UP" in link["flags"] and link["operstate"] != "DOWN"
                return Interface(link["ifname"], mtu, up, int(link.get("max_mtu") or mtu))
    return None


def checks(address: Address, interface: Interface | None, pid: int | None, system: System) -> Iterator[Finding]:
    """Of the interface of `address`, and of what is behind it. `pid`: the agent's, if it runs."""
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
    yield _mtu(interface, bool(system.cards(name)))
    yield from _offloads(name)
    yield from placement.checks(name, pid, system)


def _mtu(interface: Interface, card: bool) -> Finding:
    """`card`: it has hardware of its own, so its MTU is chosen here, and not by what it runs on."""
    name, mtu = interface.name, interface.mtu
    if mtu < _USUAL_MTU:
        fix = f"ip link set {name} mtu 1500 (or 9000, if every switch and host takes it)"
        return Finding(WARN, "MTU", f"{name} has {mtu} bytes; small packets cost time", fix)
    if mtu >= MAX_PACKET:
        return Finding(OK, "MTU", f"{name} has {mtu} bytes")
    text = f"{name} has {mtu} bytes; {MAX_PACKET} would take fewer packets"
    if not card or interface.most < MAX_PACKET:
        return Finding(OK, "MTU", text)
    fix = f"where every switch and host takes it: ip link set {name} mtu {MAX_PACKET}, at all hosts of a job"
    return Finding(WARN, "MTU", f"{text}, at less CPU time, and it can have them", fix)


def _offloads(name: str) -> Iterator[Finding]:
    try:
        known = ethtool.features(name)
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
