# SPDX-License-Identifier: Apache-2.0
"""Direct meters, idle timeouts, and packets to and from the controller."""

from typing import Any

import pytest
from finsy.proto import p4r, rpc_code

from gradlane_switch import Switch, SwitchError
from gradlane_switch.errors import EntityError
from tests.gradlane_switch.compiled_programs import delete, ids, load, modify

CPU = 500


@pytest.fixture
def switch() -> Switch:
    made = load("attached")
    made.cpu_port = CPU
    return made


def entry(switch: Switch, table: str, action: str, *params: bytes, key: int = 9, **rest: Any) -> Any:
    names = ids(switch)
    message = p4r.TableEntry(table_id=names[table], **rest)
    message.match.add(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes([key])))
    message.action.action.action_id = names[action]
    for number, value in enumerate(params, 1):
        message.action.action.params.add(param_id=number, value=value)
    return p4r.Entity(table_entry=message)


def code_of(write: Any, *args: Any) -> int:
    with pytest.raises(EntityError) as caught:
        write(*args)
    return caught.value.code


# Direct meters: two packets of burst, one committed and one on top, and then none until time passes.
RATES = p4r.MeterConfig(cir=1, cburst=1, pir=2, pburst=2)


def colours(switch: Switch, count: int, key: int = 9) -> list[int]:
    return [switch.process(2, bytes([3, key, 0, 0, 0]) + bytes(9))[0][1][4] for _ in range(count)]


def test_a_hit_gets_the_colour_of_its_entry_and_a_miss_gets_none(switch: Switch) -> None:
    switch.insert(entry(switch, "metered", "read_colour", meter_config=RATES))
    switch.insert(entry(switch, "metered", "read_colour", key=8))
    assert colours(switch, 4) == [0, 1, 2, 2]
    assert colours(switch, 3, key=8) == [0, 0, 0]
    assert colours(switch, 1, key=7) == [3]
    switch.now = 10**9
    assert colours(switch, 3) == [0, 1, 2]


def test_a_direct_meter_reads_back_and_modifying_an_entry_without_it_resets_it(switch: Switch) -> None:
    switch.insert(entry(switch, "metered", "read_colour", meter_config=RATES))
    table = ids(switch)["metered"]

    def config(*, asked: bool = True) -> Any:
        request = p4r.TableEntry(table_id=table)
        if asked:
            request.meter_config.SetInParent()
        [found] = switch.read(p4r.Entity(table_entry=request))
        return found.table_entry.meter_config if found.table_entry.HasField("meter_config") else None

    assert (config(), config(asked=False)) == (RATES, None)
    [direct] = switch.read(p4r.Entity(direct_meter_entry=p4r.DirectMeterEntry()))
    assert direct.direct_meter_entry.config == RATES
    modify(switch, entry(switch, "metered", "read_colour"))
    assert (config(), colours(switch, 4)) == (None, [0, 0, 0, 0])
    direct.direct_meter_entry.config.pir = 3
    modify(switch, direct)
    assert config().pir == 3


def counts(*colours: tuple[int, int]) -> Any:
    """Packets and bytes of green, yellow and red."""
    data = [p4r.CounterData(packet_count=packets, byte_count=octets) for packets, octets in colours]
    return p4r.MeterCounterData(green=data[0], yellow=data[1], red=data[2])


def test_a_direct_meter_counts_by_colour_until_its_counts_are_cleared(switch: Switch) -> None:
    switch.insert(entry(switch, "metered", "read_colour", meter_config=RATES))
    switch.insert(entry(switch, "metered", "read_colour", key=8))

    def counted(key: int) -> Any:
        request = entry(switch, "metered", "read_colour", key=key, meter_counter_data=p4r.MeterCounterData())
        [found] = switch.read(request)
        asked = p4r.DirectMeterEntry(table_entry=request.table_entry, counter_data=p4r.MeterCounterData())
        [direct] = switch.read(p4r.Entity(direct_meter_entry=asked))
        assert direct.direct_meter_entry.counter_data == found.table_entry.meter_counter_data
        return found.table_entry.meter_counter_data

    assert colours(switch, 5) == [0, 1, 2, 2, 2]
    assert colours(switch, 2, key=8) == [0, 0]
    assert counted(9) == counts((1, 14), (1, 14), (3, 42))
    assert counted(8) == counts((2, 28), (0, 0), (0, 0))
    modify(switch, entry(switch, "metered", "read_colour", meter_config=RATES))
    assert counted(9) == counts((1, 14), (1, 14), (3, 42))
    cleared = counts((0, 0), (0, 0), (0, 0))
    modify(switch, entry(switch, "metered", "read_colour", meter_config=RATES, meter_counter_data=cleared))
    assert counted(9) == cleared
    table_entry = entry(switch, "metered", "read_colour", key=8).table_entry
    direct = p4r.DirectMeterEntry(table_entry=table_entry, counter_data=cleared)
    modify(switch, p4r.Entity(direct_meter_entry=direct))
    assert counted(8) == cleared
    direct.counter_data.green.byte_count = 1
    assert code_of(modify, switch, p4r.Entity(direct_meter_entry=direct)) == rpc_code.INVALID_ARGUMENT
    [unasked] = switch.read(entry(switch, "metered", "read_colour"))
    assert not unasked.table_entry.HasField("meter_counter_data")


