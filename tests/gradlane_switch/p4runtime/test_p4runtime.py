# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime service as controllers see it: plain gRPC, and finsy."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import finsy
import grpc
from finsy.proto import U128, p4r, rpc_code

from tests.gradlane_switch.compiled_programs import wrapped
from tests.gradlane_switch.switch_process import Controller, Process, failure, failures


def route(names: dict[str, int], network: int = 2, port: bytes = b"\x02", length: int = 24) -> Any:
    lpm = p4r.FieldMatch.LPM(value=bytes([10, 0, network, 0]), prefix_len=length)
    message = p4r.TableEntry(table_id=names["routes"], match=[p4r.FieldMatch(field_id=1, lpm=lpm)])
    message.action.action.action_id = names["forward"]
    for number, value in enumerate([port, b"\x02", b"\x03"], 1):
        message.action.action.params.add(param_id=number, value=value)
    return p4r.Entity(table_entry=message)


def dscp(names: dict[str, int], value: bytes) -> Any:
    exact = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=value))
    message = p4r.TableEntry(table_id=names["dscp_classes"], match=[exact])
    message.action.action.action_id = names["set_queue_class"]
    message.action.action.params.add(param_id=1, value=b"\x05")
    return p4r.Entity(table_entry=message)


# Arbitration


def test_the_highest_election_id_is_primary_and_the_others_hear_of_it(switch: Process, ids: Iterator[int]) -> None:
    low = next(ids)
    with Controller(switch.address, low) as first:
        assert first.arbitrate().status.code == rpc_code.OK
        with Controller(switch.address, low + 1) as second:
            assert second.arbitrate().status.code == rpc_code.OK
            told = first.next()
            assert told.status.code == rpc_code.ALREADY_EXISTS
            assert U128.decode(told.election_id) == low + 1
            assert failure(first.write)[0] is grpc.StatusCode.PERMISSION_DENIED
        told = first.next()
        assert told.status.code == rpc_code.NOT_FOUND
        assert U128.decode(told.election_id) == low + 1
        assert failure(first.write)[0] is grpc.StatusCode.PERMISSION_DENIED
        assert first.arbitrate(low + 2).status.code == rpc_code.OK


def test_a_used_election_id_and_a_wrong_device_end_the_stream(controller: Controller, switch: Process) -> None:
    with Controller(switch.address, controller.election_id) as other:
        assert failure(other.arbitrate)[0] is grpc.StatusCode.INVALID_ARGUMENT
    with Controller(switch.address, 1, device_id=9) as other:
        assert failure(other.arbitrate) == (grpc.StatusCode.NOT_FOUND, "device 9 is not here: this is device 1")
    # None of this cost the primary its place.
    assert controller.arbitrate().status.code == rpc_code.OK


