# SPDX-License-Identifier: Apache-2.0
"""Other P4Runtime clients, which write to switches what the controller does not want there."""

from __future__ import annotations

import random
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import grpc
from finsy import Match, P4Schema, P4TableAction, P4TableEntry
from finsy.p4entity import decode_entity
from finsy.proto import U128, p4r, p4r_grpc

from tests.chaos.entries import Reader

_SECONDS = 10.0
_MORE = 5  # than the highest election id: a controller may become the leader meanwhile
_ROOM = 255  # of the table of jobs


class Stranger:
    """A client of one switch. With a `role` it may write beside the controller, else only as it outbids that."""

    def __init__(self, reader: Reader, address: str, device_id: int, role: str = "") -> None:
        """Raises grpc.RpcError if it can't become primary."""
        self._reader, self._device_id, self._role = reader, device_id, role
        self._channel = grpc.insecure_channel(address)
        self._stub: Any = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: SimpleQueue[Any] = SimpleQueue()
        self._answers: Any = self._stub.StreamChannel(iter(self._requests.get, None), timeout=60)
        self.bid = 1
        try:
            highest = self._arbitrate()
            if highest > 1:
                self.bid = highest + _MORE
                self._arbitrate()
        except BaseException:
            self.close()
            raise

    def _arbitrate(self) -> int:
        """The highest election id."""
        update = p4r.MasterArbitrationUpdate(device_id=self._device_id, election_id=U128.encode(self.bid))
        if self._role:
            update.role.name = self._role
        self._requests.put(p4r.StreamMessageRequest(arbitration=update))
        while True:
            answer = next(self._answers)
            if answer.HasField("arbitration"):
                return U128.decode(answer.arbitration.election_id)

    def write(self, updates: list[p4r.Update]) -> None:
        """As much of it as the switch takes."""
        request = p4r.WriteRequest(device_id=self._device_id, election_id=U128.encode(self.bid), updates=updates)
        request.role = self._role
        with suppress(grpc.RpcError):
            self._stub.Write(request, timeout=_SECONDS)

    def close(self) -> None:
        """Goes."""
        self._requests.put(None)
        self._channel.close()

    def read(self) -> list[p4r.Entity]:
        """What the switch holds."""
        return self._reader.read()


def take_away(there: Stranger, schema: P4Schema, rng: random.Random, *, harmful: bool) -> None:
    """Deletes and changes some entries; those that packets of the run need only if `harmful`."""
    updates: list[p4r.Update] = []
    for entity in there.read():
        if not entity.HasField("table_entry") or entity.table_entry.is_default_action:
            continue
        if (harmful or _is_spare(entity, schema)) and rng.random() < 0.3:
            updates.append(p4r.Update(type=p4r.Update.DELETE, entity=entity))
    there.write(updates)


def add(there: Stranger, schema: P4Schema, rng: random.Random, *, fill: bool) -> None:
    """Entries that nobody wants; `fill`: as many as make a table full, so that the controller's are refused."""
    entries: list[P4TableEntry] = []
    for number in range(_ROOM if fill else rng.randrange(1, 5)):
        action = P4TableAction("set_job", job_index=255, slot_base=0, slot_mask=0, max_share=1, trim=0, spray=0)
        entries.append(P4TableEntry("jobs", match=Match(job=1000 + number), action=action))
    for number in range(rng.randrange(1, 5)):
        destination = f"fd00:bad:{number}::/64"
        entries.append(P4TableEntry("ipv6_routes", match=Match(destination=destination), action=P4TableAction("local")))
    there.write([p4r.Update(type=p4r.Update.INSERT, entity=entry.encode(schema)) for entry in entries])


def _is_spare(entity: p4r.Entity, schema: P4Schema) -> bool:
    """Whether no packet of the run needs it: it is of another job than the first, or of IPv6."""
    entry = decode_entity(entity, schema)
    assert isinstance(entry, P4TableEntry)
    if entry.table_id == "ipv6_routes":
        return True
    return entry.match is not None and entry.match.get("job", 1) != 1
