# SPDX-License-Identifier: Apache-2.0
"""What switches hold, as a P4Runtime client of the run's own reads it, and what they have to hold for jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import grpc
from finsy import P4Schema, P4TableAction, P4TableEntry
from finsy.p4entity import decode_entity
from finsy.proto import p4r, p4r_grpc

from gradlane.job import Job
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.policy import Numbers, desired_entities

Key = tuple[Any, ...]
State = Mapping[Key, bytes]
"""What a switch holds: by what makes an entity unique, the rest of it."""

ANSWER_SECONDS = 20.0


class Reader:
    """Reads a switch, past all relays."""

    def __init__(self, schema: P4Schema, address: str, device_id: int) -> None:
        self._schema, self._device_id = schema, device_id
        self._channel = grpc.insecure_channel(address, [("grpc.max_reconnect_backoff_ms", 500)])
        self._stub: Any = p4r_grpc.P4RuntimeStub(self._channel)

    def read(self) -> list[p4r.Entity]:
        """Every entity of the kinds that the controller writes. Raises grpc.RpcError."""
        wanted: list[p4r.Entity] = []
        for table in self._schema.tables:
            entity = p4r.Entity(table_entry=p4r.TableEntry(table_id=table.id))
            if table.direct_meter is not None:
                entity.table_entry.meter_config.SetInParent()
            wanted.append(entity)
        group = p4r.MulticastGroupEntry()
        wanted.append(
            p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=group))
        )
        wanted += [p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=it.id)) for it in self._schema.meters]
        found = [entity for each in wanted for entity in self._read(each)]
        for digest in self._schema.digests:
            try:
                found += self._read(p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=digest.id)))
            except grpc.RpcError as problem:
                if problem.code() is not grpc.StatusCode.NOT_FOUND:  # BMv2's answer while there is none
                    raise
        return found

    def _read(self, wanted: p4r.Entity) -> list[p4r.Entity]:
        request = p4r.ReadRequest(device_id=self._device_id, entities=[wanted])
        return [entity for answer in self._stub.Read(request, timeout=ANSWER_SECONDS) for entity in answer.entities]

    def close(self) -> None:
        """Asks no more."""
        self._channel.close()


def state(entities: Iterable[p4r.Entity]) -> State:
    """Of what was read, or encoded; without what is there by itself."""
    found: dict[Key, bytes] = {}
    for entity in entities:
        if entity.table_entry.is_default_action or (
            entity.HasField("meter_entry") and not entity.meter_entry.HasField("config")
        ):
            continue
        key, value = _parts(entity)
        assert key not in found, f"twice: {key}"
        found[key] = value
    return found


def indices(schema: P4Schema, entities: Iterable[p4r.Entity]) -> dict[int, int]:
    """By which number the switch knows each job, by job id."""
    found: dict[int, int] = {}
    for entity in entities:
        if entity.table_entry.table_id == schema.tables["jobs"].id:
            entry = decode_entity(entity, schema)
            assert isinstance(entry, P4TableEntry)
            if entry.match and isinstance(entry.action, P4TableAction):
                found[entry.match["job"]] = entry.action.args.get("job_index", 0)
    return found


def wanted(
    schema: P4Schema, fabric: Fabric, jobs: Iterable[Job], numbers: Mapping[int, int], avoided: Collection[str] = ()
) -> dict[str, State]:
    """By switch, what these jobs need, which are known by these numbers."""
    plan = desired_entities(fabric, jobs, Numbers(indices=numbers), avoided=avoided)
    return {name: state(it.encode(schema) for it in entities) for name, entities in plan.items()}


def describe(schema: P4Schema, key: Key) -> str:
    """An entity, for people."""
    kind, number, *_ = key
    if kind == "table":
        return f"an entry of {next((it.alias for it in schema.tables if it.id == number), number)}"
    return f"{kind} {number}"


def _parts(entity: p4r.Entity) -> tuple[Key, bytes]:
    kind = entity.WhichOneof("entity")
    if kind == "table_entry":
        entry = entity.table_entry
        matches = sorted(it.SerializeToString(deterministic=True) for it in entry.match)
        calls: list[bytes] = []
        if entry.action.HasField("action"):
            calls.append(_call(entry.action.action))
        for member in entry.action.action_profile_action_set.action_profile_actions:
            calls.append(b"%d %s %s" % (member.weight, member.watch_port, _call(member.action)))
        meter = entry.meter_config.SerializeToString(deterministic=True)
        return ("table", entry.table_id, entry.priority, *matches), b"|".join([*sorted(calls), meter])
    if kind == "packet_replication_engine_entry":
        group = entity.packet_replication_engine_entry.multicast_group_entry
        replicas = sorted(it.SerializeToString(deterministic=True) for it in group.replicas)
        return ("multicast group", group.multicast_group_id), b"|".join(replicas)
    if kind == "meter_entry":
        meter_entry = entity.meter_entry
        key = ("meter", meter_entry.meter_id, meter_entry.index.index)
        return key, meter_entry.config.SerializeToString(deterministic=True)
    digest = entity.digest_entry
    return ("digest", digest.digest_id), digest.config.SerializeToString(deterministic=True)


def _call(action: p4r.Action) -> bytes:
    params = sorted(it.SerializeToString(deterministic=True) for it in action.params)
    return b"%d(%s)" % (action.action_id, b",".join(params))
