# SPDX-License-Identifier: Apache-2.0
"""P4Runtime servers of a whole fabric in one process, and the links between them.

    python -m bench.controller.simulated_switches LEAVES SPINES HOSTS [gradlane-switch]

With "gradlane-switch" the servers and the data planes are that one's, without its ports; else they are simulated.

Says "ready PORT PORT ..." of 127.0.0.1, one port for each switch. Then answers requests, in JSON: {"op": "cut", "link":
N} takes the fabric's link N, from 0, away in both directions; {"op": "writes"} does nothing. The answer to both has the
time `now`, how many updates each switch was sent since the last request, and when the last one of all came, in seconds
on the machine's monotonic clock.
"""

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import grpc
from finsy.proto import p4r_grpc

from bench.controller.large_fabric import LargeFabric
from bench.controller.simulated_switch import SimulatedSwitch, Transmit
from gradlane_controller.desired.pipeline import DEFAULT_FOLDER, load
from gradlane_controller.network.fabric import CPU_PORT
from gradlane_switch.p4runtime.service import CpuPort, Service
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from gradlane_switch.switch import Switch

REAL = "gradlane-switch"


class RealSwitch(Service):
    """gradlane-switch's P4Runtime server and data plane, used as SimulatedSwitch is."""

    def __init__(self, device_id: int, transmit: Transmit) -> None:
        self.writes, self.written_at = 0, 0.0
        self._transmit = transmit
        self._switch: Switch | None = None
        super().__init__(device_id, Lock(), self._load, None, CpuPort(CPU_PORT, self.receive))
        self.notifier.start()

    def _load(self, pipeline: Pipeline) -> None:
        self._switch = Switch(pipeline)
        self._switch.cpu_port = CPU_PORT

    def receive(self, port: int, frame: bytes) -> None:
        """A frame enters by that port."""
        if self._switch is not None:
            self._switch.now = time.monotonic_ns()
            for out, data in self._switch.process(port, frame):
                self._transmit(out, data)

    async def Write(self, request: Any, context: Any) -> Any:
        self.writes, self.written_at = self.writes + len(request.updates), time.monotonic()
        return await super().Write(request, context)


class SwitchesOfFabric:
    """All of them, by name. `cut`: ports whose link is away."""

    def __init__(self, fabric: LargeFabric, kind: str) -> None:
        self.cut: set[tuple[str, int]] = set()
        self._peers = {end: other for ends in fabric.links for end, other in (ends, ends[::-1])}
        schema = load(DEFAULT_FOLDER).schema
        self.by_name: dict[str, RealSwitch | SimulatedSwitch] = {}
        for number, name in enumerate(fabric.switches, 1):
            carry = self._carrier(name)
            self.by_name[name] = RealSwitch(number, carry) if kind == REAL else SimulatedSwitch(schema, carry)

    def _carrier(self, name: str) -> Transmit:
        def carry(port: int, frame: bytes) -> None:
            peer = self._peers.get((name, port))
            if peer is not None and (name, port) not in self.cut:
                self.by_name[peer[0]].receive(peer[1], frame)

        return carry


async def serve(fabric: LargeFabric, kind: str) -> None:
    """Runs the switches of a fabric until its input ends."""
    switches = SwitchesOfFabric(fabric, kind)
    servers: list[Any] = []
    ports: list[int] = []
    for switch in switches.by_name.values():
        servers.append(grpc.aio.server(options=[("grpc.max_receive_message_length", -1)]))
        p4r_grpc.add_P4RuntimeServicer_to_server(switch, servers[-1])
        ports.append(servers[-1].add_insecure_port("127.0.0.1:0"))
        await servers[-1].start()
    print("ready", *ports, flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        if request["op"] == "cut":
            switches.cut |= set(fabric.links[request["link"]])
        writes = {name: it.writes for name, it in switches.by_name.items()}
        last = max(it.written_at for it in switches.by_name.values())
        print(json.dumps({"now": time.monotonic(), "writes": writes, "last": last}), flush=True)
        for it in switches.by_name.values():
            it.writes = 0
    for server in servers:
        await server.stop(None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs it."""
    *size, kind = [*(sys.argv[1:] if arguments is None else arguments), "simulated"][:4]
    leaves, spines, hosts = map(int, size)
    asyncio.run(serve(LargeFabric(leaves, spines, hosts), kind))


if __name__ == "__main__":
    main()
