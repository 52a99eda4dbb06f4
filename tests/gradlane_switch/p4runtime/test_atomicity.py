# SPDX-License-Identifier: Apache-2.0
"""Batches: each update on its own, or all of them or none."""

import json
import resource
import threading
from typing import Any

import pytest
from finsy.proto import p4r, rpc_code
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradlane_switch import EntityError, Switch
from gradlane_switch.p4runtime import atomic
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch import batches as batch
from tests.gradlane_switch.small_programs import (
    SEND,
    Json,
    action,
    assign,
    encode,
    entry,
    field,
    load,
    p4info,
    param,
    program,
    table,
)
from tests.gradlane_switch.switch_process import Controller, failure, failures
from tests.support.effort import only_thorough, tries

INSERT, MODIFY, DELETE = p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE
CONTINUE, ROLLBACK = p4r.WriteRequest.CONTINUE_ON_ERROR, p4r.WriteRequest.ROLLBACK_ON_ERROR
ATOMIC = p4r.WriteRequest.DATAPLANE_ATOMIC
EVERYTHING = (
    p4r.Entity(table_entry=p4r.TableEntry()),
    p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True)),
    p4r.Entity(register_entry=p4r.RegisterEntry()),
    p4r.Entity(counter_entry=p4r.CounterEntry()),
    p4r.Entity(meter_entry=p4r.MeterEntry()),
    p4r.Entity(
        packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(
            multicast_group_entry=p4r.MulticastGroupEntry()
        )
    ),
)


def document() -> Json:
    hit = action(0, "hit", [16], assign(field("h", "out"), param(0)), SEND)
    miss = action(1, "miss", [], SEND)
    tables = [table(0, "t", [("ternary", field("h", "k"))], [hit, miss], miss)]
    return program(
        [("k", 16), ("out", 16)],
        [hit, miss],
        tables,
        register_arrays=[{"name": "r", "id": 0, "size": 3, "bitwidth": 16}],
        counter_arrays=[{"name": "c", "id": 0, "size": 3, "is_direct": False}],
        meter_arrays=[{"name": "m", "id": 0, "size": 3, "is_direct": False, "rate_count": 2, "type": "bytes"}],
    )


@pytest.fixture
def small() -> Switch:
    return load(document())


def row(value: int, result: int, priority: int = 1) -> Any:
    match = p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=encode(value), mask=b"\xff\xff"))
    return entry(1, [match], 1, (result,), priority)


def group(number: int, *ports: int) -> Any:
    message = p4r.MulticastGroupEntry(multicast_group_id=number)
    for port in ports:
        message.replicas.add(port=bytes([port]), instance=0)
    return p4r.Entity(packet_replication_engine_entry=p4r.PacketReplicationEngineEntry(multicast_group_entry=message))


def indexed(message: Any, index: int | None) -> Any:
    if index is not None:
        message.index.index = index
    return message


def register(index: int | None, value: int) -> Any:
    message = indexed(p4r.RegisterEntry(register_id=0x16000001), index)
    message.data.bitstring = encode(value)
    return p4r.Entity(register_entry=message)


def counter(index: int | None, packets: int) -> Any:
    message = p4r.CounterEntry(counter_id=0x12000001, data=p4r.CounterData(packet_count=packets))
    return p4r.Entity(counter_entry=indexed(message, index))


def meter(index: int | None, rate: int) -> Any:
    message = p4r.MeterEntry(meter_id=0x15000001)
    if rate:
        message.config.cir = message.config.pir = rate
        message.config.cburst = message.config.pburst = 1000
    return p4r.Entity(meter_entry=indexed(message, index))


def default(result: int | None) -> Any:
    message = p4r.TableEntry(table_id=0x02000001, is_default_action=True)
    if result is not None:
        message.action.CopyFrom(row(0, result).table_entry.action)
    return p4r.Entity(table_entry=message)


def everything(switch: Switch) -> list[Any]:
    found = [item for wanted in EVERYTHING for item in switch.read(wanted)]
    return sorted(found, key=lambda item: item.SerializeToString(deterministic=True))


FEW = st.integers(0, 3)
INDEX = st.one_of(st.none(), st.integers(0, 3))
ENTITIES = st.one_of(
    st.builds(row, FEW, FEW, st.integers(0, 2)),
    st.builds(default, st.one_of(st.none(), FEW)),
    st.builds(register, INDEX, FEW),
    st.builds(counter, INDEX, FEW),
    st.builds(meter, INDEX, FEW),
    st.builds(group, FEW, FEW, FEW),
)


def update(kind: Any, entity: Any) -> Any:
    return p4r.Update(type=kind, entity=entity)


UPDATES = st.builds(update, st.sampled_from([INSERT, MODIFY, DELETE]), ENTITIES)


