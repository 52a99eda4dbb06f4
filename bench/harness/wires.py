# SPDX-License-Identifier: Apache-2.0
"""A gradlane-switch between hosts on veth links, in namespaces of their own: for measurements that take their time."""

from __future__ import annotations

import json
import os
import queue
import struct
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format

from bench.harness.netns import Namespaces, run
from bench.harness.worker import Worker
from gradlane_switch.management.admin_client import ask

HEADERS = 14 + 20 + 8
"""Bytes of a datagram's frame in front of its payload."""
_PIPELINE = Path(__file__).resolve().parents[2] / "p4src" / "build" / "v1model"
PROGRAM, P4INFO = _PIPELINE / "gradlane.json", _PIPELINE / "gradlane.p4info.txtpb"
_DSCP_CLASS = 5
_OWN_MAC = b"\x02\0\0\0\0\xff"


class Wires(Namespaces):
    """Links 1..n: `host-1` in the hosts' namespace to `switch-1` in the switch's, and so on. Raises WireError."""

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
        """Output of a command in a namespace. Raises WireError."""
        return run("ip", "netns", "exec", namespace, *command)

    def frames(self) -> dict[int, tuple[int, int]]:
        """By host, frames that the kernel has sent and received."""
        found: dict[int, tuple[int, int]] = {}
        for link in json.loads(run("ip", "-n", self.hosts, "-s", "-j", "link", "show")):
            name, stats = link["ifname"], link["stats64"]
            if name.startswith("host-"):
                found[int(name[5:])] = stats["tx"]["packets"], stats["rx"]["packets"]
        return found


def build_sender(folder: Path) -> Path:
    """The program that sends frames at a rate. Raises WireError."""
    program = folder / "switch_load"
    source = Path(__file__).parents[1] / "switch" / "switch_load.c"
    run("cc", "-O2", "-D_GNU_SOURCE", "-o", str(program), str(source))
    return program


def frame(destination: str, payload: int, dscp: int = 0) -> str:
    """A UDP datagram with so many bytes of payload, as a frame in hex."""
    length = 20 + 8 + payload
    address = bytes(map(int, destination.split(".")))
    header = struct.pack("!BBHHHBBH4s4s", 0x45, dscp << 2, length, 0, 0, 64, 17, 0, b"\x0a\0\xfe\2", address)
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", (total & 0xFFFF) + (total >> 16) ^ 0xFFFF) + header[12:]
    ethernet = bytes.fromhex("0200000000ff0200000000010800")
    return (ethernet + header + struct.pack("!HHHH", 9, 9, 8 + payload, 0) + bytes(payload)).hex()


class Running:
    """A switch process with the project's program; `ports` are settings of ports 1..n. Raises WireError."""

    def __init__(self, wires: Wires, folder: Path, *ports: str) -> None:
        self._admin, self.address = folder / "admin.sock", f"unix:{folder}/p4runtime.sock"
        command = ["ip", "netns", "exec", wires.switch, sys.executable, "-m", "gradlane_switch", "--seed", "1"]
        command += ["--program", str(PROGRAM), "--p4info", str(P4INFO), "--admin", str(self._admin)]
        command += ["--grpc-server-addr", self.address]
        for number, settings in enumerate(ports, 1):
            command += ["-i", f"{number}@switch-{number}" + (f",{settings}" if settings else "")]
        self._command = command
        self._stack = ExitStack()

    def __enter__(self) -> Running:
        with ExitStack() as stack:
            self.process = stack.enter_context(Worker("gradlane-switch", self._command, asked=False, logs=True))
            self.process.wait_for("ready device")
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, **request: Any) -> dict[str, Any]:
        """One request to the admin socket. Raises SwitchError."""
        return ask(self._admin, request)


class Client:
    """The primary controller of a switch. Raises grpc.RpcError."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self._stub: Any = p4r_grpc.P4RuntimeStub(self._channel)
        self._identity: dict[str, Any] = {"device_id": 1, "election_id": U128.encode(1)}
        self._requests: queue.Queue[Any] = queue.Queue()
        self._requests.put(p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(**self._identity)))
        self._stream: Any = self._stub.StreamChannel(iter(self._requests.get, None))
        next(self._stream)
        self.ids = program_ids()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._stream.cancel()
        self._channel.close()

    def write(self, kind: Any, entities: Iterable[Any]) -> None:
        """Updates of one kind, in a batch."""
        updates = [p4r.Update(type=kind, entity=entity) for entity in entities]
        self._stub.Write(p4r.WriteRequest(**self._identity, updates=updates), timeout=60)

    def read(self, entity: Any) -> list[Any]:
        """The entities that a request asks for."""
        answers = self._stub.Read(p4r.ReadRequest(device_id=1, entities=[entity]), timeout=60)
        return [item for answer in answers for item in answer.entities]

    def forward_to(self, ports: Iterable[int]) -> None:
        """Writes what routes refer to: the switch's own address, and a next hop at each port."""
        self.write(p4r.Update.INSERT, next_hops(self.ids, ports))

    def route(self, address: bytes, length: int, port: int) -> Any:
        """An entry that sends what is for a prefix through a port."""
        return route(self.ids, address, length, port)

    def dscp_class(self, dscp: int) -> Any:
        """An entry that puts packets of a DSCP in a queue above best effort."""
        match = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes([dscp])))
        return _entry(self.ids, "dscp_classes", match, "set_queue_class", bytes([_DSCP_CLASS]))


# Entries of the project's program


def program_ids() -> dict[str, int]:
    """P4Runtime ids by alias."""
    info = text_format.Parse(P4INFO.read_text(), p4i.P4Info())
    return {item.preamble.alias: item.preamble.id for item in [*info.tables, *info.actions, *info.counters]}


def next_hops(ids: dict[str, int], ports: Iterable[int]) -> list[Any]:
    """The switch's own MAC address, and for each port a group of that number, with the host there as its one member."""
    mine = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=_OWN_MAC))
    entities = [_entry(ids, "stations", mine, "route")]
    for port in ports:
        match = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes([port])))
        forward = _action(ids, "forward", bytes([port]), b"\x02\0\0\0\0" + bytes([port]), _OWN_MAC)
        entry = p4r.TableEntry(table_id=ids["next_hops"], match=[match])
        entry.action.action_profile_action_set.action_profile_actions.add(action=forward, weight=1)
        entities.append(p4r.Entity(table_entry=entry))
    return entities


def route(ids: dict[str, int], address: bytes, length: int, port: int) -> Any:
    """An entry that sends what is for a prefix to the next hop at a port."""
    match = p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=address, prefix_len=length))
    return _entry(ids, "ipv4_routes", match, "set_next_hop", bytes([port]))


def _entry(ids: dict[str, int], table: str, match: Any, action: str, *params: bytes) -> Any:
    entry = p4r.TableEntry(table_id=ids[table], match=[match])
    entry.action.action.CopyFrom(_action(ids, action, *params))
    return p4r.Entity(table_entry=entry)


def _action(ids: dict[str, int], name: str, *params: bytes) -> Any:
    action = p4r.Action(action_id=ids[name])
    for number, value in enumerate(params, 1):
        action.params.add(param_id=number, value=value)
    return action
