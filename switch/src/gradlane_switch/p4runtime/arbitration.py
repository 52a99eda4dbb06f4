# SPDX-License-Identifier: Apache-2.0
"""Client arbitration (P4Runtime specification, chapter 5): which controller is the primary one of each role.

Every role has full access: role configs, whose format the specification leaves open, are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from finsy.proto import U128, p4r, rpc_code

from gradlane_switch.errors import EntityError
from gradlane_switch.p4info.bytestrings import invalid

Send = Callable[[Any], None]
RoleKey = tuple[str, int]
"""Name of a role, and the number by which older clients call it; ("", 0) is the default role."""

MAX_CLIENTS = 64
"""Streams of one role."""
MAX_ROLES = 256
"""Roles are remembered, with the highest election id of each, as long as the switch runs."""


class Client:
    """A stream of a controller. `send` takes p4.v1.StreamMessageResponse messages for it."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.role: Role | None = None
        self.election_id: int | None = None

    @property
    def is_primary(self) -> bool:
        """Whether this controller may write and takes part in packet I/O."""
        return self.role is not None and self.role.primary is self


@dataclass
class Role:
    """The live controllers of a role. The primary one has the highest election id that was ever seen."""

    key: RoleKey
    clients: list[Client] = field(default_factory=list)
    highest: int | None = None
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Who has it is the one of the role whose request changes something: they are done one after the other."""

    @property
    def primary(self) -> Client | None:
        """The controller that may write, if it is there."""
        if self.highest is None:
            return None
        return next((client for client in self.clients if client.election_id == self.highest), None)

    def __str__(self) -> str:
        name, number = self.key
        return f"role {name or number}" if name or number else "the default role"


class Arbiter:
    """The live controllers of one device."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._roles: dict[RoleKey, Role] = {("", 0): Role(("", 0))}

    @property
    def primaries(self) -> list[Client]:
        """The primary controller of each role that has one: those that get packets and notifications."""
        return [role.primary for role in self._roles.values() if role.primary is not None]

    def update(self, client: Client, message: Any) -> Role:
        """Takes a MasterArbitrationUpdate, and notifies every controller that it concerns; the client's role.

        If `client` is primary now, it alone is not notified yet: call `notify` for it once no write of an earlier
        primary is in flight. Raises EntityError with the code that ends the stream.
        """
        key = (message.role.name, message.role.id) if message.HasField("role") else ("", 0)
        if message.device_id != self.device_id:
            code = rpc_code.NOT_FOUND if client.role is None else rpc_code.FAILED_PRECONDITION
            raise EntityError(code, f"device {message.device_id} is not here: this is device {self.device_id}")
        if client.role is not None and client.role.key != key:
            text = f"this stream is of {client.role}: open another stream for another role"
            raise EntityError(rpc_code.FAILED_PRECONDITION, text)
        if message.role.HasField("config"):
            raise invalid("role configs are not supported: leave role.config unset, and the role has full access")
        role = client.role or self._roles.get(key) or Role(key)
        wanted = U128.decode(message.election_id) if message.HasField("election_id") else None
        if wanted is not None and any(other is not client and other.election_id == wanted for other in role.clients):
            raise invalid(f"election id {wanted} is used by another controller of {role}")
        if client.role is None:
            self._join(client, role)
        before = role.primary
        client.election_id = wanted
        if wanted is not None and (role.highest is None or wanted >= role.highest):
            role.highest = wanted
        if client.is_primary or before is client:
            for other in role.clients:
                if other is not client:
                    self.notify(other)
        if not client.is_primary:
            self.notify(client)
        return role

    def leave(self, client: Client) -> None:
        """The stream has ended."""
        role = client.role
        if role is not None:
            was_primary = client.is_primary
            role.clients.remove(client)
            client.role = None
            if was_primary:
                for other in role.clients:
                    self.notify(other)

    def notify(self, client: Client) -> None:
        """Sends a controller the state of its role; nothing if it is gone."""
        role = client.role
        if role is None:
            return
        response = p4r.StreamMessageResponse()
        response.arbitration.device_id = self.device_id
        name, number = role.key
        if name or number:
            response.arbitration.role.CopyFrom(p4r.Role(name=name, id=number))
        if role.highest is not None:
            response.arbitration.election_id.CopyFrom(U128.encode(role.highest))
        if role.primary is client:
            response.arbitration.status.code = rpc_code.OK
            response.arbitration.status.message = f"you are the primary controller of {role}"
        elif role.primary is not None:
            response.arbitration.status.code = rpc_code.ALREADY_EXISTS
            response.arbitration.status.message = f"{role} has another primary controller"
        else:
            response.arbitration.status.code = rpc_code.NOT_FOUND
            response.arbitration.status.message = f"{role} has no primary controller"
        client.send(response)

    def require_primary(self, request: Any) -> Role:
        """Checks device, role and election id of a request that changes something; the role. Raises EntityError."""
        self.require_device(request)
        role = self._role(request.role, request.role_id)
        wanted = U128.decode(request.election_id) if request.HasField("election_id") else None
        primary = role.primary
        if primary is None or wanted != primary.election_id:
            shown = "no election id" if wanted is None else f"election id {wanted}"
            holder = "there is none" if primary is None else f"its election id is {primary.election_id}"
            text = f"{shown} is not the primary controller of {role}: {holder}"
            raise EntityError(rpc_code.PERMISSION_DENIED, text)
        return role

    def require_reader(self, request: Any) -> None:
        """Checks device and role of a read. Raises EntityError."""
        self.require_device(request)
        self._role(request.role, 0)

    def require_device(self, request: Any) -> None:
        """Raises EntityError if a request is for another device."""
        if request.device_id != self.device_id:
            message = f"device {request.device_id} is not here: this is device {self.device_id}"
            raise EntityError(rpc_code.NOT_FOUND, message)

    def _role(self, name: str, number: int) -> Role:
        role = self._roles.get((name, number))
        if role is None:
            text = f"no controller has joined role {name or number}: its stream's arbitration update names the role"
            raise EntityError(rpc_code.NOT_FOUND, text)
        return role

    def _join(self, client: Client, role: Role) -> None:
        if len(role.clients) >= MAX_CLIENTS:
            raise EntityError(rpc_code.RESOURCE_EXHAUSTED, f"{role} has {MAX_CLIENTS} streams, the most it may have")
        if role.key not in self._roles and len(self._roles) >= MAX_ROLES:
            raise EntityError(rpc_code.RESOURCE_EXHAUSTED, f"there are {MAX_ROLES} roles, the most there may be")
        self._roles[role.key] = role
        role.clients.append(client)
        client.role = role
