# SPDX-License-Identifier: Apache-2.0
"""The switch that is simulated for benchmarks of the controller answers as gradlane-switch does."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from random import Random
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_status

from bench.controller.simulated_switch import SimulatedSwitch
from bench.controller.simulated_switches import RealSwitch
from gradlane_controller.desired.pipeline import DEFAULT_FOLDER, load
from gradlane_controller.network import fabric_file
from gradlane_controller.network.frames import make_lldp, make_probe
from gradlane_controller.network.links import probe_address
from gradlane_controller.policy import desired_entities
from gradlane_controller.session.convergence import parts
from tests.gradlane_controller.texts import leafspine_text

SCHEMA = load(DEFAULT_FOLDER).schema
FABRIC = fabric_file.parse(leafspine_text(), "f.toml")
Dialogue = Callable[["Client"], Awaitable[list[Any]]]


class Client:
    """What one switch answers. `out`: what leaves it, as (port, frame)."""

    def __init__(self, stub: Any) -> None:
        self.stub = stub
        self.out: list[tuple[int, bytes]] = []
        self.receive: Callable[[int, bytes], None] = lambda _port, _frame: None
        self.stream: Any = None

    async def bid(self, number: int) -> tuple[int, int]:
        """Code and election id of what is answered."""
        self.stream = self.stub.StreamChannel()
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = 1
        request.arbitration.election_id.low = number
        await self.stream.write(request)
        answer = (await self.stream.read()).arbitration
        return answer.status.code, answer.election_id.low

    async def load(self, number: int = 1) -> str:
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1, action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        )
        request.election_id.low = number
        request.config.CopyFrom(SCHEMA.get_pipeline_config())
        return await self._code(self.stub.SetForwardingPipelineConfig(request))

    async def write(self, updates: Iterable[p4r.Update], number: int = 1) -> Any:
        """The codes of all updates, or of the request."""
        request = p4r.WriteRequest(device_id=1, updates=list(updates))
        request.election_id.low = number
        try:
            await self.stub.Write(request)
        except grpc.aio.AioRpcError as problem:
            for key, value in problem.trailing_metadata() or ():
                if key == "grpc-status-details-bin":
                    status = rpc_status.Status.FromString(value)  # pyright: ignore[reportArgumentType]
                    errors = [p4r.Error.FromString(detail.value) for detail in status.details]
                    return [error.canonical_code for error in errors]
            return problem.code().name
        return "OK"

    async def read(self, wanted: p4r.Entity) -> Any:
        """What it holds, in no order."""
        try:
            found = [
                entity
                async for answer in self.stub.Read(p4r.ReadRequest(device_id=1, entities=[wanted]))
                for entity in answer.entities
            ]
        except grpc.aio.AioRpcError as problem:
            return problem.code().name
        return sorted(normal(it) for it in found if not it.table_entry.is_default_action)

    async def _code(self, call: Any) -> str:
        try:
            await call
        except grpc.aio.AioRpcError as problem:
            return problem.code().name
        return "OK"


def normal(entity: p4r.Entity) -> bytes:
    entity.table_entry.match.sort(key=lambda it: it.field_id) if entity.HasField("table_entry") else None
    return entity.SerializeToString(deterministic=True)


async def both(dialogue: Dialogue) -> tuple[list[Any], list[Any]]:
    """What the real one and the simulated one answer."""
    said: list[list[Any]] = []
    for real in (True, False):
        client = Client(None)

        def carry(port: int, frame: bytes, client: Client = client) -> None:
            client.out.append((port, frame))

        switch = RealSwitch(1, carry) if real else SimulatedSwitch(SCHEMA, carry)
        server = grpc.aio.server()
        p4r_grpc.add_P4RuntimeServicer_to_server(switch, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            client.stub, client.receive = p4r_grpc.P4RuntimeStub(channel), switch.receive
            said.append(await dialogue(client))
            if client.stream is not None:
                client.stream.cancel()
        await server.stop(0)
        if isinstance(switch, RealSwitch):
            await switch.notifier.stop()
    return said[0], said[1]


def wanted(switch: str) -> list[p4r.Entity]:
    return [it.encode(SCHEMA) for it in desired_entities(FABRIC, ())[switch]]


def update(kind: int, entity: p4r.Entity) -> p4r.Update:
    return p4r.Update(type=kind, entity=entity)  # pyright: ignore[reportArgumentType]


def inserted(entities: Iterable[p4r.Entity]) -> list[p4r.Update]:
    """Groups first; meters are modified."""
    next_hops = SCHEMA.tables["next_hops"].id
    ordered = sorted(entities, key=lambda it: it.table_entry.table_id != next_hops)
    return [update(p4r.Update.MODIFY if it.HasField("meter_entry") else p4r.Update.INSERT, it) for it in ordered]


async def everything(client: Client) -> list[Any]:
    return [await client.read(part.encode(SCHEMA)) for part in parts(SCHEMA)]


def test_what_is_written_is_read_and_what_is_wrong_is_refused_alike() -> None:
    random = Random(1)

    async def dialogue(client: Client) -> list[Any]:
        said: list[Any] = [await client.load(), await client.bid(1), await client.write(inserted(wanted("leaf1")))]
        said += [await client.load(), await client.write(inserted(wanted("leaf1"))), await everything(client)]
        said.append(await client.write([], 2))  # not the primary
        for _ in range(60):
            some = random.sample(wanted("leaf1"), 3)
            kinds = [random.choice([p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE]) for _ in some]
            pairs = [it for it in zip(kinds, some, strict=True) if not is_next_hops(it[1])]
            if pairs:
                said.append(await client.write([update(*pair) for pair in pairs]))
        said.append(await everything(client))
        return said

    def is_next_hops(entity: p4r.Entity) -> bool:
        return entity.table_entry.table_id == SCHEMA.tables["next_hops"].id  # what routes refer to can't go

    state = random.getstate()

    def seeded(client: Client) -> Awaitable[list[Any]]:
        random.setstate(state)
        return dialogue(client)

    real, simulated = asyncio.run(both(seeded))
    for one, other in zip(real, simulated, strict=True):
        assert one == other


@pytest.mark.parametrize("what", ["table", "field", "action", "index", "room"])
def test_entries_that_the_program_can_not_have_are_refused_alike(what: str) -> None:
    route = next(it for it in wanted("leaf1") if it.table_entry.table_id == SCHEMA.tables["stations"].id)
    meter = next(it for it in wanted("leaf1") if it.HasField("meter_entry"))
    bad = p4r.Entity()
    bad.CopyFrom(meter if what == "index" else route)
    if what == "table":
        bad.table_entry.table_id += 0x7000
    elif what == "field":
        bad.table_entry.match[0].field_id = 77
    elif what == "action":
        bad.table_entry.action.action.action_id = SCHEMA.actions["bridge_to"].id
    elif what == "index":
        bad.meter_entry.index.index = SCHEMA.meters[bad.meter_entry.meter_id].size
    updates = [update(p4r.Update.MODIFY if what == "index" else p4r.Update.INSERT, bad)]
    if what == "room":
        size = SCHEMA.tables["stations"].size
        updates = []
        for number in range(size + 3):
            bad.table_entry.match[0].exact.value = (number + 1).to_bytes(6, "big").lstrip(b"\0")
            updates.append(update(p4r.Update.INSERT, p4r.Entity.FromString(bad.SerializeToString())))

    async def dialogue(client: Client) -> list[Any]:
        return [await client.bid(1), await client.load(), await client.write(updates)]

    real, simulated = asyncio.run(both(dialogue))
    assert real == simulated
    assert real[-1] != "OK"


def test_link_frames_go_the_same_ways() -> None:
    leaf = FABRIC.switches[0]
    port = next(FABRIC.link_ports_at("leaf1"))
    mac, peer = (bytes.fromhex(it.replace(":", "")) for it in (port.mac, port.peer_mac))

    async def dialogue(client: Client, switch: str) -> list[Any]:
        said: list[Any] = [await client.bid(1), await client.load(), await client.write(inserted(wanted(switch)))]
        to = peer if switch == "spine1" else mac
        number = 1 if switch == "spine1" else port.number
        for frame in (make_lldp(mac, "leaf1", 5, 2, b"seal"), make_probe(to, mac, probe_address(leaf), 5, b"seal")):
            client.receive(number, frame)
            if client.out:
                said.append([(out, data[12:14]) for out, data in client.out])
                client.out.clear()
            else:
                packet = (await client.stream.read()).packet
                said.append((packet.payload, sorted((it.metadata_id, it.value) for it in packet.metadata)))
        return said

    for switch in ("leaf1", "spine1"):
        real, simulated = asyncio.run(both(lambda client, switch=switch: dialogue(client, switch)))
        assert real == simulated
