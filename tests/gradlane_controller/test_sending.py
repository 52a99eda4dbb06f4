# SPDX-License-Identifier: Apache-2.0
"""What becomes of messages for a switch whose session ends meanwhile."""

import asyncio
import gc
from types import SimpleNamespace
from typing import Any

import pytest
from finsy import P4PacketOut
from finsy.p4client import P4Client
from finsy.proto import p4r

from gradlane_controller.errors import SwitchLostError
from gradlane_controller.session.bounds import BoundedClient, send_frames
from tests.gradlane_controller.controller_thread import PIPELINE

PACKET = p4r.StreamMessageRequest(packet=p4r.PacketOut(payload=b"x"))


def client() -> BoundedClient:
    it: Any = BoundedClient("127.0.0.1:1", None, wait_for_ready=False)
    it.arbitration = SimpleNamespace(may_write=True)
    it._sending = asyncio.Lock()
    return it


def test_what_comes_after_the_end_is_lost_and_the_switch_not_blamed() -> None:
    async def run() -> None:
        it = client()
        await it.close()
        await it.send(PACKET)

    with pytest.raises(SwitchLostError, match="the connection was closed"):
        asyncio.run(run())


def test_what_fails_while_nobody_waits_for_it_any_more_is_not_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: complaints.append(context))
        fail = asyncio.Event()

        async def send(_self: P4Client, _msg: p4r.StreamMessageRequest) -> None:
            await fail.wait()
            raise ConnectionError

        monkeypatch.setattr(P4Client, "send", send)
        it = client()
        sending = asyncio.create_task(it.send(PACKET))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        fail.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        sending.cancel()  # as its session ends, just when it has failed
        with pytest.raises(asyncio.CancelledError):
            await sending
        gc.collect()

    asyncio.run(run())
    assert complaints == []


def test_a_frame_is_sent_as_finsy_encodes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[p4r.StreamMessageRequest] = []

    async def send(_client: P4Client, message: p4r.StreamMessageRequest) -> None:
        sent.append(message)

    monkeypatch.setattr(P4Client, "send", send)
    switch: Any = SimpleNamespace(p4info=PIPELINE.schema, _p4client=client())
    frames = [(5, b"one"), (300, b"another"), (5, b"")]
    asyncio.run(send_frames(switch, frames))
    assert sent == [P4PacketOut(it, reserved=0, egress_port=port).encode_update(PIPELINE.schema) for port, it in frames]
