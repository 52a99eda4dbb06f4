# SPDX-License-Identifier: Apache-2.0
"""The members of the corpus: the programs here, and the project's own, set up by the controller's policy code."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from corpus import MAGIC, SOURCES, Program
from finsy import Action, Match, P4MulticastGroupEntry, P4Schema, P4TableEntry
from finsy.proto import p4r
from packet_bench import fabric_file, job_file
from packets import PORTS

from gradlane_controller.convergence import difference
from gradlane_controller.policy import desired_entities

NAME = "gradlane"
BUILD = Path(__file__).parents[2] / "p4src" / "build" / "v1model"
_MARKER_GROUP = (1 << 15) - 1
_MARKER_ADDRESS = "239.255.255.255"
_MARKER_IP = bytes.fromhex("450000280000000040fd00000aff0001efffffff")  # from 10.255.0.1, protocol 253


class ProjectProgram(Program):
    """p4src/v1model/gradlane.p4."""

    def __init__(self) -> None:
        super().__init__(NAME)

    @property
    def json_path(self) -> Path:
        return BUILD / f"{NAME}.json"

    @property
    def p4info_path(self) -> Path:
        return BUILD / f"{NAME}.p4info.txtpb"

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        # Frames of several classes may overtake one another, so there is one at a time. The values make many frames
        # gradients, of few messages, so that budgets are spent.
        return {
            "lockstep": True,
            "packets": 3000,
            "values": {
                "ethernet.ethertype": [0x0800],
                "ipv4.dst": [0x0A000102, 0x0A000202, 0x0A000302, 0x0A000402],
                "ipv4.ttl": [0, 1, 2, 64],
                "ipv4.dscp": [8, 46],
                "gradlane.token": [0x00112233445566FF],
                "gradlane.message": [1, 2, 3],
                "gradlane.step": [1],
                "gradlane.tensor": [1],
                "gradlane.source": [0, 1, 2],
                "gradlane.budget": [0, 5, 50],
                "gradlane.slices": [100],
                "gradlane.slice": [0, 99, 100],
            },
        }

    @cached_property
    def updates(self) -> list[p4r.Update]:
        jobs = (job_file(1), job_file(2, base=8192))
        schema: P4Schema = self.schema
        updates = list(difference(schema, [], desired_entities(fabric_file(), jobs)))
        for update in updates:
            if update.entity.HasField("meter_entry"):
                # Without a rate, colours depend on what came before, not on time.
                update.entity.meter_entry.config.cir = update.entity.meter_entry.config.pir = 0
        route = P4TableEntry(
            "routes",
            match=Match(destination=f"{_MARKER_ADDRESS}/32"),
            action=Action("replicate", group=_MARKER_GROUP),
        )
        for entity in (P4MulticastGroupEntry(_MARKER_GROUP, replicas=PORTS), route):
            updates.append(p4r.Update(type=p4r.Update.INSERT, entity=entity.encode(schema)))
        return updates

    def markers(self, number: int) -> list[bytes]:
        # One frame, multicast to every port: multicast passes no meter.
        return [bytes(12) + b"\x08\x00" + _MARKER_IP + MAGIC + number.to_bytes(4, "big")]


def names() -> list[str]:
    """The names of all members."""
    return [NAME, *sorted(path.stem for path in SOURCES.glob("*.p4"))]


def member(name: str) -> Program:
    """A member by name."""
    return ProjectProgram() if name == NAME else Program(name)
