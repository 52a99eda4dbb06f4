# SPDX-License-Identifier: Apache-2.0
"""How an interface must be: MTU, offloads, queueing disciplines. Set up in one go, then read back and compared."""

import json
import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from lab.model.errors import FabricError

MTU = 1500
_FRAME = 1514
_QUEUE_CLASSES = 8
_GRADIENT_PORT = 47400  # GRADLANE_UDP_PORT of p4src/shared/types.p4
_LEAST_RATE = 8000  # bit/s that a class of HTB has as its own: as little as can be
_PARENT, _FIRST_LEAF = 0x100, 0x8  # of HTB's classes; queue class q is _FIRST_LEAF + q
_LONG_NAMES = {
    "rx": "rx-checksumming",
    "tx": "tx-checksumming",
    "sg": "scatter-gather",
    "tso": "tcp-segmentation-offload",
    "gso": "generic-segmentation-offload",
    "gro": "generic-receive-offload",
}
# A switch's port takes and gives frames as they are: no checksum left to hardware, no segment above the MTU.
PORT_OFFLOADS: Mapping[str, bool] = dict.fromkeys(_LONG_NAMES, False)


@dataclass(frozen=True)
class Qdisc:
    """A queueing discipline that must be there: `options` are those that tc tells of it."""

    kind: str
    parent: str  # "root", or the class or hook
    options: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Shape:
    """What tc has to do for an interface, and what must then be there. `classes`: HTB's, with their ceilings."""

    commands: tuple[str, ...] = ()  # of tc's batch mode, with "IF" for the interface
    qdiscs: tuple[Qdisc, ...] = ()
    classes: Mapping[str, int] = field(default_factory=dict[str, int])

    def __add__(self, other: "Shape") -> "Shape":
        return Shape(self.commands + other.commands, self.qdiscs + other.qdiscs, {**self.classes, **other.classes})


