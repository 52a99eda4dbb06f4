# SPDX-License-Identifier: Apache-2.0
"""Requests that meet: the service in this process, between whose steps other requests come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from finsy.proto import U128, p4r, rpc_code

from gradlane_switch import Switch
from gradlane_switch.p4runtime import service as service_module
from gradlane_switch.p4runtime.service import Service
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.flooding import punting_switch, station

INSERT, DELETE = p4r.Update.INSERT, p4r.Update.DELETE
ROLLBACK = p4r.WriteRequest.ROLLBACK_ON_ERROR
MANY = 5000  # updates, which take many slices


class Refused(Exception):
    """A call has ended with a status."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code.name)
        self.code = code


class Call:
    """gRPC's context of a call, as far as the service uses it."""

    def peer(self) -> str:
        return "a client"

    async def abort(self, code: grpc.StatusCode, _details: str, _metadata: object = ()) -> None:
        raise Refused(code)


class Stream:
    """A controller's stream."""

    def __init__(self, service: Service) -> None:
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._answers = service.StreamChannel(self._sent(), Call())

    async def _sent(self) -> AsyncIterator[Any]:
        while True:
            yield await self._requests.get()

    async def status(self) -> int:
        """Of the next answer, which is one about arbitration."""
        message: Any = await asyncio.wait_for(anext(self._answers), 60)
        return message.arbitration.status.code

    async def join(self, election_id: int, role: str = "") -> int:
        """Takes part in the arbitration; the status of the answer."""
        message = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(election_id))
        if role:
            message.role.name = role
        self._requests.put_nowait(p4r.StreamMessageRequest(arbitration=message))
        return await self.status()

    async def close(self) -> None:
        closing: Any = self._answers
        await closing.aclose()


@pytest.fixture
def switch() -> Switch:
    return punting_switch()


def served(switch: Switch) -> Service:
    return Service(1, Lock(), lambda _: None, switch.pipeline)


def write(service: Service, election_id: int, *updates: Any, role: str = "", atomicity: Any = 0) -> asyncio.Task[Any]:
    request = p4r.WriteRequest(
        device_id=1, election_id=U128.encode(election_id), role=role, updates=updates, atomicity=atomicity
    )
    return asyncio.ensure_future(service.Write(request, Call()))


def inserts(count: int) -> list[Any]:
    return [p4r.Update(type=INSERT, entity=station(number)) for number in range(1, count + 1)]


async def turns(count: int) -> None:
    """Lets others do something, and that not to its end."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_new_primary_is_told_when_the_writes_of_the_old_one_are_done_and_no_more_begin(switch: Switch) -> None:
    async def run() -> None:
        service = served(switch)
        old, new = Stream(service), Stream(service)
        assert await old.join(1) == rpc_code.OK
        begun = write(service, 1, *inserts(MANY))
        waiting = write(service, 1, p4r.Update(type=DELETE, entity=station(1)))
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1, election_id=U128.encode(1), action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        )
        request.config.p4info.CopyFrom(switch.pipeline.info)
        request.config.p4_device_config = switch.pipeline.device_config
        pipeline = asyncio.ensure_future(service.SetForwardingPipelineConfig(request, Call()))
        await turns(5)
        joined = asyncio.ensure_future(new.join(2))
        assert await old.status() == rpc_code.ALREADY_EXISTS
        assert not begun.done()
        assert await joined == rpc_code.OK
        assert begun.done()
        await begun
        for late in (waiting, pipeline):
            with pytest.raises(Refused, match="PERMISSION_DENIED"):
                await late
        assert len(switch.pipeline.state.tables[0].entries) == MANY

    asyncio.run(run())


def test_nobody_writes_between_the_updates_of_a_batch_that_may_be_rolled_back(switch: Switch) -> None:
    async def run() -> None:
        service = served(switch)
        streams = {role: Stream(service) for role in ("", "other")}
        for role, stream in streams.items():
            assert await stream.join(1, role) == rpc_code.OK
        batch = write(service, 1, *inserts(MANY), *inserts(1), atomicity=ROLLBACK)
        await turns(20)
        assert len(switch.pipeline.state.tables[0].entries) > 0
        between = write(service, 1, p4r.Update(type=DELETE, entity=station(1)), role="other")
        for failing in (batch, between):  # The second finds nothing to delete any more.
            with pytest.raises(Refused, match="UNKNOWN"):
                await failing
        assert len(switch.pipeline.state.tables[0].entries) == 0

    asyncio.run(run())


def test_there_is_room_for_so_many_streams_and_for_another_when_one_has_ended(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_MOST_STREAMS", 2)

    async def run() -> None:
        service = served(switch)
        streams = [Stream(service), Stream(service)]
        for number, stream in enumerate(streams):
            await stream.join(number)
        with pytest.raises(Refused, match="RESOURCE_EXHAUSTED"):
            await Stream(service).join(2)
        await streams[0].close()
        assert await Stream(service).join(3) == rpc_code.OK

    asyncio.run(run())


def test_a_stream_that_has_said_nothing_makes_room_for_those_that_are_there_and_no_others(
    switch: Switch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service_module, "_MOST_STRANGERS", 2)

    async def run() -> None:
        service = served(switch)
        silent = Stream(service)
        heard = asyncio.ensure_future(silent.status())
        await turns(5)
        for _ in range(5):
            short = asyncio.ensure_future(Stream(service).status())
            await turns(5)
            short.cancel()
            await turns(5)
        assert not heard.done()
        more = [asyncio.ensure_future(Stream(service).status()) for _ in range(2)]
        with pytest.raises(Refused, match="RESOURCE_EXHAUSTED"):
            await heard
        for it in more:
            it.cancel()

    asyncio.run(run())
