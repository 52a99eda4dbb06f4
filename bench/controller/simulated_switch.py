# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server that answers a controller as gradlane-switch does, and takes what it is sent at once.

Beyond entities it knows of the program only what link checks need: LLDP goes to the controller, and a probe goes where
a route for its address alone leads, else to the controller if there is one for all of them.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from finsy import P4Schema
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf.any_pb2 import Any as PackedAny

from gradlane_controller.data_plane import Reason
from gradlane_controller.network.links import PROBES

_EGRESS_PORT, _REASON, _INGRESS_PORT = 2, 2, 3  # metadata of packet_out and of packet_in, in the P4Info
_LLDP, _DESTINATION = b"\x88\xcc", slice(30, 34)

Transmit = Callable[[int, bytes], None]


class SimulatedSwitch(p4r_grpc.P4RuntimeServicer):
    """`transmit` carries a frame that leaves by a port; `writes` counts updates, the last of which came at `written_at`
    (time.monotonic)."""

    def __init__(self, schema: P4Schema, transmit: Transmit) -> None:
        self.writes, self.written_at = 0, 0.0
        self._schema, self._transmit = schema, transmit
        self._config: p4r.ForwardingPipelineConfig | None = None
        self._held: dict[tuple[str, int], dict[bytes, p4r.Entity]] = {}
        self._streams: dict[int, asyncio.Queue[p4r.StreamMessageResponse]] = {}
        self._highest = -1

    async def Capabilities(self, request: Any, context: Any) -> Any:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.3.0")

    async def StreamChannel(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        outbox: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue()
        listener = asyncio.create_task(self._listen(request_iterator, outbox, context))
        try:
            while True:
                yield await outbox.get()
        finally:
            listener.cancel()
            self._streams = {bid: it for bid, it in self._streams.items() if it is not outbox}
            self._tell()

    async def _listen(self, requests: Any, outbox: Any, context: Any) -> None:
        async for request in requests:
            if request.HasField("arbitration"):
                bid = request.arbitration.election_id.low
                if self._streams.get(bid, outbox) is not outbox:
                    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Election id already exists")
                self._streams = {other: it for other, it in self._streams.items() if it is not outbox}
                self._streams[bid] = outbox
                self._highest = max(self._highest, bid)
                self._tell()
            elif request.HasField("packet") and self._streams.get(self._highest) is outbox:
                [port] = [
                    int.from_bytes(it.value, "big") for it in request.packet.metadata if it.metadata_id == _EGRESS_PORT
                ]
                self._transmit(port, request.packet.payload)

    def _tell(self) -> None:
        """P4Runtime 5.4: the primary is who made the highest bid ever seen; if it left, there is none."""
        for bid, outbox in self._streams.items():
            answer = p4r.StreamMessageResponse()
            answer.arbitration.election_id.low = self._highest
            there = rpc_code.ALREADY_EXISTS if self._highest in self._streams else rpc_code.NOT_FOUND
            answer.arbitration.status.code = rpc_code.OK if bid == self._highest else there
            outbox.put_nowait(answer)

    def receive(self, port: int, frame: bytes) -> None:
        """A neighbour has sent a frame, which enters by that port."""
        if frame[12:14] == _LLDP:
            self._punt(port, frame, Reason.PUNTED_LLDP)
            return
        routes = self._held.get(("table_entry", self._schema.tables["ipv4_routes"].id), {})
        ours = routes.get(_route(frame[_DESTINATION], 32))
        if ours is not None:
            group = ours.table_entry.action.action.params[0].value
            key = b"0 " + p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=group)).SerializeToString(
                deterministic=True
            )
            found = self._held.get(("table_entry", self._schema.tables["next_hops"].id), {}).get(key)
            if found is not None:
                members = found.table_entry.action.action_profile_action_set.action_profile_actions
                self._transmit(int.from_bytes(members[0].action.params[0].value, "big"), frame)
        elif _route(PROBES.network_address.packed, PROBES.prefixlen) in routes:
            self._punt(port, frame, Reason.PUNTED_PROBE)

    def _punt(self, port: int, frame: bytes, reason: int) -> None:
        answer = p4r.StreamMessageResponse()
        answer.packet.payload = frame
        for number, value in ((1, 0), (_REASON, reason), (_INGRESS_PORT, port)):
            answer.packet.metadata.add(metadata_id=number, value=value.to_bytes(2, "big").lstrip(b"\0") or b"\0")
        if self._highest in self._streams:
            self._streams[self._highest].put_nowait(answer)

    async def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        if self._config is None:
            return p4r.GetForwardingPipelineConfigResponse()
        return p4r.GetForwardingPipelineConfigResponse(config=self._config)

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        await self._check_primary(request, context)
        self._held.clear()
        self._config = p4r.ForwardingPipelineConfig(cookie=request.config.cookie)
        return p4r.SetForwardingPipelineConfigResponse()

    async def _check_primary(self, request: Any, context: Any) -> None:
        if request.election_id.low != self._highest or self._highest not in self._streams:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, "not the primary")

    async def Write(self, request: Any, context: Any) -> Any:
        await self._check_primary(request, context)
        if self._config is None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no forwarding pipeline is set")
        codes = [self._update(update) for update in request.updates]
        if any(codes):
            status = rpc_status.Status(code=rpc_code.UNKNOWN)
            for code in codes:
                packed = PackedAny()
                packed.Pack(p4r.Error(canonical_code=code, message="refused" if code else ""))
                status.details.append(packed)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            await context.abort(grpc.StatusCode.UNKNOWN, "some updates failed")
        return p4r.WriteResponse()

    def _update(self, update: Any) -> int:
        """Its canonical code: OK, or why it is refused."""
        self.writes, self.written_at = self.writes + 1, time.monotonic()
        kind, array, key = _place(update.entity)
        if kind == "counter_entry":
            return rpc_code.OK  # nothing counts here
        if (problem := self._problem(kind, array, update.entity)) != rpc_code.OK:
            return problem
        held = self._held.setdefault((kind, array), {})
        if kind == "meter_entry":
            if update.type != p4r.Update.MODIFY:
                return rpc_code.INVALID_ARGUMENT
            held[key] = update.entity
            return rpc_code.OK
        if update.type == p4r.Update.INSERT:
            if key in held:
                return rpc_code.ALREADY_EXISTS
            if kind == "table_entry" and len(held) >= self._schema.tables[array].size:
                return rpc_code.RESOURCE_EXHAUSTED
        elif key not in held:
            return rpc_code.NOT_FOUND
        if update.type == p4r.Update.DELETE:
            del held[key]
        else:
            held[key] = update.entity
        return rpc_code.OK

    def _problem(self, kind: str, array: int, entity: Any) -> int:
        """Of an entity by itself: whether the program has its table, fields and action."""
        known = {
            "table_entry": self._schema.tables,
            "meter_entry": self._schema.meters,
            "digest_entry": self._schema.digests,
        }.get(kind)
        if known is None:
            return rpc_code.OK
        if array not in {it.id for it in known}:
            return rpc_code.NOT_FOUND
        if kind == "meter_entry":
            index = entity.meter_entry.index.index
            return rpc_code.OK if 0 <= index < self._schema.meters[array].size else rpc_code.OUT_OF_RANGE
        if kind == "table_entry":
            table = self._schema.tables[array]
            if any(field.field_id not in {it.id for it in table.match_fields} for field in entity.table_entry.match):
                return rpc_code.INVALID_ARGUMENT
            action = entity.table_entry.action
            if action.HasField("action") and action.action.action_id not in {it.id for it in table.actions}:
                return rpc_code.INVALID_ARGUMENT
        return rpc_code.OK

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        answer = p4r.ReadResponse()
        for wanted in request.entities:
            kind, array, _ = _place(wanted)
            held = self._held.get((kind, array), {})
            if kind == "counter_entry":
                if wanted.counter_entry.HasField("index"):
                    entry = answer.entities.add()
                    entry.CopyFrom(wanted)
                    entry.counter_entry.data.SetInParent()
            elif kind == "meter_entry" and not wanted.meter_entry.HasField("index"):
                for index in range(self._schema.meters[array].size):
                    cell = answer.entities.add()
                    if (found := held.get(b"%d" % index)) is not None:
                        cell.CopyFrom(found)
                    else:
                        cell.meter_entry.meter_id = array
                        cell.meter_entry.index.index = index
            else:
                answer.entities.extend(held.values())
        yield answer


def _route(address: bytes, length: int) -> bytes:
    """The key of a route."""
    value = address.lstrip(b"\0") or b"\0"
    match = p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=value, prefix_len=length))
    return b"0 " + match.SerializeToString(deterministic=True)


def _place(entity: Any) -> tuple[str, int, bytes]:
    """The kind of an entity, of which table or array it is, and its key there."""
    kind = entity.WhichOneof("entity")
    match kind:
        case "table_entry":
            entry = entity.table_entry
            matches = sorted(match.SerializeToString(deterministic=True) for match in entry.match)
            return kind, entry.table_id, b"%d " % entry.priority + b"".join(matches)
        case "meter_entry":
            return kind, entity.meter_entry.meter_id, b"%d" % entity.meter_entry.index.index
        case "counter_entry":
            return kind, entity.counter_entry.counter_id, b""
        case "digest_entry":
            return kind, entity.digest_entry.digest_id, b""
        case _:
            group = entity.packet_replication_engine_entry.multicast_group_entry
            return kind, 0, b"%d" % group.multicast_group_id
