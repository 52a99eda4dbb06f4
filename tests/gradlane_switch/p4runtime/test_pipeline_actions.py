# SPDX-License-Identifier: Apache-2.0
"""The actions of SetForwardingPipelineConfig: what each does to the program that forwards and to what was written."""

import json
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, rpc_code

from tests.gradlane_switch.small_programs import SEND, Json, action, assign, entry, field, p4info, param, program, table
from tests.gradlane_switch.switch_process import Controller, Process, failure, failures

ACTIONS = p4r.SetForwardingPipelineConfigRequest
EVERYTHING = p4r.Entity(table_entry=p4r.TableEntry())
DEFAULTS = p4r.Entity(table_entry=p4r.TableEntry(is_default_action=True))


def config(document: Json, cookie: int | None = None) -> Any:
    made = p4r.ForwardingPipelineConfig(p4info=p4info(document), p4_device_config=json.dumps(document).encode())
    if cookie is not None:
        made.cookie.cookie = cookie
    return made


def small(width: int = 8, names: tuple[str, ...] = ("t",), register: int = 4) -> Json:
    hit = action(0, "hit", [16], assign(field("h", "out"), param(0)), SEND)
    miss = action(1, "miss", [], SEND)
    tables = [
        table(number, name, [("exact", field("h", "k"))], [hit, miss], miss, following=following)
        for number, (name, following) in enumerate(zip(names, (*names[1:], None), strict=False))
    ]
    arrays = [{"name": "ingress.cells", "id": 0, "size": register, "bitwidth": 16}]
    return program([("k", width), ("pad", 32 - width), ("out", 16)], [hit, miss], tables, register_arrays=arrays)


def exact(value: int, result: int, number: int = 1) -> Any:
    match = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=bytes([value])))
    return entry(number, [match], 1, (result,))


def cell(index: int, value: int) -> Any:
    message = p4r.RegisterEntry(register_id=0x16000001, index=p4r.Index(index=index))
    message.data.bitstring = bytes([value])
    return p4r.Entity(register_entry=message)


@pytest.fixture
def client(controller: Controller) -> Iterator[Controller]:
    controller.set_config(ACTIONS.VERIFY_AND_COMMIT, config(small(), cookie=1))
    return controller


def test_verify_changes_nothing(client: Controller) -> None:
    client.insert(exact(1, 5))
    client.set_config(ACTIONS.VERIFY, config(small(names=("t", "u")), cookie=2))
    assert client.get_config().cookie.cookie == 1
    assert client.read(EVERYTHING) == [exact(1, 5)]


def test_a_saved_pipeline_takes_writes_and_forwards_from_commit_on(client: Controller) -> None:
    client.insert(exact(1, 5))
    client.set_config(ACTIONS.VERIFY_AND_SAVE, config(small(names=("t", "u")), cookie=2))
    assert client.get_config().cookie.cookie == 2
    assert client.read(EVERYTHING) == []
    client.insert(exact(2, 6, number=2))
    client.set_config(ACTIONS.COMMIT)
    assert client.read(EVERYTHING) == [exact(2, 6, number=2)]
    assert failure(client.set_config, ACTIONS.COMMIT)[0] is grpc.StatusCode.NOT_FOUND


def test_a_saved_pipeline_is_forgotten_when_another_is_committed(client: Controller) -> None:
    client.set_config(ACTIONS.VERIFY_AND_SAVE, config(small(names=("t", "u")), cookie=2))
    client.set_config(ACTIONS.VERIFY_AND_COMMIT, config(small(), cookie=3))
    assert client.get_config().cookie.cookie == 3
    assert failure(client.set_config, ACTIONS.COMMIT) == (
        grpc.StatusCode.NOT_FOUND,
        "no config is saved: VERIFY_AND_SAVE saves one",
    )


def test_commit_takes_no_config(client: Controller) -> None:
    assert failure(client.set_config, ACTIONS.COMMIT, config(small())) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "COMMIT takes no config: it realizes the one that was saved",
    )


def test_a_pipeline_without_a_cookie_reads_back_without_one(client: Controller) -> None:
    client.set_config(ACTIONS.VERIFY_AND_COMMIT, config(small()))
    assert not client.get_config().HasField("cookie")
    client.set_config(ACTIONS.VERIFY_AND_COMMIT, config(small(), cookie=0))
    assert client.get_config().HasField("cookie")


def test_reconcile_keeps_what_controllers_wrote(client: Controller) -> None:
    group = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry(multicast_group_id=3))
    group.multicast_group_entry.replicas.add(port=b"\x01", instance=2)
    default = p4r.TableEntry(table_id=0x02000001, is_default_action=True)
    default.action.CopyFrom(exact(0, 9).table_entry.action)
    client.insert(exact(1, 5), exact(2, 6), p4r.Entity(packet_replication_engine_entry=group))
    changes = [p4r.Entity(table_entry=default), cell(1, 77), cell(3, 78)]
    client.write(*(p4r.Update(type=p4r.Update.MODIFY, entity=item) for item in changes))
    client.set_config(ACTIONS.RECONCILE_AND_COMMIT, config(small(names=("t", "u"), register=2), cookie=2))
    assert client.get_config().cookie.cookie == 2
    assert client.read(EVERYTHING) == [exact(1, 5), exact(2, 6)]
    defaults = client.read(DEFAULTS)
    assert defaults[0].table_entry == default
    assert defaults[1].table_entry.action.action.action_id == 0x01000002
    groups = p4r.PacketReplicationEngineEntry(multicast_group_entry=p4r.MulticastGroupEntry())
    assert client.read(p4r.Entity(packet_replication_engine_entry=groups))[0].packet_replication_engine_entry == group
    assert client.read(p4r.Entity(register_entry=p4r.RegisterEntry())) == [cell(0, 0), cell(1, 77)]
    client.insert(exact(3, 7, number=2))


def test_reconcile_with_nothing_before_it_is_a_commit() -> None:
    with Process("--device-id", "1") as fresh, Controller(fresh.address, 1) as only:
        assert only.arbitrate().status.code == rpc_code.OK
        only.set_config(ACTIONS.RECONCILE_AND_COMMIT, config(small(), cookie=8))
        assert only.get_config().cookie.cookie == 8


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (small(width=4), "t.k0: 0x20 does not fit in 4 bits"),
        (small(names=("other",)), "id 0x2000001 meant t and now means other"),
        (small(names=()), "there is no table with the id 0x2000001"),
    ],
)
def test_reconcile_that_would_lose_an_entry_is_refused_and_changes_nothing(
    client: Controller, after: Json, message: str
) -> None:
    client.insert(exact(0x20, 5))
    code, text = failure(client.set_config, ACTIONS.RECONCILE_AND_COMMIT, config(after, cookie=2))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text.startswith("the new program can't keep the state: ")
    assert message in text
    assert client.get_config().cookie.cookie == 1
    assert client.read(EVERYTHING) == [exact(0x20, 5)]


def test_writes_are_refused_before_there_is_a_pipeline() -> None:
    with Process("--device-id", "1") as fresh, Controller(fresh.address, 1) as only:
        assert only.arbitrate().status.code == rpc_code.OK
        assert failure(only.insert, exact(1, 2))[0] is grpc.StatusCode.FAILED_PRECONDITION
        assert failure(only.set_config, ACTIONS.COMMIT)[0] is grpc.StatusCode.NOT_FOUND
        only.set_config(ACTIONS.VERIFY_AND_SAVE, config(small()))
        only.insert(exact(1, 2))
        assert failures(only.insert, exact(1, 2))[0][0] == rpc_code.ALREADY_EXISTS
