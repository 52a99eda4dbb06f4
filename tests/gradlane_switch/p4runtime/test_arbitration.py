# SPDX-License-Identifier: Apache-2.0
"""Roles and election ids: each role has a primary controller of its own, and every controller knows where it stands."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from finsy.proto import U128, p4r, rpc_code

from gradlane_switch import EntityError
from gradlane_switch.p4runtime.arbitration import MAX_CLIENTS, MAX_ROLES, Arbiter, Client
from tests.gradlane_switch.switch_process import Controller, Process, failure


def update(role: str = "", election_id: int | None = 1, device_id: int = 1) -> Any:
    message = p4r.MasterArbitrationUpdate(device_id=device_id)
    if election_id is not None:
        message.election_id.CopyFrom(U128.encode(election_id))
    if role:
        message.role.name = role
    return message


class Heard(Client):
    """A client, and the arbitration messages that it was sent."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        super().__init__(lambda message: self.messages.append(message.arbitration))

    def codes(self) -> list[int]:
        codes = [message.status.code for message in self.messages]
        self.messages.clear()
        return codes


@pytest.fixture
def arbiter() -> Arbiter:
    return Arbiter(1)


@pytest.fixture
def join(arbiter: Arbiter) -> Callable[..., Heard]:
    def joined(role: str = "", election_id: int | None = 1) -> Heard:
        client = Heard()
        arbiter.update(client, update(role, election_id))
        if client.is_primary:
            arbiter.notify(client)
        return client

    return joined


def refused(call: Callable[..., Any], *args: Any) -> int:
    with pytest.raises(EntityError) as caught:
        call(*args)
    return caught.value.code


def test_each_role_has_its_own_primary(arbiter: Arbiter, join: Callable[..., Heard]) -> None:
    clients = [join("", 5), join("left", 5), join("right", 3)]
    assert [client.codes() for client in clients] == [[rpc_code.OK]] * 3
    assert arbiter.primaries == clients
    for role, election_id in (("", 5), ("left", 5), ("right", 3)):
        request = p4r.WriteRequest(device_id=1, role=role, election_id=U128.encode(election_id))
        arbiter.require_primary(request)
    right = p4r.WriteRequest(device_id=1, role="right", election_id=U128.encode(5))
    assert refused(arbiter.require_primary, right) == rpc_code.PERMISSION_DENIED
    arbiter.leave(clients[1])
    assert clients[0].codes() == clients[2].codes() == []
    left = p4r.WriteRequest(device_id=1, role="left", election_id=U128.encode(5))
    assert refused(arbiter.require_primary, left) == rpc_code.PERMISSION_DENIED


def test_a_message_names_the_role_and_the_highest_id_that_was_seen(
    join: Callable[..., Heard], arbiter: Arbiter
) -> None:
    first = join("left", 7)
    backup = join("left", 3)
    arbiter.leave(first)
    told = backup.messages[-1]
    assert (told.role.name, U128.decode(told.election_id), told.device_id) == ("left", 7, 1)
    assert told.status.code == rpc_code.NOT_FOUND
    standby = join("idle", None)
    assert not standby.messages[-1].HasField("election_id")


def test_a_primary_that_steps_down_leaves_its_role_without_one(arbiter: Arbiter, join: Callable[..., Heard]) -> None:
    primary, backup = join("", 5), join("", 3)
    assert [primary.codes(), backup.codes()] == [[rpc_code.OK], [rpc_code.ALREADY_EXISTS]]
    assert arbiter.update(primary, update("", 2)) is primary.role
    assert not primary.is_primary
    assert primary.codes() == backup.codes() == [rpc_code.NOT_FOUND]
    assert arbiter.update(backup, update("", 4)) is backup.role
    assert not backup.is_primary
    assert backup.codes() == [rpc_code.NOT_FOUND]
    assert primary.codes() == []
    assert arbiter.update(backup, update("", 5)) is backup.role
    assert backup.is_primary
    assert primary.codes() == [rpc_code.ALREADY_EXISTS]


def test_an_update_that_changes_nothing_is_told_to_all(arbiter: Arbiter, join: Callable[..., Heard]) -> None:
    primary, backup = join("", 5), join("", 3)
    assert [primary.codes(), backup.codes()] == [[rpc_code.OK], [rpc_code.ALREADY_EXISTS]]
    assert arbiter.update(primary, update("", 5)) is primary.role
    assert primary.is_primary
    assert backup.codes() == [rpc_code.ALREADY_EXISTS]


def test_zero_is_an_election_id_and_none_is_not(arbiter: Arbiter, join: Callable[..., Heard]) -> None:
    standby = join("", None)
    assert standby.codes() == [rpc_code.NOT_FOUND]
    nobody = p4r.WriteRequest(device_id=1)
    assert refused(arbiter.require_primary, nobody) == rpc_code.PERMISSION_DENIED
    zero = join("", 0)
    assert zero.codes() == [rpc_code.OK]
    assert refused(arbiter.require_primary, nobody) == rpc_code.PERMISSION_DENIED
    arbiter.require_primary(p4r.WriteRequest(device_id=1, election_id=U128.encode(0)))


def test_what_ends_a_stream(arbiter: Arbiter, join: Callable[..., Heard]) -> None:
    client = join("left", 5)
    assert refused(arbiter.update, Heard(), update(device_id=2)) == rpc_code.NOT_FOUND
    assert refused(arbiter.update, client, update("left", 5, device_id=2)) == rpc_code.FAILED_PRECONDITION
    assert refused(arbiter.update, client, update("right", 5)) == rpc_code.FAILED_PRECONDITION
    assert refused(arbiter.update, Heard(), update("left", 5)) == rpc_code.INVALID_ARGUMENT
    configured = update("right", 5)
    configured.role.config.type_url = "type.googleapis.com/x"
    assert refused(arbiter.update, Heard(), configured) == rpc_code.INVALID_ARGUMENT
    assert refused(arbiter.require_reader, p4r.ReadRequest(device_id=1, role="right")) == rpc_code.NOT_FOUND
    assert client.is_primary


def test_a_role_has_a_bounded_number_of_streams(arbiter: Arbiter, join: Callable[..., Heard]) -> None:
    for number in range(MAX_CLIENTS):
        join("", number)
    assert refused(arbiter.update, Heard(), update("", MAX_CLIENTS)) == rpc_code.RESOURCE_EXHAUSTED
    join("other", 1)


def test_there_is_a_bounded_number_of_roles(arbiter: Arbiter, join: Callable[..., Heard]) -> None:
    for number in range(1, MAX_ROLES):  # beside the default role
        join(f"role {number}")
    assert refused(arbiter.update, Heard(), update("one more")) == rpc_code.RESOURCE_EXHAUSTED
    join("role 1", 2)


def test_controllers_of_two_roles_write_side_by_side(switch: Process, primary: Controller) -> None:
    with Controller(switch.address, 1, role="left") as left:
        assert failure(left.write) == (
            grpc.StatusCode.NOT_FOUND,
            "no controller has joined role left: its stream's arbitration update names the role",
        )
        assert left.arbitrate().status.code == rpc_code.OK
        left.write()
        primary.write()
        assert left.read(p4r.Entity(table_entry=p4r.TableEntry())) == []
        with Controller(switch.address, 2, role="left") as better:
            assert better.arbitrate().status.code == rpc_code.OK
            assert left.next().status.code == rpc_code.ALREADY_EXISTS
            assert failure(left.write)[0] is grpc.StatusCode.PERMISSION_DENIED
            better.write()
        primary.write()
