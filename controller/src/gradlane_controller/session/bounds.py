# SPDX-License-Identifier: Apache-2.0
"""What one switch may take of the controller: finsy's client with bounds, as it trusts the switch.

finsy waits for ever for a switch that does not take what it is sent, takes in as much as a switch sends, and asks it
for its ports over gNMI, which nobody here needs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import lru_cache
from typing import Any, cast

from finsy import P4PacketOut, P4Schema, Switch, SwitchEvent
from finsy.p4client import P4Client
from finsy.proto import p4r

from gradlane_controller.errors import NotLeadingError, SwitchError, SwitchLostError
from gradlane_controller.session.arbitration import Arbitration
from gradlane_controller.session.patience import any_done

SEND_SECONDS = 4.0  # that a message may wait until the switch takes it
MAX_MESSAGE = 64 << 10  # bytes of a stream's message; a list of 64 violations has 3 kB, a packet at most 9
MAX_READ = 16 << 20  # bytes of an answer to a read, and
MAX_ENTITIES = 1 << 17  # entities: more than any table has, and than a job has counters
COST_BYTES = 1024  # that count as one message more
MESSAGES_PER_SECOND = 6000.0  # more than an honest switch punts (policy.ports)
BURST_SECONDS = 0.5
_WRITES = (p4r.WriteRequest, p4r.SetForwardingPipelineConfigRequest)


class BoundedClient(P4Client):
    """As its base, but raises SwitchError where a switch goes beyond the bounds, and writes only while this controller
    leads: NotLeadingError; what it would send then is lost."""

    arbitration: Arbitration
    loaded = False  # the program, since somebody has asked
    take: Callable[[p4r.PacketIn], bool] | None = None  # hears packets first; whether that was all
    closed = False
    _written_at: float | None = None  # what it has not answered yet
    _sending: asyncio.Lock
    _paid_until = 0.0

    async def open(self, **options: object) -> None:
        self._sending = asyncio.Lock()
        await super().open(**options)  # pyright: ignore[reportArgumentType]

    async def close(self) -> None:
        self.closed = True
        await super().close()

    async def send(self, msg: p4r.StreamMessageRequest) -> None:
        await self.send_all((msg,))

    async def send_all(self, messages: Iterable[p4r.StreamMessageRequest]) -> None:
        """One after the other, within the time of one."""
        messages = [msg for msg in messages if msg.HasField("arbitration") or self.arbitration.may_write]
        if not messages:
            return
        sending = asyncio.ensure_future(self._send(messages))
        try:
            if not await any_done(SEND_SECONDS, sending):
                raise SwitchError(f"does not take what it is sent for {SEND_SECONDS:g} s")
            await sending
        finally:
            if not sending.done():
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
            elif not sending.cancelled():
                sending.exception()  # which nobody asks for any more, if this was cancelled at the same time

    async def _send(self, messages: Iterable[p4r.StreamMessageRequest]) -> None:
        async with self._sending:  # gRPC takes one message at a time
            for msg in messages:
                if self.closed:  # meanwhile
                    raise SwitchLostError("the connection was closed")
                await super().send(msg)

    async def receive(self) -> p4r.StreamMessageResponse:
        while True:
            msg = await self._receive()
            if self.take is None or not msg.HasField("packet") or not self.take(msg.packet):
                return msg

    async def _receive(self) -> p4r.StreamMessageResponse:
        loop = asyncio.get_running_loop()
        if (wait := self._paid_until - loop.time()) > 0:
            await asyncio.sleep(wait)  # meanwhile gRPC's flow control holds the switch back
        msg = await super().receive()
        size = msg.ByteSize()
        if size > MAX_MESSAGE:
            raise SwitchError(f"sends a message of {size} bytes; the most is {MAX_MESSAGE}")
        cost = (1 + size / COST_BYTES) / MESSAGES_PER_SECOND
        self._paid_until = max(self._paid_until, loop.time() - BURST_SECONDS) + cost
        return msg

    @property
    def silent_seconds(self) -> float:
        """For which it has not answered a request to write entries; 0: there is none."""
        return 0.0 if self._written_at is None else time.monotonic() - self._written_at

    async def request(self, msg: Any) -> Any:
        if not isinstance(msg, _WRITES):
            return await super().request(msg)
        async with self.arbitration.sending:
            if not self.arbitration.may_write:
                raise NotLeadingError("this controller does not lead, so it writes nothing")
            self._written_at = time.monotonic() if isinstance(msg, p4r.WriteRequest) else None
            try:
                reply = await super().request(msg)
            finally:
                self._written_at = None
        self.loaded = self.loaded or isinstance(msg, p4r.SetForwardingPipelineConfigRequest)
        return reply

    async def request_iter(self, msg: p4r.ReadRequest) -> AsyncIterator[p4r.ReadResponse]:
        size = count = 0
        async for reply in super().request_iter(msg):
            size += reply.ByteSize()
            count += len(reply.entities)
            if size > MAX_READ or count > MAX_ENTITIES:
                raise SwitchError(f"answers a read with {count} entities of {size} bytes so far, more than it can have")
            yield reply


def client_of(switch: Switch) -> BoundedClient:
    """What speaks with an open switch, for messages that finsy has no need to know. Raises SwitchLostError."""
    client = cast(BoundedClient | None, switch._p4client)  # pyright: ignore[reportPrivateUsage]
    if client is None:
        raise SwitchLostError("the connection was closed")
    return client


def just_loaded(switch: Switch) -> bool:
    """Whether the switch has loaded the program in this session, since this was last asked."""
    client = client_of(switch)
    loaded, client.loaded = client.loaded, False
    return loaded


def requests(switch: Switch, read: p4r.ReadRequest) -> AsyncIterator[p4r.ReadResponse]:
    """What the switch answers. Raises finsy.P4ClientError or SwitchError."""
    return client_of(switch).request_iter(read)


async def send_frames(switch: Switch, frames: Iterable[tuple[int, bytes]]) -> None:
    """Sends frames, each by its port. Raises finsy.P4ClientError or SwitchError."""
    await client_of(switch).send_all([_packet_out(switch.p4info, port, frame) for port, frame in frames])


def _packet_out(schema: P4Schema, port: int, frame: bytes) -> p4r.StreamMessageRequest:
    """As `P4PacketOut` encodes it, which looks each field up in the schema."""
    message = p4r.StreamMessageRequest()
    message.CopyFrom(_to_port(schema, port))
    message.packet.payload = frame
    return message


@lru_cache(maxsize=1024)
def _to_port(schema: P4Schema, port: int) -> p4r.StreamMessageRequest:
    """Without a frame."""
    return P4PacketOut(b"", reserved=0, egress_port=port).encode_update(schema)


def take_frames(switch: Switch, reasons: Iterable[int], take: Callable[[int, int, bytes], None]) -> None:
    """Punted frames with these reasons go to `take`, as (reason, port, frame), and not into finsy's queues, which are
    short and slow."""
    fields = switch.p4info.controller_packet_metadata["packet_in"].metadata
    reason_id, port_id, wanted = fields["reason"].id, fields["ingress_port"].id, frozenset(reasons)

    def hear(packet: p4r.PacketIn) -> bool:
        values = {it.metadata_id: int.from_bytes(it.value, "big") for it in packet.metadata}
        if values.get(reason_id) not in wanted or port_id not in values:
            return False
        take(values[reason_id], values[port_id], packet.payload)
        return True

    client_of(switch).take = hear


def bound(switch: Switch, arbitration: Arbitration) -> None:
    """Puts the bounds into a switch before it is opened, and what this controller bids there."""

    async def no_gnmi() -> None:
        pass

    def start() -> None:
        client = BoundedClient(switch.address, switch.options.channel_credentials, wait_for_ready=False)
        client.arbitration = arbitration
        switch._p4client = client  # pyright: ignore[reportPrivateUsage]

    switch._arbitrator = arbitration  # pyright: ignore[reportPrivateUsage]
    switch._start_gnmi = no_gnmi  # pyright: ignore[reportPrivateUsage]
    switch.ee.on(SwitchEvent.SWITCH_START, start)