def test_meters_are_refused_where_there_are_none(switch: Switch) -> None:
    wrong = [
        entry(switch, "ageing", "NoAction", meter_config=RATES),
        entry(switch, "metered", "read_colour", meter_config=p4r.MeterConfig(cir=3, pir=2)),
        entry(switch, "metered", "read_colour", meter_counter_data=counts((0, 0), (0, 0), (1, 0))),
        entry(switch, "ageing", "NoAction", meter_counter_data=p4r.MeterCounterData()),
    ]
    assert {code_of(switch.insert, item) for item in wrong} == {rpc_code.INVALID_ARGUMENT}
    assert switch.read(p4r.Entity(table_entry=p4r.TableEntry())) == []
    for table in (0, ids(switch)["metered"]):
        default = p4r.DirectMeterEntry(table_entry=p4r.TableEntry(table_id=table, is_default_action=True))
        assert code_of(switch.read, p4r.Entity(direct_meter_entry=default)) == rpc_code.INVALID_ARGUMENT


# Idle timeouts


def hit(switch: Switch) -> None:
    assert switch.process(2, bytes([4, 9]) + bytes(12)) == [(7, bytes([4, 9]) + bytes(12))]


def idle(switch: Switch) -> list[Any]:
    return [message.idle_timeout_notification for message in switch.notifications()]


def test_an_entry_without_hits_is_told_after_its_timeout_and_again_after_another(switch: Switch) -> None:
    timed = entry(switch, "ageing", "send", b"\x07", idle_timeout_ns=1000, metadata=b"m")
    switch.insert(timed)
    switch.now = 999
    assert idle(switch) == []
    switch.now = 1000
    [message] = idle(switch)
    [told] = message.table_entry
    assert (told.table_id, told.match, told.idle_timeout_ns, told.metadata) == (
        timed.table_entry.table_id,
        timed.table_entry.match,
        1000,
        b"m",
    )
    assert idle(switch) == []
    switch.now = 2000
    assert len(idle(switch)) == 1


def test_a_hit_begins_the_time_anew_and_a_removed_entry_is_not_told(switch: Switch) -> None:
    switch.insert(entry(switch, "ageing", "send", b"\x07", idle_timeout_ns=1000))
    switch.now = 600
    hit(switch)
    switch.now = 1599
    assert idle(switch) == []
    switch.now = 1600
    assert len(idle(switch)) == 1
    delete(switch, entry(switch, "ageing", "send"))
    switch.now = 10_000
    assert idle(switch) == []


def test_the_time_since_the_last_hit_is_read_where_it_is_asked_for(switch: Switch) -> None:
    switch.now = 100
    switch.insert(entry(switch, "ageing", "send", b"\x07"))
    switch.now = 150
    table = ids(switch)["ageing"]
    request = p4r.TableEntry(table_id=table, time_since_last_hit=p4r.TableEntry.IdleTimeout())
    [found] = switch.read(p4r.Entity(table_entry=request))
    assert found.table_entry.time_since_last_hit.elapsed_ns == 50
    hit(switch)
    switch.now = 157
    [found] = switch.read(p4r.Entity(table_entry=request))
    assert found.table_entry.time_since_last_hit.elapsed_ns == 7
    [found] = switch.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=table)))
    assert not found.table_entry.HasField("time_since_last_hit")


def test_idle_timeouts_are_refused_where_there_are_none(switch: Switch) -> None:
    assert (
        code_of(switch.insert, entry(switch, "metered", "read_colour", idle_timeout_ns=1)) == rpc_code.INVALID_ARGUMENT
    )
    assert code_of(switch.insert, entry(switch, "ageing", "NoAction", idle_timeout_ns=-1)) == rpc_code.INVALID_ARGUMENT


# Packet-in and packet-out


def test_a_packet_to_the_cpu_port_is_a_packet_in_with_its_metadata(switch: Switch) -> None:
    frame = bytes([0x55, 9]) + bytes(12)
    assert switch.process(300, frame) == []
    [message] = switch.notifications()
    assert message.packet.payload == frame
    assert [(item.metadata_id, item.value) for item in message.packet.metadata] == [(1, b"\x01\x2c"), (2, b"\x55")]


def test_a_packet_out_enters_the_cpu_port_with_its_metadata_in_front(switch: Switch) -> None:
    message = p4r.PacketOut(payload=b"hello")
    message.metadata.add(metadata_id=1, value=b"\x01\x2d")
    assert switch.packet_out(message) == [(301, b"hello")]


def test_packet_outs_with_wrong_metadata_are_refused(switch: Switch) -> None:
    wrong: list[list[tuple[int, bytes]]] = [
        [],
        [(1, b"\x02\x00")],
        [(1, b"\x01"), (1, b"\x01")],
        [(1, b"\x01"), (9, b"\x01")],
    ]
    for fields in wrong:
        message = p4r.PacketOut(payload=b"hello")
        for number, value in fields:
            message.metadata.add(metadata_id=number, value=value)
        assert code_of(switch.packet_out, message) in (rpc_code.INVALID_ARGUMENT, rpc_code.OUT_OF_RANGE)
    switch.cpu_port = None
    with pytest.raises(SwitchError, match="no CPU port"):
        switch.packet_out(p4r.PacketOut(payload=b"hello"))


def test_without_a_cpu_port_a_packet_leaves_like_any_other(switch: Switch) -> None:
    switch.cpu_port = None
    assert [port for port, _ in switch.process(300, bytes([0x55, 9]) + bytes(12))] == [CPU]
    assert switch.notifications() == []
