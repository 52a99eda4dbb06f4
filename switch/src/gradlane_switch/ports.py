# SPDX-License-Identifier: Apache-2.0
"""Ports as flags describe them, and the packet sockets behind them."""

from __future__ import annotations

import fcntl
import re
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gradlane.units import parse_rate, parse_size
from gradlane_switch.errors import PortError

MAX_PORT = 510
"""511 is v1model's drop port."""
_ETHERNET = 14

_SIOCGIFMTU = 0x8921
_ETH_P_ALL = 3
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP, _PACKET_MR_PROMISC = 1, 1
_PACKET_AUXDATA, _PACKET_QDISC_BYPASS, _PACKET_IGNORE_OUTGOING = 8, 20, 23
_SO_TIMESTAMPNS = 35
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SOCKET_BUFFER = 8 << 20

_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


@dataclass(frozen=True)
class Impairment:
    """What one direction of a link does to packets. Probabilities 0..1, times in ns.

    `reorder` is the share of packets that are held back by `reorder_delay` more, so that later ones overtake them;
    `jitter` adds a time drawn uniformly from [0, jitter) to each packet's delay.
    """

    loss: float = 0.0
    delay: int = 0
    jitter: int = 0
    reorder: float = 0.0
    reorder_delay: int = 1_000_000


@dataclass(frozen=True)
class PortConfig:
    """What can change while the switch runs. `rate` (bit/s, 0: no limit) and `buffer` (bytes) are towards the host."""

    rate: int = 0
    buffer: int = 128_000
    tx: Impairment = field(default_factory=Impairment)
    rx: Impairment = field(default_factory=Impairment)


@dataclass(frozen=True)
class PortSpec:
    """A port: its number in the P4 program, its interface, its settings."""

    number: int
    interface: str
    config: PortConfig


def parse_time(text: str) -> int:
    """Nanoseconds of e.g. "1ms" or "50us". Raises ValueError that names the text and the accepted forms."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time: write a number and one of {', '.join(_TIME_UNITS)}, e.g. '1ms'")
    return round(float(match[1]) * _TIME_UNITS[match[2]])


def parse_share(text: str) -> float:
    """A probability of e.g. "0.01". Raises ValueError that names the text."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a probability: write a number from 0 to 1, e.g. '0.01'")
    return value


def _parse_limit(text: str) -> int:
    return 0 if text == "unlimited" else parse_rate(text)


_PARSERS: dict[str, Callable[[str], Any]] = {
    "loss": parse_share,
    "delay": parse_time,
    "jitter": parse_time,
    "reorder": parse_share,
    "reorder_delay": parse_time,
}


def changed(config: PortConfig, key: str, value: str) -> PortConfig:
    """The settings with one changed: rate, buffer, or an impairment, `rx-` in front if it is of what the host sends.

    Raises ValueError naming the key or the value.
    """
    if key == "rate":
        return replace(config, rate=_parse_limit(value))
    if key == "buffer":
        return replace(config, buffer=parse_size(value))
    direction, name = ("rx", key[3:]) if key.startswith("rx-") else ("tx", key)
    name = name.replace("-", "_")
    if name not in _PARSERS:
        names = [item.name.replace("_", "-") for item in fields(Impairment)]
        raise ValueError(f"{key!r} is not a port setting: use rate, buffer, {', '.join(names)} or rx-{names[0]} ...")
    impairment = replace(getattr(config, direction), **{name: _PARSERS[name](value)})
    return replace(config, **{direction: impairment})


def parse_port(text: str) -> PortSpec:
    """A port as the command line has it: NUMBER@INTERFACE[,KEY=VALUE...]. Raises PortError naming what is wrong."""
    head, *settings = text.split(",")
    number, at, interface = head.partition("@")
    if not at or not number.isdecimal() or not interface:
        raise PortError(f"{text!r} is not a port: write NUMBER@INTERFACE, e.g. 1@s1-eth1,rate=100mbit,buffer=64kB")
    if not 0 < int(number) <= MAX_PORT:
        raise PortError(f"{text!r}: port numbers go from 1 to {MAX_PORT}")
    config = PortConfig()
    for setting in settings:
        key, equals, value = setting.partition("=")
        try:
            if not equals:
                raise ValueError(f"{setting!r} has no value: write KEY=VALUE")
            config = changed(config, key, value)
        except ValueError as error:
            raise PortError(f"port {head}: {error}") from None
    return PortSpec(int(number), interface, config)


def check_buffer(spec: PortSpec, config: PortConfig, mtu: int) -> None:
    """Raises PortError if the buffer can't hold one frame."""
    if config.buffer < mtu + _ETHERNET:
        raise PortError(
            f"port {spec.number}: buffer={config.buffer} is less than one frame of {spec.interface} "
            f"({mtu + _ETHERNET} bytes)"
        )


def _index(interface: str) -> int:
    try:
        return socket.if_nametoindex(interface)
    except OSError:
        raise PortError(f"{interface}: no such interface") from None


def open_socket(interface: str) -> tuple[socket.socket, int]:
    """A packet socket on an interface, promiscuous, and the interface's MTU. Raises PortError naming the interface."""
    try:
        opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    except PermissionError:
        raise PortError(f"{interface}: packet sockets need root or CAP_NET_RAW") from None
    try:
        index = _index(interface)
        request = fcntl.ioctl(opened, _SIOCGIFMTU, struct.pack("16sI12x", interface.encode(), 0))
        mtu = struct.unpack("16sI12x", request)[1]
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        opened.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
        opened.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _SOCKET_BUFFER)
        opened.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SOCKET_BUFFER)
        membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
        opened.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
        opened.bind((interface, _ETH_P_ALL))
    except OSError as error:
        opened.close()
        raise PortError(f"{interface}: {error.strerror or error}") from None
    except PortError:
        opened.close()
        raise
    return opened, mtu