def _burst(rate: int) -> int:
    """Half a millisecond, and at least two frames: deep enough for a late timer, shallow for a buffer."""
    return max(2 * _FRAME, rate // 8 // 2000)


def token_bucket(rate: int, limit: int) -> Shape:
    """A rate limit of `rate` bit/s with one FIFO of `limit` bytes: what a host's network card does."""
    burst = _burst(rate)
    command = f"qdisc add dev IF root tbf rate {rate}bit burst {burst}b limit {limit + burst}b"
    return Shape((command,), (Qdisc("tbf", "root", {"rate": rate // 8, "limit": limit + burst}),))


def priority_port(rate: int, buffer: int, dscp_classes: Mapping[int, int]) -> Shape:
    """A switch port of `rate` bit/s with eight queues of `buffer` bytes, the higher class always first.

    For a switch that has queues but no link rate behind them (BMv2): what it sends is sorted here once more, into the
    class that the P4 program gave it, which is in the upper bits of a gradient's DSCP, and for ordinary traffic what
    `dscp_classes` say of its DSCP. HTB serves classes that exceed their own rate, here next to none, by priority.
    """
    burst = _burst(rate)
    commands = [
        f"qdisc add dev IF root handle 1: htb default {_FIRST_LEAF:x}",
        f"class add dev IF parent 1: classid 1:{_PARENT:x} htb rate {rate}bit burst {burst}b cburst {burst}b"
        f" quantum {_FRAME}",
    ]
    qdiscs, classes = [Qdisc("htb", "root", {"default": _FIRST_LEAF})], {f"1:{_PARENT:x}": rate}
    for queue in range(_QUEUE_CLASSES):
        leaf = f"1:{_FIRST_LEAF + queue:x}"
        commands += [
            f"class add dev IF parent 1:{_PARENT:x} classid {leaf} htb rate {_LEAST_RATE}bit ceil {rate}bit"
            f" burst {_FRAME}b cburst {burst}b prio {_QUEUE_CLASSES - 1 - queue} quantum {_FRAME}",
            f"qdisc add dev IF parent {leaf} bfifo limit {buffer}",
        ]
        qdiscs.append(Qdisc("bfifo", leaf, {"limit": buffer}))
        classes[leaf] = rate
        if queue:
            commands += _filters(f"{queue << 5:#x} 0xe0", leaf, 1, _GRADIENT_PORT)
    for dscp, queue in dscp_classes.items():
        commands += _filters(f"{dscp << 2:#x} 0xfc", f"1:{_FIRST_LEAF + queue:x}", 3)
    return Shape(tuple(commands), tuple(qdiscs), classes)


def _filters(traffic_class: str, leaf: str, order: int, udp_port: int | None = None) -> list[str]:
    """Filters for IPv4 and IPv6 (one protocol has one `order`) by the byte of DSCP and ECN."""
    commands: list[str] = []
    for offset, (protocol, selector, key) in enumerate((("ip", "ip", "dsfield"), ("ipv6", "ip6", "priority"))):
        port = f" match {selector} protocol 17 0xff match {selector} dport {udp_port} 0xffff" if udp_port else ""
        commands.append(
            f"filter add dev IF parent 1: protocol {protocol} prio {order + offset} u32"
            f" match {selector} {key} {traffic_class}{port} flowid {leaf}"
        )
    return commands


def lossy(probability: float) -> Shape:
    """Frames of either direction vanish by chance; neither the sender nor the receiver learns of it.

    Without the netem qdisc, by a filter of classic BPF on a host's own interface, where frames pass before any switch
    has seen them, or after: load a random number; if it is below the threshold the frame is "stolen" (TC_ACT_STOLEN,
    which a sender takes for sent), else it passes.
    """
    threshold = math.floor(probability * 2**32)
    random_number = 2**32 - 4096 + 56  # SKF_AD_OFF + SKF_AD_RANDOM of linux/filter.h
    code = f"4,32 0 0 {random_number},53 1 0 {threshold},6 0 0 4,6 0 0 0"
    commands = ["qdisc add dev IF clsact"]
    commands += [
        f"filter add dev IF {hook} protocol all prio 1 bpf direct-action bytecode '{code}'"
        for hook in ("ingress", "egress")
    ]
    return Shape(tuple(commands), (Qdisc("clsact", "ffff:fff1"),))


@dataclass(frozen=True)
class Interface:
    """One interface and how it must be. `inside`: the command line that enters its namespace."""

    name: str
    offloads: Mapping[str, bool]
    shape: Shape
    inside: tuple[str, ...] = ()

    def set_up(self, before: Sequence[str] = (), after: Sequence[str] = ()) -> None:
        """Sets it up, with these shell commands before and after it comes up, and checks it. Raises FabricError."""
        offloads = " ".join(f"{name} {'on' if on else 'off'}" for name, on in self.offloads.items())
        lines = [
            *before,
            f"ip link set dev {self.name} down mtu {MTU}",
            f"path=/proc/sys/net/ipv6/conf/{self.name}/disable_ipv6; if [ -e $path ]; then echo 1 > $path; fi",
            f"ethtool -K {self.name} {offloads}",
            f"ip link set dev {self.name} up",
            *after,
        ]
        self._run(["sh", "-ec", "\n".join(lines)])
        if self.shape.commands:
            batch = "\n".join(command.replace(" IF ", f" {self.name} ") for command in self.shape.commands)
            self._run(["tc", "-batch", "-"], batch)
        self.check()

    def check(self) -> None:
        """Compares the interface with what was asked for. Raises FabricError that names the first difference."""
        link = self._read(["ip", "-json", "link", "show", "dev", self.name])[0]
        if link["mtu"] != MTU or "UP" not in link["flags"]:
            raise FabricError(
                f"{self.name} has MTU {link['mtu']} and flags {','.join(link['flags'])}; not {MTU} and UP"
            )
        features = self._read(["ethtool", "--json", "-k", self.name])[0]
        for name, wanted in self.offloads.items():
            feature = features.get(_LONG_NAMES.get(name, name))
            if feature is None or feature["active"] != wanted:
                state = "missing" if feature is None else "on" if feature["active"] else "off"
                raise FabricError(
                    f"offload {name} of {self.name} is {state}; {'on' if wanted else 'off'} was asked for"
                )
        self._check_qdiscs()
        self._check_classes()

    def _check_qdiscs(self) -> None:
        found = self._read(["tc", "-json", "-raw", "qdisc", "show", "dev", self.name])
        for qdisc in self.shape.qdiscs:
            there = [
                it
                for it in found
                if it["kind"] == qdisc.kind and qdisc.parent == ("root" if it.get("root") else it["parent"])
            ]
            where = f"{qdisc.kind} at {qdisc.parent} of {self.name}"
            if not there:
                kinds = ", ".join(f"{it['kind']} at {'root' if it.get('root') else it['parent']}" for it in found)
                raise FabricError(f"qdisc {where} is not there, only {kinds or 'none'}")
            for option, wanted in qdisc.options.items():
                has = there[0]["options"].get(option)
                if (int(has, 0) if isinstance(has, str) else has) != wanted:
                    raise FabricError(f"qdisc {where} has {option} {has}; {wanted} was asked for")

    def _check_classes(self) -> None:
        """By their text: this tc has no JSON for classes of HTB."""
        if not self.shape.classes:
            return
        text = self._run(["tc", "class", "show", "dev", self.name])
        found = {line[1]: line[2] for line in re.finditer(r"class htb (\S+) .*? ceil (\S+)", text)}
        for name, wanted in self.shape.classes.items():
            ceiling = _bits(found.get(name, "0bit"))
            if not math.isclose(ceiling, wanted, rel_tol=0.001):
                raise FabricError(
                    f"class {name} of {self.name} has a ceiling of {ceiling} bit/s; {wanted} was asked for"
                )

    def _read(self, argv: Sequence[str]) -> list[dict[str, Any]]:
        text = self._run(argv)
        try:
            return cast(list[dict[str, Any]], json.loads(text))
        except ValueError:
            raise FabricError(f"{' '.join(argv)} wrote no JSON: {text[:100]!r}") from None

    def _run(self, argv: Sequence[str], text: str = "") -> str:
        done = subprocess.run([*self.inside, *argv], input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            said = " ".join((done.stderr or done.stdout).split()) or f"exit status {done.returncode}"
            line = re.search(r"Command failed -:(\d+)", said)  # of tc's batch
            what = f" (tc {text.splitlines()[int(line[1]) - 1]})" if line else ""
            raise FabricError(f"{self.name} can't be set up: {said}{what}")
        return done.stdout


def _bits(text: str) -> int:
    """A rate as tc writes it, e.g. "100Mbit", in bit/s."""
    match = re.fullmatch(r"([0-9.]+)([KMG]?)bit", text)
    if match is None:
        raise FabricError(f"tc tells a rate as {text!r}, which is not understood")
    return round(float(match[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[match[2]])
