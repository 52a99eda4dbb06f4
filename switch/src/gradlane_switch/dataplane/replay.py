# SPDX-License-Identifier: Apache-2.0
"""A program with ports in memory: packets with times in, packets with times out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradlane_switch.dataplane import pcap
from gradlane_switch.dataplane.forwarding import DataPlane
from gradlane_switch.dataplane.port_config import parse_port
from gradlane_switch.state.pipeline import Pipeline

TimedFrame = tuple[int, int, bytes]
"""Time in ns, port, frame."""


@dataclass(frozen=True)
class Replay:
    """What left, in order of time, and each port's settings and counts, as the admin socket shows them."""

    sent: list[TimedFrame]
    ports: dict[int, dict[str, Any]]


def replay(pipeline: Pipeline, packets: Iterable[TimedFrame], ports: Mapping[int, str], seed: int) -> Replay:
    """Forwards frames that enter ports at times, until all have left. Raises PortError.

    ports: by number, their settings as the command line has them
    """
    with ExitStack() as stack:
        files: dict[int, Path] = {}
        for number in ports:
            descriptor = os.memfd_create(f"port {number}")
            stack.callback(os.close, descriptor)
            files[number] = Path(f"/proc/self/fd/{descriptor}")
        specs = [
            parse_port(",".join([f"{number}@pcap:", str(files[number]), *([text] if text else [])]))
            for number, text in ports.items()
        ]
        dataplane = DataPlane(pipeline.state.lock, specs, seed)
        try:
            dataplane.install(pipeline)
            dataplane.feed(sorted(packets, key=lambda item: item[0]))
            counts = {item["port"]: item for item in dataplane.statistics()}
        finally:
            dataplane.stop()
        sent = [(time, number, frame) for number, path in files.items() for time, frame in pcap.frames(path)]
    return Replay(sorted(sent, key=lambda item: item[:2]), counts)
