# SPDX-License-Identifier: Apache-2.0
"""Random P4Runtime messages: always an answer, never a crash, and the state stays readable."""

import random
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import U128, p4i, p4r
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_switch import Switch
from tests.gradlane_switch import batches as batch
from tests.gradlane_switch.switch_process import Controller, Process
from tests.support.effort import tries
from tests.support.paths import P4INFO, PIPELINE, PROGRAM, SWITCH_PROGRAMS

# Between them they have every kind of entity.
PROGRAMS = (PIPELINE / "gradlane", *(SWITCH_PROGRAMS / name for name in ("attached", "packet_paths")))
_NUMBERS = (-2, -1, 0, 1, 2, 3, -(1 << 63), (1 << 63) - 1, 1 << 31, 255, 511, 65535)


@cache
def known_ids() -> list[int]:
    """The ids in the P4Infos, and 0; so that random messages often mean something."""
    ids = {0}
    for program in PROGRAMS:
        info = text_format.Parse(Path(f"{program}.p4info.txtpb").read_text(), p4i.P4Info())
        for items in (info.tables, info.actions, info.action_profiles, info.counters, info.meters, info.registers):
            ids |= {item.preamble.id for item in items}
        ids |= {item.preamble.id for item in info.digests}
    return sorted(ids)


def scalar(field: Any, draw: random.Random) -> Any:
    kinds = field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_UINT32, field.CPPTYPE_UINT64, field.CPPTYPE_ENUM
    if field.cpp_type in kinds:
        if field.name.endswith("_id") and draw.random() < 0.5:
            return draw.choice(known_ids())
        small = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_ENUM)
        signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_ENUM)
        low, high = (-(1 << 31), (1 << 31) - 1) if small else (-(1 << 63), (1 << 63) - 1)
        return min(max(draw.choice(_NUMBERS), low if signed else 0), high)
    if field.cpp_type == field.CPPTYPE_BOOL:
        return draw.random() < 0.5
    if field.type == field.TYPE_BYTES:
        return draw.choice((draw.randbytes(draw.randint(0, 10)), draw.randint(0, 600).to_bytes(2, "big")))
    return "".join(chr(draw.choice((0, 10, 65, 97, 233, 0x4E2D, 0x1F600))) for _ in range(draw.randint(0, 5)))


def message(kind: Any, draw: random.Random, depth: int = 6) -> Any:
    """A message of a kind, in which about half of the fields are set.

    Of a seed: Hypothesis would need most of a second for each, and has no simpler one to offer that fails alike.
    """
    made = kind()
    for field in kind.DESCRIPTOR.fields:
        if draw.random() >= (0.4 if field.message_type is not None and depth < 5 else 0.5):
            continue
        if field.message_type is not None:
            if depth == 0 or field.message_type.GetOptions().map_entry:
                continue
            nested = field.message_type._concrete_class
            if field.is_repeated:
                getattr(made, field.name).extend(message(nested, draw, depth - 1) for _ in range(draw.randint(0, 3)))
            else:
                getattr(made, field.name).CopyFrom(message(nested, draw, depth - 1))
        elif field.is_repeated:
            getattr(made, field.name).extend(scalar(field, draw) for _ in range(draw.randint(0, 3)))
        else:
            setattr(made, field.name, scalar(field, draw))
    return made


seeds = st.integers(0, 1 << 32)


@pytest.fixture(scope="module", params=PROGRAMS, ids=[program.name for program in PROGRAMS])
def loaded(request: pytest.FixtureRequest) -> Switch:
    return Switch.load(f"{request.param}.json", f"{request.param}.p4info.txtpb")


@settings(deadline=None, max_examples=tries(80))
@given(seed=seeds)
def test_any_update_and_any_read_is_done_or_refused(loaded: Switch, seed: int) -> None:
    draw, pipeline = random.Random(seed), loaded.pipeline
    updates = [message(p4r.Update, draw) for _ in range(draw.randint(1, 4))]
    for update in updates:
        update.type = draw.choice([1, 2, 3, 1, 2, 0])
    errors = batch.write(pipeline, updates, draw.choice([0, 1]))
    assert len(errors) in (0, len(updates))
    found, errors = batch.read(pipeline, [message(p4r.Entity, draw) for _ in range(draw.randint(0, 3))])
    assert all(answer.entities for answer in found)
    loaded.process(1, draw.randbytes(draw.randint(14, 100)))


