# SPDX-License-Identifier: Apache-2.0
"""Ports as flags describe them: their numbers, what they are connected to, and their settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from gradlane.units import parse_rate, parse_size
from gradlane_switch.errors import PortError

MAX_PORT = 510
"""511 is v1model's drop port."""
ETHERNET = 14
"""Bytes of an Ethernet header, without a VLAN tag."""
QUEUES = 8
DEFAULT_COALESCE = 50_000
"""Least time in ns from one round of forwarding to the next."""
LONGEST_TIME = 10**18
"""ns, some 30 years."""
_MOST_WEIGHT = 1000

_TIME_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9}


@dataclass(frozen=True)
class BurstLoss:
    """Losses in bursts (Gilbert and Elliott), as probabilities.

    Per packet: to go from the good state to the bad one (`enter`) and back (`leave`), and to be lost in each.
    """

    enter: float = 0.0
    leave: float = 0.0
    bad: float = 1.0
    good: float = 0.0


@dataclass(frozen=True)
class Impairment:
    """What one direction of a link does to packets. Probabilities 0..1, times in ns.

    `reorder` is the share of packets that are held back by `reorder_delay` more, so that later ones overtake them;
    `jitter` adds a time drawn uniformly from [0, jitter) to each packet's delay; `corrupt` is the share of packets that
    get one wrong bit.
    """

    loss: float = 0.0
    burst_loss: BurstLoss = field(default_factory=BurstLoss)
    delay: int = 0
    jitter: int = 0
    reorder: float = 0.0
    reorder_delay: int = 1_000_000
    duplicate: float = 0.0
    corrupt: float = 0.0


@dataclass(frozen=True)
class PortConfig:
    """What can change while the switch runs. All but `rx` applies to packets towards the host.

    `rate` is in bit/s (0: no limit), `buffer` in bytes that the port's queues share. `ecn` is the length of a queue in
    bytes above which ECN-capable packets get CE (0: never). `weights` are those of deficit round robin, queue 0 first;
    without any, the queues have strict priority, 7 first. A port that is not `up` drops packets in both directions.
    """

    rate: int = 0
    buffer: int = 128_000
    ecn: int = 0
    weights: tuple[int, ...] = ()
    up: bool = True
    tx: Impairment = field(default_factory=Impairment)
    rx: Impairment = field(default_factory=Impairment)


@dataclass(frozen=True)
class PortSpec:
    """A port: its number in the P4 program, what it is connected to, its settings.

    `interface` is the name of a network interface, or tap:NAME, udp:LOCAL:PORT-PEER:PORT or pcap:IN,OUT. Only the
    latter two have an `mtu` (bytes) of their own; interfaces have theirs.
    """

    number: int
    interface: str
    config: PortConfig
    mtu: int | None = None