def test_packet_out_is_answered_with_a_stream_error(controller: Controller) -> None:
    controller.send(p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x")))
    error = next(controller.stream).error
    assert error.canonical_code == rpc_code.FAILED_PRECONDITION
    assert error.packet_out.packet_out.payload == b"x"


# The pipeline


def test_before_a_pipeline_there_is_none() -> None:
    with Process("--device-id", "3") as fresh, Controller(fresh.address, 5, device_id=3) as client:
        client.arbitrate()
        request = p4r.GetForwardingPipelineConfigRequest(device_id=3)
        assert not client.stub.GetForwardingPipelineConfig(request).HasField("config")
        assert failure(client.write) == (grpc.StatusCode.FAILED_PRECONDITION, "no forwarding pipeline is set")
        assert failure(client.read, p4r.Entity())[0] is grpc.StatusCode.FAILED_PRECONDITION
        assert fresh.stop() == 0


def test_a_pipeline_from_the_command_line_is_served(program_json: Path, program_p4info: Path) -> None:
    arguments = ("--program", str(program_json), "--p4info", str(program_p4info))
    with Process(*arguments) as fresh, Controller(fresh.address, 5) as client:
        client.arbitrate()
        assert client.read(p4r.Entity(table_entry=p4r.TableEntry())) == []


def test_the_pipeline_reads_back_as_it_was_set(primary: Controller, program_json: Path) -> None:
    kinds = p4r.GetForwardingPipelineConfigRequest

    def get(kind: int) -> Any:
        return primary.stub.GetForwardingPipelineConfig(kinds(device_id=1, response_type=kind)).config

    whole = get(kinds.ALL)
    assert whole.cookie.cookie == 77
    assert whole.p4_device_config == program_json.read_bytes()
    assert whole.p4info.pkg_info.name == "router"
    cookie = get(kinds.COOKIE_ONLY)
    assert cookie.cookie.cookie == 77
    assert not cookie.p4_device_config
    assert not cookie.HasField("p4info")


def test_a_pipeline_in_a_p4_device_config_is_set_and_reads_back_as_it_is(
    primary: Controller, tmp_path: Path, program_json: Path, program_p4info: Path
) -> None:
    """As the clients of the P4 tutorials send it."""
    wrapper = tmp_path / "p4_device_config"
    wrapper.write_bytes(wrapped(program_json.read_bytes()))
    primary.set_pipeline(wrapper, program_p4info)
    found = primary.stub.GetForwardingPipelineConfig(p4r.GetForwardingPipelineConfigRequest(device_id=1)).config
    assert found.p4_device_config == wrapper.read_bytes()


def test_setting_a_pipeline_clears_the_state(
    primary: Controller, names: dict[str, int], program_json: Path, program_p4info: Path
) -> None:
    primary.insert(route(names))
    everything = p4r.Entity(table_entry=p4r.TableEntry())
    assert len(primary.read(everything)) == 1
    primary.set_pipeline(program_json, program_p4info)
    assert primary.read(everything) == []


def test_unknown_actions_and_bad_programs_are_refused_and_change_nothing(primary: Controller) -> None:
    kinds = p4r.SetForwardingPipelineConfigRequest
    config = p4r.ForwardingPipelineConfig(p4_device_config=b"{}")
    config.p4info.SetInParent()

    def attempt(action: int, **changes: Any) -> tuple[grpc.StatusCode, str]:
        request = kinds(**{**primary.identity, "action": action, "config": config, **changes})
        return failure(primary.stub.SetForwardingPipelineConfig, request)

    for action in (kinds.VERIFY, kinds.VERIFY_AND_SAVE, kinds.VERIFY_AND_COMMIT, kinds.RECONCILE_AND_COMMIT):
        assert attempt(action)[0] is grpc.StatusCode.INVALID_ARGUMENT
        name = kinds.Action.Name(action)
        assert attempt(action, config=None) == (grpc.StatusCode.INVALID_ARGUMENT, f"{name} needs a config")
    for action in (kinds.UNSPECIFIED, 77):
        code, message = attempt(action)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "it must be one of VERIFY, VERIFY_AND_SAVE," in message
    low = U128.encode(1)
    assert attempt(kinds.VERIFY, election_id=low)[0] is grpc.StatusCode.PERMISSION_DENIED
    get = p4r.GetForwardingPipelineConfigRequest(device_id=1)
    assert primary.stub.GetForwardingPipelineConfig(get).config.cookie.cookie == 77


# Writes and reads


def test_each_update_of_a_write_has_its_own_error(primary: Controller, names: dict[str, int]) -> None:
    host_bits = route(names, 3)
    host_bits.table_entry.match[0].lpm.value = bytes([10, 0, 3, 1])
    wide = route(names, 4, port=b"\x02\x00")
    default_only = route(names, 5)
    default_only.table_entry.action.action.CopyFrom(p4r.Action(action_id=names["no_route"]))
    errors = failures(primary.insert, route(names), host_bits, route(names), wide, default_only)
    assert [code for code, _ in errors] == [
        rpc_code.OK,
        rpc_code.INVALID_ARGUMENT,
        rpc_code.ALREADY_EXISTS,
        rpc_code.OUT_OF_RANGE,
        rpc_code.PERMISSION_DENIED,
    ]
    assert "routes.destination: 0xa000301 has bits outside its prefix of 24" in errors[1][1]
    assert "forward.port: 0x200 does not fit in 9 bits" in errors[3][1]
    assert len(primary.read(p4r.Entity(table_entry=p4r.TableEntry()))) == 1


def test_values_are_canonical_whatever_their_padding(primary: Controller, names: dict[str, int]) -> None:
    padded = dscp(names, b"\x00\x00\x2e")
    padded.table_entry.metadata = b"cookie"
    primary.insert(padded)
    [found] = primary.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=names["dscp_classes"])))
    assert found.table_entry.match[0].exact.value == b"\x2e"
    assert found.table_entry.metadata == b"cookie"
    assert failures(primary.insert, dscp(names, b"\x2e"))[0][0] == rpc_code.ALREADY_EXISTS
    assert failures(primary.insert, dscp(names, b""))[0][0] == rpc_code.OUT_OF_RANGE
    assert failures(primary.insert, dscp(names, b"\x40"))[0][0] == rpc_code.OUT_OF_RANGE


