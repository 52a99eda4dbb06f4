# SPDX-License-Identifier: Apache-2.0
"""Ports that are files: packets with times in, packets with times out, on a clock of their own.

The program sends a frame to the port that its first byte names, in the queue that its second byte names; a port of 0
is dropped.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradlane_switch.dataplane import pcap
from gradlane_switch.dataplane.forwarding import DataPlane
from gradlane_switch.dataplane.port_config import parse_port
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.small_programs import action, assign, const, expression, field, p4info, program, table

SECOND = 10**9
EPOCH = 1_700_000_000 * SECOND

Packet = tuple[int, bytes]  # time in ns, frame


def steering() -> dict[str, Any]:
    """The program as BMv2 JSON."""
    spec = field("standard_metadata", "egress_spec")
    dropped = expression("?", const(511), field("h", "port"), expression("==", field("h", "port"), const(0))["value"])
    run = action(
        0, "run", [], assign(spec, dropped), assign(field("standard_metadata", "priority"), field("h", "class"))
    )
    return program([("port", 8), ("class", 8)], [run], [table(0, "t", [], [run], run)])


def steering_pipeline(lock: Lock) -> Pipeline:
    """The program, ready to run."""
    document = steering()
    return Pipeline(json.dumps(document).encode(), p4info(document), lock)


def frame(port: int, queue: int, size: int, number: int = 0) -> bytes:
    """A numbered frame of `size` bytes to a port and queue."""
    return struct.pack("!BB12xI", port, queue, number).ljust(size, b"\0")


def number(data: bytes) -> int:
    """The number of a frame."""
    return struct.unpack_from("!I", data, 14)[0]


def write_pcap(path: Path, packets: list[Packet]) -> None:
    """A file with packets at times from EPOCH on."""
    with path.open("wb") as file:
        file.write(pcap.HEADER)
        for time, data in packets:
            seconds, rest = divmod(EPOCH + time, SECOND)
            file.write(struct.pack("=IIII", seconds, rest, len(data), len(data)) + data)


@dataclass
class Replay:
    """What came of it: packets by port, with times as those put in, and statistics by port."""

    out: dict[int, list[Packet]]
    ports: dict[int, dict[str, Any]]


def replay(folder: Path, packets: list[Packet], *settings: str, seed: int = 0) -> Replay:
    """Packets come in at port 1; ports 2, 3 ... have the settings. The first packet is at time 0."""
    folder.mkdir(exist_ok=True)
    write_pcap(folder / "in.pcap", packets)
    ports = [f"1@pcap:{folder}/in.pcap"]
    ports += [f"{n}@pcap:,{folder}/{n}.pcap{text and ','}{text}" for n, text in enumerate(settings, 2)]
    lock = Lock()
    dataplane = DataPlane(lock, [parse_port(text) for text in ports], seed)
    try:
        dataplane.install(steering_pipeline(lock))
        dataplane.replay()
        statistics = {item["port"]: item for item in dataplane.statistics()}
    finally:
        dataplane.stop()
    out = {
        n: [(time - EPOCH, data) for time, data in pcap.frames(folder / f"{n}.pcap")]
        for n in range(2, 2 + len(settings))
    }
    return Replay(out, statistics)


def drops(port: dict[str, Any], unit: str = "packets") -> int:
    """Everything that a port dropped, by any reason."""
    queues = sum(queue[reason][unit] for queue in port["queues"] for reason in ("tail_dropped", "flushed"))
    links = sum(port[link]["lost"][unit] for link in ("tx_link", "rx_link"))
    return queues + links + sum(drop[unit] for drop in port["drops"].values())


def made(port: dict[str, Any], unit: str = "packets") -> int:
    """Everything that came into being at a port, less what ended when its copies had left."""
    twins = sum(port[link]["duplicated"][unit] for link in ("tx_link", "rx_link"))
    return port["rx"][unit] + twins + port["copies"][unit] - port["replaced"][unit]


def queue_balance(port: dict[str, Any]) -> int:
    """Packets that its queues took, less what has become of them: 0 if none is unaccounted for."""
    ends = ("pushed_out", "flushed", "ended")
    taken = sum(
        queue["enqueued"]["packets"] - queue["depth_packets"] - sum(queue[end]["packets"] for end in ends)
        for queue in port["queues"]
    )
    link = port["tx_link"]
    sent = port["tx"]["packets"] + link["lost"]["packets"] + link["in_flight"] - link["duplicated"]["packets"]
    return taken - sent


def waiting(port: dict[str, Any]) -> int:
    """Packets in queues and on links."""
    queued = sum(queue["depth_packets"] for queue in port["queues"])
    return queued + port["tx_link"]["in_flight"] + port["rx_link"]["in_flight"]


def balance(ports: list[dict[str, Any]]) -> int:
    """In, less out, drops and what waits, over all ports: 0 if no packet is unaccounted for."""
    return sum(made(port) - port["tx"]["packets"] - drops(port) - waiting(port) for port in ports)
