# SPDX-License-Identifier: Apache-2.0
"""Which controller is the primary one: client arbitration of the P4Runtime specification, chapter 5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from finsy.proto import U128, p4r, rpc_code

from gradlane_switch.errors import EntityError

Send = Callable[[Any], None]


class Client:
    """A stream of a controller. `send` takes p4.v1.StreamMessageResponse messages for it."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.joined = False
        self.election_id: int | None = None


class Arbiter:
    """The live controllers of one device. Roles are not supported."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._clients: list[Client] = []
        self._highest: int | None = None

    def update(self, client: Client, message: Any) -> None:
        """Takes a MasterArbitrationUpdate. Raises EntityError with the code that ends the stream."""
        if message.device_id != self.device_id:
            code = rpc_code.FAILED_PRECONDITION if client.joined else rpc_code.NOT_FOUND
            raise EntityError(code, f"device {message.device_id} is not here: this is device {self.device_id}")
        if message.HasField("role") and (message.role.name or message.role.id or message.role.HasField("config")):
            raise EntityError(rpc_code.INVALID_ARGUMENT, "roles are not supported: leave the role unset")
        wanted = U128.decode(message.election_id) if message.HasField("election_id") else None
        if wanted is not None and any(other is not client and other.election_id == wanted for other in self._clients):
            raise EntityError(rpc_code.INVALID_ARGUMENT, f"election id {wanted} is used by another controller")
        before = self.primary
        client.election_id = wanted
        if not client.joined:
            client.joined = True
            self._clients.append(client)
        if wanted is not None and (self._highest is None or wanted >= self._highest):
            self._highest = wanted
        if self.primary is not before or before is client:
            self._tell_all()
        else:
            self._tell(client)

    def leave(self, client: Client) -> None:
        """The stream has ended."""
        if client.joined:
            was_primary = self.primary is client
            self._clients.remove(client)
            client.joined = False
            if was_primary:
                self._tell_all()

    @property
    def primary(self) -> Client | None:
        """The controller that may write, if it is there."""
        if self._highest is None:
            return None
        return next((client for client in self._clients if client.election_id == self._highest), None)

    def require_primary(self, request: Any) -> None:
        """Checks device, role and election id of a request that changes something. Raises EntityError."""
        self.require_device(request)
        if request.role or request.role_id:
            raise EntityError(rpc_code.NOT_FOUND, "roles are not supported: leave the role unset")
        primary = self.primary
        wanted = U128.decode(request.election_id) if request.HasField("election_id") else None
        if primary is None or wanted != primary.election_id:
            shown = "no election id" if wanted is None else f"election id {wanted}"
            holder = "there is none" if primary is None else f"its election id is {primary.election_id}"
            raise EntityError(rpc_code.PERMISSION_DENIED, f"{shown} is not the primary controller: {holder}")

    def require_device(self, request: Any) -> None:
        """Raises EntityError if a request is for another device."""
        if request.device_id != self.device_id:
            message = f"device {request.device_id} is not here: this is device {self.device_id}"
            raise EntityError(rpc_code.NOT_FOUND, message)

    def _tell_all(self) -> None:
        for client in self._clients:
            self._tell(client)

    def _tell(self, client: Client) -> None:
        response = p4r.StreamMessageResponse()
        response.arbitration.device_id = self.device_id
        if self._highest is not None:
            response.arbitration.election_id.CopyFrom(U128.encode(self._highest))
        primary = self.primary
        if primary is client:
            response.arbitration.status.code = rpc_code.OK
        elif primary is not None:
            response.arbitration.status.code = rpc_code.ALREADY_EXISTS
            response.arbitration.status.message = "there is a primary controller"
        else:
            response.arbitration.status.code = rpc_code.NOT_FOUND
            response.arbitration.status.message = "there is no primary controller"
        client.send(response)