def test_ranges_and_priorities_are_checked(primary: Controller, names: dict[str, int]) -> None:
    def policy(low: bytes, high: bytes, priority: int, *, job: bool = True) -> Any:
        message = p4r.TableEntry(table_id=names["queue_classes"], priority=priority)
        if job:
            message.match.add(field_id=1).exact.value = b"\x01"
        message.match.add(field_id=2).range.CopyFrom(p4r.FieldMatch.Range(low=low, high=high))
        message.action.action.action_id = names["set_queue_class"]
        message.action.action.params.add(param_id=1, value=b"\x05")
        return p4r.Entity(table_entry=message)

    bad = [
        policy(b"\x05", b"\x04", 1),
        policy(b"\x00", b"\xff\xff", 1),
        policy(b"\x01", b"\x04", 0),
        policy(b"\x01", b"\x04", 1, job=False),
    ]
    errors = failures(primary.insert, *bad)
    assert [code for code, _ in errors] == [rpc_code.INVALID_ARGUMENT] * 4
    for (_, message), text in zip(
        errors, ["layer: 5 is above 4", "every value", "needs a priority", "job is missing"], strict=True
    ):
        assert text in message
    primary.insert(policy(b"\x01", b"\x04", 1), policy(b"\x01", b"\x04", 2))
    exact = dscp(names, b"\x01")
    exact.table_entry.priority = 3
    assert "priority 3 in a table" in failures(primary.insert, exact)[0][1]


def test_modify_delete_and_a_constant_default(primary: Controller, names: dict[str, int]) -> None:
    missing = p4r.Update(type=p4r.Update.MODIFY, entity=route(names))
    assert failures(primary.write, missing)[0][0] == rpc_code.NOT_FOUND
    primary.insert(route(names))
    primary.write(p4r.Update(type=p4r.Update.MODIFY, entity=route(names, port=b"\x07")))
    [found] = primary.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=names["routes"])))
    assert found.table_entry.action.action.params[0].value == b"\x07"
    primary.write(p4r.Update(type=p4r.Update.DELETE, entity=found))
    default = p4r.TableEntry(table_id=names["routes"], is_default_action=True)
    default.action.action.action_id = names["no_route"]
    entity = p4r.Entity(table_entry=default)
    for kind, code in ((p4r.Update.MODIFY, rpc_code.PERMISSION_DENIED), (p4r.Update.INSERT, rpc_code.INVALID_ARGUMENT)):
        assert failures(primary.write, p4r.Update(type=kind, entity=entity))[0][0] == code
    [found] = primary.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=names["routes"], is_default_action=True)))
    assert found.table_entry.is_const
    assert found.table_entry.action.action.action_id == names["no_route"]


def test_counters_are_read_whole_by_cell_and_reset(primary: Controller, names: dict[str, int]) -> None:
    def cell(index: int, packets: int) -> Any:
        message = p4r.CounterEntry(counter_id=names["decisions"], data=p4r.CounterData(packet_count=packets))
        message.index.index = index
        return p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(counter_entry=message))

    primary.write(cell(1023, 5))
    every = primary.read(p4r.Entity(counter_entry=p4r.CounterEntry()))
    assert len(every) == 1024
    [one] = primary.read(cell(1023, 0).entity)
    assert one.counter_entry.data.packet_count == 5
    errors = failures(primary.write, cell(1024, 1), cell(-1, 1))
    assert [code for code, _ in errors] == [rpc_code.OUT_OF_RANGE, rpc_code.INVALID_ARGUMENT]
    reset = p4r.CounterEntry(counter_id=names["decisions"], data=p4r.CounterData())
    primary.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(counter_entry=reset)))
    assert primary.read(cell(1023, 0).entity)[0].counter_entry.data.packet_count == 0


