# SPDX-License-Identifier: Apache-2.0
"""What a person would type into p4runtime-shell; runs in its own Python environment and prints JSON of what it saw."""

import json
import sys

import p4runtime_sh.shell as sh


def main(address: str, election_id: int, p4info: str, program: str) -> None:
    config = sh.FwdPipeConfig(p4info, program)
    sh.setup(device_id=1, grpc_addr=address, election_id=(0, election_id), config=config, verbose=False)
    try:
        print(json.dumps(session()))
    finally:
        sh.teardown()


def session() -> dict[str, object]:
    seen: dict[str, object] = {"tables": sorted(sh.P4Objects(sh.P4Type.table)._names)}
    route = sh.TableEntry("routes")(action="forward")
    route.match["destination"] = "10.0.2.0/24"
    route.action["port"] = "2"
    route.action["next_hop"] = "0x020000000002"
    route.action["own"] = "0x020000000001"
    route.insert()
    try:
        route.insert()
    except Exception as error:  # noqa: BLE001 - whatever class the shell reports errors with
        seen["again"] = str(error)
    route.action["port"] = "3"
    route.modify()
    seen["routes"] = [str(entry.msg()) for entry in sh.TableEntry("routes").read()]
    group = sh.MulticastGroupEntry(7)
    group.add(1, 0).add(2, 0)
    group.insert()
    seen["replicas"] = [replica.port for entry in sh.MulticastGroupEntry(7).read() for replica in entry.replicas]
    queue = sh.MeterEntry("virtual_queue")
    queue.index = 2
    queue.cir, queue.cburst, queue.pir, queue.pburst = 1000, 100, 2000, 200
    queue.modify()
    meter = sh.MeterEntry("virtual_queue")
    meter.index = 2
    seen["pir"] = [entry.pir for entry in meter.read()]
    counter = sh.CounterEntry("decisions")
    counter.index = 5
    counter.packet_count = 9
    counter.modify()
    read = sh.CounterEntry("decisions")
    read.index = 5
    seen["packets"] = [entry.packet_count for entry in read.read()]
    default = sh.TableEntry("dscp_classes")
    default.is_default = True
    seen["default"] = [str(entry.msg()) for entry in default.read()]
    route.delete()
    seen["left"] = len(list(sh.TableEntry("routes").read()))
    return seen


main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4])