def parse_time(text: str) -> int:
    """Nanoseconds of e.g. "1ms" or "50us". Raises ValueError that names the text and the accepted forms."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ns|us|ms|s)\s*", text)
    if match is None:
        raise ValueError(f"{text!r} is not a time: write a number and one of {', '.join(_TIME_UNITS)}, e.g. '1ms'")
    value = float(match[1]) * _TIME_UNITS[match[2]]
    if value > LONGEST_TIME:
        raise ValueError(f"{text!r} is too long: the longest time is {LONGEST_TIME // 10**9}s")
    return round(value)


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


def _parse_burst_loss(text: str) -> BurstLoss:
    if text == "0":
        return BurstLoss()
    parts = text.split(":")
    if not 2 <= len(parts) <= 4:
        raise ValueError(
            f"{text!r} is not a burst loss: write ENTER:LEAVE[:LOSS-IN-BAD[:LOSS-IN-GOOD]], e.g. '0.01:0.3', or 0"
        )
    return BurstLoss(*(parse_share(part) for part in parts))


def _parse_weights(text: str) -> tuple[int, ...]:
    if text == "strict":
        return ()
    weights = tuple(int(part) if part.isdecimal() else 0 for part in text.split(":"))
    if len(weights) != QUEUES or not all(0 < weight <= _MOST_WEIGHT for weight in weights):
        raise ValueError(
            f"{text!r} is not a list of weights: write {QUEUES} numbers from 1 to {_MOST_WEIGHT}, queue 0 first, "
            "e.g. '1:1:1:1:2:2:4:8', or strict"
        )
    return weights


def _parse_flag(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(f"{text!r} is neither yes nor no")
    return text == "yes"


def _parse_threshold(text: str) -> int:
    return 0 if text == "off" else parse_size(text)


_PORT_PARSERS: dict[str, Callable[[str], Any]] = {
    "rate": _parse_limit,
    "buffer": parse_size,
    "ecn": _parse_threshold,
    "weights": _parse_weights,
    "up": _parse_flag,
}

_LINK_PARSERS: dict[str, Callable[[str], Any]] = {
    "loss": parse_share,
    "burst_loss": _parse_burst_loss,
    "delay": parse_time,
    "jitter": parse_time,
    "reorder": parse_share,
    "reorder_delay": parse_time,
    "duplicate": parse_share,
    "corrupt": parse_share,
}


def changed(config: PortConfig, key: str, value: str) -> PortConfig:
    """The settings with one changed: a port's, or an impairment of what it sends, or with `rx-` of what it receives.

    Raises ValueError naming the key or the value.
    """
    if key in _PORT_PARSERS:
        return replace(config, **{key: _PORT_PARSERS[key](value)})
    direction, name = ("rx", key[3:]) if key.startswith("rx-") else ("tx", key)
    name = name.replace("-", "_")
    if name not in _LINK_PARSERS:
        names = [item.name.replace("_", "-") for item in fields(Impairment)]
        raise ValueError(
            f"{key!r} is not a port setting: use {', '.join([*_PORT_PARSERS, *names])} or rx-{names[0]} ..."
        )
    impairment = replace(getattr(config, direction), **{name: _LINK_PARSERS[name](value)})
    return replace(config, **{direction: impairment})


def parse_port(text: str) -> PortSpec:
    """A port as the command line has it: NUMBER@INTERFACE[,KEY=VALUE...]. Raises PortError naming what is wrong."""
    head, *settings = text.split(",")
    number, at, interface = head.partition("@")
    if not at or not number.isdecimal() or not interface:
        raise PortError(f"{text!r} is not a port: write NUMBER@INTERFACE, e.g. 1@s1-eth1,rate=100mbit,buffer=64kB")
    if int(number) > MAX_PORT:
        raise PortError(f"{text!r}: port numbers go from 0 to {MAX_PORT} (v1model drops by {MAX_PORT + 1})")
    if interface.startswith("pcap:") and settings and "=" not in settings[0]:
        interface += f",{settings.pop(0)}"
    spec = PortSpec(int(number), interface, PortConfig())
    for setting in settings:
        key, equals, value = setting.partition("=")
        try:
            if not equals:
                raise ValueError(f"{setting!r} has no value: write KEY=VALUE")
            if key == "mtu":
                spec = replace(spec, mtu=_parse_mtu(interface, value))
            else:
                spec = replace(spec, config=changed(spec.config, key, value))
        except ValueError as error:
            raise PortError(f"port {head}: {error}") from None
    return spec


def _parse_mtu(interface: str, text: str) -> int:
    if not interface.startswith(("udp:", "pcap:")):
        raise ValueError(f"mtu={text}: an interface has its own, see `ip link set {interface} mtu`")
    return parse_mtu(text)


def parse_mtu(text: str) -> int:
    """Bytes of an MTU. Raises ValueError that names the text and the bounds."""
    if not text.isdecimal() or not 68 <= int(text) <= 65_000:
        raise ValueError(f"{text!r} is not an MTU: write bytes from 68 to 65000")
    return int(text)


def check_buffer(spec: PortSpec, config: PortConfig, mtu: int) -> None:
    """Raises PortError if the buffer can't hold one frame."""
    if config.buffer < mtu + ETHERNET:
        raise PortError(
            f"port {spec.number}: buffer={config.buffer} is less than one frame of {spec.interface} "
            f"({mtu + ETHERNET} bytes)"
        )
