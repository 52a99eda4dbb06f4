# SPDX-License-Identifier: Apache-2.0
"""P4Runtime servers of a whole fabric in one process: they hold entities, and pass the controller's frames on.

    python -m bench.controller.simulated_switches LEAVES SPINES HOSTS

Says "ready PORT PORT ..." of 127.0.0.1, one port for each switch. Then answers requests, in JSON: {"op": "cut", "link":
N} takes the fabric's link N, from 0, away in both directions; {"op": "writes"} tells how many updates each switch was
sent since this was last asked.

It validates nothing, and forwards nothing but what the controller sends to see whether links work.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code

from bench.controller.large_fabric import LargeFabric
from gradlane_controller.data_plane import Reason

_EGRESS_PORT, _REASON, _INGRESS_PORT = 2, 2, 3  # metadata of packet_out and of packet_in, in the P4Info
_LLDP = b"\x88\xcc"


class SimulatedSwitch(p4r_grpc.P4RuntimeServicer):
    """What a controller needs of a switch. `peers`: by port, the switch and the port at the other end; `cut`: ports
    whose link is away."""

    def __init__(self) -> None:
        self.peers: dict[int, tuple[SimulatedSwitch, int]] = {}
        self.cut: set[int] = set()
        self.writes = 0
        self._config: p4r.ForwardingPipelineConfig | None = None
        self._held: dict[tuple[str, int], dict[bytes, p4r.Entity]] = {}
        self._outbox: asyncio.Queue[p4r.StreamMessageResponse] = asyncio.Queue()

    async def Capabilities(self, request: Any, context: Any) -> Any:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.3.0")

    async def StreamChannel(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        self._outbox = asyncio.Queue()
        listener = asyncio.create_task(self._listen(request_iterator))
        try:
            while True:
                yield await self._outbox.get()
        finally:
            listener.cancel()

    async def _listen(self, requests: Any) -> None:
        async for request in requests:
            if request.HasField("packet"):
                self._pass_on(request.packet)
            elif request.HasField("arbitration"):
                answer = p4r.StreamMessageResponse(arbitration=request.arbitration)
                answer.arbitration.status.code = rpc_code.OK
                self._outbox.put_nowait(answer)

    def _pass_on(self, packet: Any) -> None:
        [port] = [int.from_bytes(it.value, "big") for it in packet.metadata if it.metadata_id == _EGRESS_PORT]
        if port not in self.cut and port in self.peers:
            other, there = self.peers[port]
            other.punt(packet.payload, there)

    def punt(self, frame: bytes, port: int) -> None:
        """Sends the controller a frame that a neighbour has sent."""
        answer = p4r.StreamMessageResponse()
        answer.packet.payload = frame
        reason = Reason.PUNTED_LLDP if frame[12:14] == _LLDP else Reason.PUNTED_PROBE
        for number, value in ((1, 0), (_REASON, reason), (_INGRESS_PORT, port)):
            answer.packet.metadata.add(metadata_id=number, value=value.to_bytes(2, "big").lstrip(b"\0") or b"\0")
        self._outbox.put_nowait(answer)

    async def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        if self._config is None:
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device."
            )
        return p4r.GetForwardingPipelineConfigResponse(config=self._config)

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        self._held.clear()
        self._config = p4r.ForwardingPipelineConfig(cookie=request.config.cookie)
        return p4r.SetForwardingPipelineConfigResponse()

    async def Write(self, request: Any, context: Any) -> Any:
        for update in request.updates:
            kind, array, key = _place(update.entity)
            self.writes += 1
            if kind == "counter_entry":
                continue  # nothing counts here
            held = self._held.setdefault((kind, array), {})
            if update.type == p4r.Update.DELETE:
                del held[key]
            else:
                held[key] = update.entity
        return p4r.WriteResponse()

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        answer = p4r.ReadResponse()
        for wanted in request.entities:
            kind, array, _ = _place(wanted)
            if kind == "counter_entry" and wanted.counter_entry.HasField("index"):
                entry = answer.entities.add()
                entry.CopyFrom(wanted)
                entry.counter_entry.data.packet_count = 0
            answer.entities.extend(self._held.get((kind, array), {}).values())
        yield answer


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


async def serve(fabric: LargeFabric) -> None:
    """Runs the switches of a fabric until its input ends."""
    switches = {name: SimulatedSwitch() for name in fabric.switches}
    for (one, port), (other, there) in fabric.links:
        switches[one].peers[port] = switches[other], there
        switches[other].peers[there] = switches[one], port
    servers: list[Any] = []
    ports: list[int] = []
    for switch in switches.values():
        servers.append(grpc.aio.server(options=[("grpc.max_receive_message_length", -1)]))
        p4r_grpc.add_P4RuntimeServicer_to_server(switch, servers[-1])
        ports.append(servers[-1].add_insecure_port("127.0.0.1:0"))
        await servers[-1].start()
    print("ready", *ports, flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        if request["op"] == "cut":
            for name, port in fabric.links[request["link"]]:
                switches[name].cut.add(port)
        print(json.dumps({name: it.writes for name, it in switches.items()}), flush=True)
        for it in switches.values():
            it.writes = 0
    for server in servers:
        await server.stop(None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs it."""
    leaves, spines, hosts = map(int, sys.argv[1:] if arguments is None else arguments)
    asyncio.run(serve(LargeFabric(leaves, spines, hosts)))


if __name__ == "__main__":
    main()
