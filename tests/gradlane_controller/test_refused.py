# SPDX-License-Identifier: Apache-2.0
"""A switch that refuses one entry gets all others, and nothing that works is taken away for what does not come."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy import Action, GRPCStatusCode, Match, P4ClientError, P4IndirectAction, P4TableEntry, Switch, SwitchOptions
from finsy.proto import p4r, rpc_code, rpc_status
from google.protobuf.any_pb2 import Any as PackedAny

from gradlane_controller.policy import Entity
from gradlane_controller.session import connection
from gradlane_controller.session.arbitration import Arbitration
from gradlane_controller.session.bounds import bound
from gradlane_controller.session.convergence import converge, difference
from gradlane_controller.session.writing import AT_ONCE, Refused, write
from tests.gradlane_controller.controller_thread import PIPELINE, ControllerThread
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.running_switches import Target
from tests.gradlane_controller.texts import fabric_text, job_text

SCHEMA = PIPELINE.schema
PORTS, JOBS = SCHEMA.tables["ports"].id, SCHEMA.tables["jobs"].id
JOBS_SIZE = 255


def of_table(number: int) -> Callable[[p4r.Entity], bool]:
    """Its entry for port 1."""
    return lambda it: it.table_entry.table_id == number and it.table_entry.match[0].exact.value == b"\x01"


def test_what_is_refused_is_not_tried_again_at_once_and_the_controller_is_ready(
    fake_switch: FakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEARTBEAT_SECONDS", 3600.0)
    fake_switch.refuse = of_table(PORTS)
    it = ControllerThread(tmp_path, fabric_text(fake_switch.address), job_text())
    try:
        it.do(it.it.wait_until_ready)
        assert it.switch()["ready"]
        tries = fake_switch.log.count("INSERT table_entry")
        time.sleep(1)
        assert fake_switch.log.count("INSERT table_entry") == tries
    finally:
        it.close()


def test_a_switch_that_refuses_one_entry_gets_all_others_and_is_asked_again(
    fake_switch: FakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "HEARTBEAT_SECONDS", 0.02)
    fake_switch.refuse = of_table(PORTS)
    with caplog.at_level(logging.ERROR):
        it = ControllerThread(tmp_path, fabric_text(fake_switch.address), job_text())
        try:
            it.until(lambda: it.switch()["ready"])
            name = "insert of ports ingress_port=1: RESOURCE_EXHAUSTED: no room"
            assert it.switch()["refused"] == [name]
            assert it.switch()["problem"] == f"refuses 1 of its entries: {name}"
            assert not it.switch()["up_to_date"]
            assert len(fake_switch.entities) == sum(it.switch()["entries"].values()) - 1
            tries = fake_switch.log.count("INSERT table_entry")
            it.until(lambda: fake_switch.log.count("INSERT table_entry") > tries + 3)  # now and then
            assert it.switch()["mended"] == {"times": 0, "entities": 0}, "it is no other client's doing"
            assert [line for line in caplog.messages if "refused" in line] == [
                f"switch 's1' at {fake_switch.address}: refused, and tried again now and then: {name}"
            ]
            # A job that it takes is not refused for that.
            it.do(it.it.put_job, job_text("other", 2, hosts=(3, 4), base=4096))
            fake_switch.refuse = lambda _entity: False
            it.until(lambda: it.switch()["refused"] == [] and it.switch()["up_to_date"] and not it.switch()["problem"])
            assert len(fake_switch.entities) == sum(it.switch()["entries"].values())
        finally:
            it.close()


class Stub:
    """What `write` needs of a switch: holds updates by what they are of, and refuses some with a code."""

    p4info = SCHEMA

    def __init__(self, refuse: Callable[[p4r.Update], int] = lambda _: 0) -> None:
        self.done: list[p4r.Update] = []
        self.requests: list[int] = []
        self._refuse = refuse

    async def write(self, updates: Iterable[p4r.Update]) -> None:
        updates = list(updates)
        self.requests.append(len(updates))
        codes = [self._refuse(update) for update in updates]
        self.done += [update for update, code in zip(updates, codes, strict=True) if not code]
        if any(codes):
            status = rpc_status.Status(code=rpc_code.UNKNOWN)
            for code in codes:
                packed = PackedAny()
                packed.Pack(p4r.Error(canonical_code=code, message="no"))
                status.details.append(packed)
            metadata = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
            problem = grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN, grpc.aio.Metadata(), metadata)
            raise P4ClientError(problem, "Write")


def written(stub: Stub, held: Sequence[Entity], desired: Sequence[Entity]) -> list[Refused]:
    """What is refused on the way from one state to the other."""
    done, refused = asyncio.run(write(stub, difference(SCHEMA, held, desired)))  # pyright: ignore[reportArgumentType]
    assert done == stub.done
    return refused


def route(number: int, group: int) -> Entity:
    return P4TableEntry(
        "ipv4_routes", match=Match(destination=f"10.0.{number}.0/24"), action=Action("set_next_hop", group=group)
    )


def next_hop(group: int) -> Entity:
    mac = "02:00:00:00:00:01"
    forward = Action("forward", port=1, next_hop=mac, own=mac)
    return P4TableEntry("next_hops", match=Match(group=group), action=P4IndirectAction([((1, 1), forward)]))


def job(number: int) -> Entity:
    values = {"job_index": 1, "slot_base": 0, "slot_mask": 255, "max_share": 1, "trim": 0, "spray": 0}
    return P4TableEntry("jobs", match=Match(job=number), action=Action("set_job", **values))


def refusing(entity: Entity, code: int = rpc_code.INVALID_ARGUMENT) -> Callable[[p4r.Update], int]:
    message = entity.encode(SCHEMA)
    return lambda update: code if update.entity == message and update.type != p4r.Update.DELETE else 0


def test_routes_wait_for_a_group_that_is_refused_and_what_they_replace_stays() -> None:
    held = [next_hop(1), route(1, 1), job(1)]
    stub = Stub(refusing(next_hop(2)))
    refused = written(stub, held, [next_hop(2), next_hop(3), route(1, 2), route(2, 3), job(2)])
    kept = {"10.0.1.0/24 still leads to group 1": route(1, 2), "which stays": next_hop(1)}
    assert {it.update.entity.SerializeToString() for it in refused} == {
        it.encode(SCHEMA).SerializeToString() for it in (next_hop(2), *kept.values())
    }
    assert {(update.type, update.entity.table_entry.table_id) for update in stub.done} == {
        (p4r.Update.INSERT, SCHEMA.tables["next_hops"].id),
        (p4r.Update.INSERT, SCHEMA.tables["ipv4_routes"].id),
        (p4r.Update.INSERT, JOBS),
        (p4r.Update.DELETE, JOBS),
    }
    assert next(it.describe(SCHEMA) for it in refused) == "insert of next_hops group=2: INVALID_ARGUMENT: no"


@pytest.mark.parametrize(
    ("code", "stays"),
    [(rpc_code.INVALID_ARGUMENT, True), (rpc_code.RESOURCE_EXHAUSTED, False), (rpc_code.UNKNOWN, False)],
)
def test_old_routes_stay_while_a_new_one_is_refused_but_for_want_of_room(code: int, stays: bool) -> None:
    stub = Stub(refusing(route(2, 1), code))
    refused = written(stub, [next_hop(1), route(1, 1)], [next_hop(1), route(2, 1)])
    assert [it.update.type for it in refused] == [p4r.Update.INSERT, *[p4r.Update.DELETE] * stays]
    assert len(stub.done) == (0 if stays else 1)


def test_many_updates_go_in_several_requests_and_each_refusal_is_told() -> None:
    stub = Stub(lambda it: rpc_code.NOT_FOUND if it.entity.table_entry.match[0].exact.value == b"\x07" else 0)
    refused = written(stub, [], [job(number % 255 + 1) for number in range(255)])
    assert [it.code for it in refused] == [GRPCStatusCode.NOT_FOUND]
    routes = [route(number % 256, 1) for number in range(256)]
    many = [
        P4TableEntry("ipv4_routes", match=Match(destination=f"10.{n >> 8}.{n & 255}.0/24"), action=it.action)
        for n, it in zip(range(2 * AT_ONCE + 1), routes * 20, strict=False)
        if isinstance(it, P4TableEntry)
    ]
    stub = Stub()
    assert written(stub, [], many) == []
    assert stub.requests == [AT_ONCE, AT_ONCE, 1]


def test_a_request_that_fails_as_a_whole_is_no_refusal_of_its_entries() -> None:
    class Lost(Stub):
        async def write(self, updates: Iterable[p4r.Update]) -> None:
            problem = grpc.aio.AioRpcError(grpc.StatusCode.PERMISSION_DENIED, grpc.aio.Metadata(), grpc.aio.Metadata())
            raise P4ClientError(problem, "Write")

    with pytest.raises(P4ClientError):
        written(Lost(), [], [job(1)])


def test_a_target_that_has_no_room_for_some_entries_has_all_others(target: Target) -> None:
    """Of the table of jobs; what it holds is asked by a client that shares no code with the controller."""
    from tests.gradlane_controller.test_targets import read_everything

    async def run() -> tuple[Any, list[Refused]]:
        options = SwitchOptions(p4info=PIPELINE.p4info, p4blob=PIPELINE.program)
        switch = Switch("s1", target.address, options)
        bound(switch, Arbitration(lambda: 1, lambda _least: None))
        async with switch:
            entities = [next_hop(1), route(1, 1), *(job(number + 1) for number in range(JOBS_SIZE + 5)), route(2, 1)]
            return await converge(switch, entities)

    changes, refused = asyncio.run(run())
    assert changes.inserted == JOBS_SIZE + 3
    assert len(refused) == 5
    no_room = GRPCStatusCode.UNKNOWN if target.kind == "bmv2" else GRPCStatusCode.RESOURCE_EXHAUSTED
    assert {it.code for it in refused} == {no_room}, refused
    tables = [p4r.Entity.FromString(octets).table_entry.table_id for octets in read_everything(target, digest=False)]
    assert tables.count(JOBS) == JOBS_SIZE
    assert tables.count(SCHEMA.tables["ipv4_routes"].id) == 2