def test_direct_counters_belong_to_entries(primary: Controller, names: dict[str, int]) -> None:
    message = p4r.TableEntry(table_id=names["senders"], counter_data=p4r.CounterData(packet_count=3, byte_count=9))
    for number in (1, 2, 3):
        message.match.add(field_id=number).exact.value = b"\x01"
    message.action.action.action_id = names["permit"]
    for number in (1, 2, 3):
        message.action.action.params.add(param_id=number, value=b"\x01")
    primary.insert(p4r.Entity(table_entry=message))
    wanted = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry(table_entry=p4r.TableEntry()))
    [found] = primary.read(wanted)
    assert found.direct_counter_entry.data.packet_count == 3
    request = p4r.TableEntry(table_id=names["senders"], counter_data=p4r.CounterData())
    [with_data] = primary.read(p4r.Entity(table_entry=request))
    assert with_data.table_entry.counter_data.byte_count == 9
    [without] = primary.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=names["senders"])))
    assert not without.table_entry.HasField("counter_data")
    other = p4r.DirectCounterEntry(table_entry=p4r.TableEntry(table_id=names["routes"]))
    assert failures(primary.read, p4r.Entity(direct_counter_entry=other))[0][0] == rpc_code.INVALID_ARGUMENT


def test_what_is_not_supported_is_named(primary: Controller) -> None:
    extern = p4r.Entity(extern_entry=p4r.ExternEntry(extern_type_id=1))
    assert failures(primary.insert, extern, p4r.Entity())[0] == (
        rpc_code.UNIMPLEMENTED,
        "writing an extern_entry is not supported",
    )
    assert failures(primary.read, extern) == [(rpc_code.UNIMPLEMENTED, "reading an extern_entry is not supported")]
    clone = p4r.PacketReplicationEngineEntry(clone_session_entry=p4r.CloneSessionEntry())
    digests = p4r.Entity(digest_entry=p4r.DigestEntry())
    assert primary.read(p4r.Entity(packet_replication_engine_entry=clone), digests) == []


def test_multicast_groups(primary: Controller) -> None:
    def group(number: int, *ports: int) -> Any:
        message = p4r.MulticastGroupEntry(multicast_group_id=number)
        for port in ports:
            message.replicas.add(port=port.to_bytes(2, "big").lstrip(b"\0") or b"\0", instance=0)
        return p4r.Entity(
            packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=message)
        )

    errors = failures(primary.insert, group(0, 1), group(7, 1, 1), group(7, 511), group(7, 1, 2), group(7, 1))
    assert errors[2][1].endswith("511 is not a port number (0..510; v1model drops by 511)")
    codes = [code for code, _ in errors]
    assert codes == [rpc_code.INVALID_ARGUMENT] * 3 + [rpc_code.OK, rpc_code.ALREADY_EXISTS]
    primary.write(p4r.Update(type=p4r.Update.MODIFY, entity=group(7, 3)))
    assert primary.read(group(0)) == [group(7, 3)]
    primary.write(p4r.Update(type=p4r.Update.DELETE, entity=group(7)))
    assert primary.read(group(0)) == []


def test_finsy_drives_it(switch: Process, ids: Iterator[int], program_json: Path, program_p4info: Path) -> None:
    seen: dict[str, Any] = {}

    async def ready(client: finsy.Switch) -> None:
        entries = [
            finsy.P4TableEntry(
                "routes",
                match=finsy.P4TableMatch(destination=f"10.{number // 256}.{number % 256}.0/24"),
                action=finsy.P4TableAction("forward", port=1, next_hop=number, own=2),
            )
            for number in range(1000)
        ]
        await client.write([+entry for entry in entries])
        virtual_queue = finsy.P4MeterConfig(cir=12_500_000, cburst=16_000, pir=12_500_000, pburst=32_000)
        await client.write([~finsy.P4MeterEntry("virtual_queue", index=2, config=virtual_queue)])
        await client.write([+finsy.P4MulticastGroupEntry(1, replicas=[1, 2])])
        seen["entries"] = [entry async for entry in client.read(finsy.P4TableEntry("routes"))]
        seen["meter"] = [entry async for entry in client.read(finsy.P4MeterEntry("virtual_queue", index=2))]
        seen["counters"] = [entry async for entry in client.read(finsy.P4CounterEntry("decisions"))]
        await client.delete_all()
        seen["left"] = [entry async for entry in client.read(finsy.P4TableEntry())]
        seen["primary"] = client.is_primary

    async def run() -> None:
        options = finsy.SwitchOptions(
            p4info=program_p4info, p4blob=program_json, initial_election_id=next(ids), ready_handler=ready
        )
        client = finsy.Switch("s1", switch.address, options)
        task = asyncio.create_task(client.run())
        while "primary" not in seen and not task.done():
            await asyncio.wait([task], timeout=0.05)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(asyncio.wait_for(run(), 300))
    assert len(seen["entries"]) == 1000
    assert seen["meter"][0].config.pburst == 32_000
    assert len(seen["counters"]) == 1024
    assert seen["left"] == []
    assert seen["primary"]