@pytest.mark.parametrize("atomicity", [ROLLBACK, ATOMIC])
@settings(deadline=None, max_examples=tries(60))
@given(before=st.lists(UPDATES, max_size=12), updates=st.lists(UPDATES, min_size=1, max_size=12))
@example(before=[], updates=[update(INSERT, row(1, 1)), update(MODIFY, row(1, 2)), update(INSERT, row(1, 3))])
@example(before=[], updates=[update(MODIFY, register(0, n)) for n in (1, 2)] + [update(INSERT, register(0, 3))])
def test_a_batch_that_fails_leaves_everything_as_it_was(atomicity: int, before: list[Any], updates: list[Any]) -> None:
    switch, other = load(document()), load(document())
    for target in (switch, other):
        batch.write(target.pipeline, before)
    state = everything(switch)
    errors = batch.write(switch.pipeline, updates, atomicity)
    codes = [error.canonical_code for error in batch.write(other.pipeline, updates)]
    if any(codes):
        assert everything(switch) == state
        first = next(number for number, code in enumerate(codes) if code)
        assert errors[first].canonical_code == codes[first]
        rest = [error.canonical_code for number, error in enumerate(errors) if number != first]
        assert rest == [rpc_code.ABORTED] * (len(updates) - 1)
    else:
        assert errors == []
        assert everything(switch) == everything(other)


def test_counts_of_an_entry_survive_a_rollback(primary: Controller, names: dict[str, int]) -> None:
    message = p4r.TableEntry(table_id=names["senders"], counter_data=p4r.CounterData(packet_count=3, byte_count=9))
    for number in (1, 2, 3):
        message.match.add(field_id=number).exact.value = b"\x01"
    message.action.action.action_id = names["permit"]
    for number in (1, 2, 3):
        message.action.action.params.add(param_id=number, value=b"\x01")
    sender = p4r.Entity(table_entry=message)
    primary.insert(sender)
    bad = p4r.Update(type=DELETE, entity=p4r.Entity(table_entry=p4r.TableEntry(table_id=1)))
    errors = failures(primary.write, p4r.Update(type=DELETE, entity=sender), bad, atomicity=ROLLBACK)
    assert errors == [
        (rpc_code.ABORTED, "not applied, because update 1 of the batch failed"),
        (rpc_code.NOT_FOUND, errors[1][1]),
    ]
    request = p4r.TableEntry(table_id=names["senders"], counter_data=p4r.CounterData())
    assert primary.read(p4r.Entity(table_entry=request)) == [sender]


def test_an_unknown_mode_is_refused(primary: Controller) -> None:
    code, text = failure(primary.write, atomicity=9)
    known = "0 is CONTINUE_ON_ERROR, 1 is ROLLBACK_ON_ERROR, 2 is DATAPLANE_ATOMIC"
    assert (code.name, text) == ("INVALID_ARGUMENT", f"atomicity 9 is unknown: {known}")


def paired(*, apart: bool = False) -> Switch:
    """Two tables, whose entries for a key say what two fields become; the second may be in egress."""
    first = action(0, "first", [16], assign(field("h", "a"), param(0)), SEND)
    second = action(1, "second", [16], assign(field("h", "b"), param(0)))
    nothing = action(2, "nothing", [])
    following = None if apart else "two"
    tables = [
        table(0, "one", [("exact", field("h", "k"))], [first, nothing], nothing, following=following),
        table(1, "two", [("ternary", field("h", "k"))], [second, nothing], nothing),
    ]
    source = program([("k", 16), ("a", 16), ("b", 16)], [first, second, nothing], tables)
    info = p4info(source)
    if apart:
        ingress, egress = source["pipelines"]
        egress |= {"init_table": "two", "tables": [ingress["tables"].pop()]}
    return Switch(Pipeline(json.dumps(source).encode(), info, Lock()))


def pair(value: int) -> list[Any]:
    exact = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x07"))
    ternary = p4r.FieldMatch(field_id=1, ternary=p4r.FieldMatch.Ternary(value=b"\x07", mask=b"\x07"))
    return [entry(1, [exact], 1, (value,)), entry(2, [ternary], 2, (value,), 1)]


