# SPDX-License-Identifier: Apache-2.0
"""The programs here as p4c compiled them: do it anew with `python -m tests.gradlane_switch.compiled_programs`."""

import subprocess
from typing import Any

from finsy.proto import p4r

from gradlane_switch import Switch
from tests.support.paths import SWITCH_PROGRAMS


def load(name: str) -> Switch:
    return Switch.load(SWITCH_PROGRAMS / f"{name}.json", SWITCH_PROGRAMS / f"{name}.p4info.txtpb")


def wrapped(program: bytes) -> bytes:
    """A p4.tmp.P4DeviceConfig: reassign (1) = true, extras (2) = {}, device_data (3) = the program."""
    length = bytes([len(program) & 0x7F | 0x80, len(program) >> 7 & 0x7F | 0x80, len(program) >> 14])
    return b"\x08\x01\x12\x00\x1a" + length + program


def ids(switch: Switch) -> dict[str, int]:
    """P4Runtime ids by alias."""
    info = switch.pipeline.info
    parts = (info.tables, info.actions, info.action_profiles, info.digests, info.direct_meters)
    return {item.preamble.alias: item.preamble.id for part in parts for item in part}


def modify(switch: Switch, entity: Any) -> None:
    switch.write(p4r.Update(type=p4r.Update.MODIFY, entity=entity))


def delete(switch: Switch, entity: Any) -> None:
    switch.write(p4r.Update(type=p4r.Update.DELETE, entity=entity))


def session(number: int, replicas: list[tuple[int, int]], length: int = 0, priority: int = 0) -> Any:
    """A clone session: (port, instance) of each copy."""
    entity = p4r.Entity()
    entry = entity.packet_replication_engine_entry.clone_session_entry
    entry.session_id, entry.packet_length_bytes, entry.class_of_service = number, length, priority
    for port, instance in replicas:
        entry.replicas.add(port=bytes([port]), instance=instance)
    return entity


def group(number: int, replicas: list[tuple[int, int]]) -> Any:
    """A multicast group: (port, instance) of each copy."""
    entity = p4r.Entity()
    entry = entity.packet_replication_engine_entry.multicast_group_entry
    entry.multicast_group_id = number
    for port, instance in replicas:
        entry.replicas.add(port=bytes([port]), instance=instance)
    return entity


if __name__ == "__main__":
    for source in sorted(SWITCH_PROGRAMS.glob("*.p4")):
        outputs = ["-o", f"{source.stem}.json", "--p4runtime-files", f"{source.stem}.p4info.txtpb"]
        subprocess.run(["p4c-bm2-ss", "--arch", "v1model", *outputs, source.name], cwd=SWITCH_PROGRAMS, check=True)