def test_what_was_written_reads_back_and_can_be_written_again(loaded: Switch) -> None:
    """After the updates above, whatever of them was taken is in canonical form."""
    for entity in loaded.read(p4r.Entity(table_entry=p4r.TableEntry(counter_data=p4r.CounterData()))):
        if not entity.table_entry.is_const:
            loaded.write(p4r.Update(type=p4r.Update.MODIFY, entity=entity))
            key = p4r.TableEntry(table_id=entity.table_entry.table_id, match=entity.table_entry.match)
            key.priority = entity.table_entry.priority
            if key.match:
                key.counter_data.SetInParent()
                assert loaded.read(p4r.Entity(table_entry=key)) == [entity]


# Over gRPC


@pytest.fixture(scope="module")
def served() -> Any:
    with Process("--program", str(PROGRAM), "--p4info", str(P4INFO)) as process:
        yield process


@pytest.fixture(scope="module")
def client(served: Process) -> Any:
    with Controller(served.address, 5) as controller:
        controller.arbitrate()
        yield controller


METHODS = {
    "Write": p4r.WriteRequest,
    "Read": p4r.ReadRequest,
    "SetForwardingPipelineConfig": p4r.SetForwardingPipelineConfigRequest,
    "GetForwardingPipelineConfig": p4r.GetForwardingPipelineConfigRequest,
    "Capabilities": p4r.CapabilitiesRequest,
}


def call(channel: grpc.Channel, method: str, request: bytes) -> grpc.StatusCode:
    path = f"/p4.v1.P4Runtime/{method}"
    try:
        if method == "Read":
            list(channel.unary_stream(path)(request, timeout=60))
        elif method == "StreamChannel":
            next(channel.stream_stream(path)(iter([request]), timeout=60), None)
        else:
            channel.unary_unary(path)(request, timeout=60)
    except grpc.RpcError as caught:
        error: Any = caught
        return error.code()
    return grpc.StatusCode.OK


@settings(deadline=None, max_examples=tries(80))
@given(seed=seeds)
def test_every_method_answers_any_message(served: Process, client: Controller, seed: int) -> None:
    draw = random.Random(seed)
    method = draw.choice(sorted(METHODS))
    request = message(METHODS[method], draw)
    if "device_id" in request.DESCRIPTOR.fields_by_name and draw.random() < 0.9:
        request.device_id = 1
    if "election_id" in request.DESCRIPTOR.fields_by_name:
        request.role, request.role_id = "", 0
        request.election_id.CopyFrom(U128.encode(5))
    code = call(client.channel, method, request.SerializeToString())
    assert code not in (grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
    assert served.running
    assert b"Traceback" not in served.unread()


@settings(deadline=None, max_examples=tries(50))
@given(seed=seeds)
def test_every_method_answers_any_bytes(served: Process, seed: int) -> None:
    randoms = random.Random(seed)
    with grpc.insecure_channel(served.address) as channel:
        for method in (*METHODS, "StreamChannel", "NoSuchMethod"):
            code = call(channel, method, randoms.randbytes(randoms.randrange(200)))
            assert code is not grpc.StatusCode.DEADLINE_EXCEEDED
    assert served.running
    assert b"Traceback" not in served.unread()


def test_a_request_that_is_no_message_is_an_invalid_argument(served: Process) -> None:
    with grpc.insecure_channel(served.address) as channel:
        for method in ("Write", "Read", "StreamChannel"):
            assert call(channel, method, b"\x0f") is grpc.StatusCode.INVALID_ARGUMENT


@settings(deadline=None, max_examples=tries(60))
@given(seed=seeds)
def test_a_stream_answers_any_message(served: Process, seed: int) -> None:
    request = message(p4r.StreamMessageRequest, random.Random(seed))
    with grpc.insecure_channel(served.address) as channel:
        assert call(channel, "StreamChannel", request.SerializeToString()) is not grpc.StatusCode.DEADLINE_EXCEEDED
    assert served.running
    assert b"Traceback" not in served.unread()