def test_packets_see_all_of_an_atomic_batch_or_nothing_of_it() -> None:
    switch = paired()
    assert batch.write(switch.pipeline, [p4r.Update(type=INSERT, entity=item) for item in pair(0)], ATOMIC) == []
    ended = threading.Event()
    seen: set[bytes] = set()

    def forward() -> None:
        while not ended.is_set():
            seen.update(frame for _, frame in switch.process(0, b"\0\x07" + bytes(4)))

    thread = threading.Thread(target=forward)
    thread.start()
    try:
        for value in range(1, 400):
            replaced = [p4r.Update(type=DELETE, entity=item) for item in pair(0)]
            replaced += [p4r.Update(type=INSERT, entity=item) for item in pair(value)]
            changed = [p4r.Update(type=MODIFY, entity=item) for item in pair(value)]
            assert batch.write(switch.pipeline, replaced if value % 2 else changed, ATOMIC) == []
            # Fails at its end, when packets could have met what it began with.
            failing = [p4r.Update(type=DELETE, entity=item) for item in pair(0)]
            failing.append(p4r.Update(type=DELETE, entity=pair(0)[0]))
            assert len(batch.write(switch.pipeline, failing, ATOMIC)) == 3
    finally:
        ended.set()
        thread.join()
    assert all(frame[2:4] == frame[4:6] for frame in seen)
    assert len(seen) > 1


def test_an_atomic_batch_that_would_keep_packets_waiting_is_refused_whole(primary: Controller) -> None:
    switch = load(large_document())
    request = p4r.WriteRequest()
    fill(request, atomic.MOST + 1)
    with pytest.raises(EntityError, match="batch is too large: packets would have to wait") as caught:
        batch.write(switch.pipeline, request.updates, ATOMIC)
    assert caught.value.code == rpc_code.UNIMPLEMENTED
    assert everything(switch) == everything(load(large_document()))
    assert batch.write(switch.pipeline, request.updates[:-1], ATOMIC) == []
    many = [p4r.Update(type=INSERT, entity=row(value, 1)) for value in range(256)]
    with pytest.raises(EntityError, match=r"1\.5 times as long as allowed"):
        batch.write(load(document()).pipeline, many, ATOMIC)
    code, text = failure(primary.write, *[p4r.Update()] * (atomic.MOST + 1), atomicity=ATOMIC)
    assert (code.name, "1.0 times" in text) == ("UNIMPLEMENTED", True)


def test_an_atomic_batch_that_ingress_and_egress_would_see_apart_is_refused() -> None:
    """A packet may wait in a queue between them."""
    switch = paired(apart=True)
    updates = [p4r.Update(type=INSERT, entity=item) for item in pair(5)]
    with pytest.raises(EntityError, match="both what ingress uses and what egress uses") as caught:
        batch.write(switch.pipeline, updates, ATOMIC)
    assert caught.value.code == rpc_code.UNIMPLEMENTED
    assert switch.read(p4r.Entity(table_entry=p4r.TableEntry())) == []
    for update in updates:
        assert batch.write(switch.pipeline, [update], ATOMIC) == []
    assert switch.process(0, b"\0\x07" + bytes(4)) == [(1, b"\0\x07\0\5\0\5")]


def test_a_batch_without_updates_does_nothing(primary: Controller) -> None:
    primary.write()
    primary.write(atomicity=ROLLBACK)
    primary.write(atomicity=ATOMIC)


def large_document() -> Json:
    """As above, with an exact key of 32 bits and room for 100,000 entries."""
    source = document()
    source["pipelines"][0]["tables"][0] |= {"max_size": 100_000, "match_type": "exact"}
    source["pipelines"][0]["tables"][0]["key"][0]["match_type"] = "exact"
    source["header_types"][-1]["fields"][0][1] = 32
    return source


def fill(request: Any, count: int) -> None:
    for number in range(count):
        match = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=encode(number)))
        request.updates.add(type=INSERT, entity=entry(1, [match], 1, (number % 65536,)))


def test_a_batch_whose_caller_gives_up_is_still_done_whole_or_not_begun(controller: Controller) -> None:
    source = large_document()
    made = p4r.ForwardingPipelineConfig(p4info=p4info(source), p4_device_config=json.dumps(source).encode())
    everything = p4r.Entity(table_entry=p4r.TableEntry())
    controller.set_config(p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, made)
    request = p4r.WriteRequest(**controller.identity)
    fill(request, 100_000)
    assert failure(controller.stub.Write, request, timeout=0.3)[0].name == "DEADLINE_EXCEEDED"
    controller.write()  # Done after what the same controller has asked for before.
    assert len(controller.read(everything)) in (0, 100_000)


@pytest.mark.parametrize(
    "atomicity", [pytest.param(CONTINUE, marks=only_thorough("keeps less than a batch that may go back")), ROLLBACK]
)
def test_a_large_batch_takes_bounded_memory(atomicity: int) -> None:
    """100,000 entries; 1.5 kB of memory for each, with the request, is enough."""
    switch = load(large_document())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    request = p4r.WriteRequest(atomicity=atomicity)
    fill(request, 100_000)
    assert batch.write(switch.pipeline, request.updates, atomicity) == []
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 150_000_000
    assert len(switch.pipeline.state.tables[0].entries) == 100_000
    [[_, out]] = switch.process(0, (77_777).to_bytes(4, "big") + b"\0\0")
    assert out[-2:] == (77_777 % 65536).to_bytes(2, "big")
