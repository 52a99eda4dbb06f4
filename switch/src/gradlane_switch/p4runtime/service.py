# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime service over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import asdict, dataclass
from typing import Any, NoReturn, TypeVar

import grpc
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from gradlane_switch.errors import BuildError, EntityError, PortError, ProgramError
from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.packet_io import packet_out
from gradlane_switch.p4runtime import batch
from gradlane_switch.p4runtime.arbitration import Arbiter, Client
from gradlane_switch.p4runtime.entities.digests import acknowledge
from gradlane_switch.p4runtime.notifications import Notifier
from gradlane_switch.p4runtime.outbox import End, Outbox, StreamLosses
from gradlane_switch.p4runtime.reconcile import reconcile
from gradlane_switch.p4runtime.turns import Turns, Work
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock

API_VERSION = "1.5.0"
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_ACTIONS = p4r.SetForwardingPipelineConfigRequest

_MOST_CHANGES = 64
"""Writes and pipelines that wait or are at work; each may be as long as a message can be."""
_MOST_STREAMS = 768
_MOST_STRANGERS = 64
"""Streams; and those that have not taken part in an arbitration yet."""

Install = Callable[[Pipeline], None]
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class CpuPort:
    """The port between program and controller; `inject` gives the program a frame that enters a port."""

    number: int
    inject: Callable[[int, bytes], None]


class Service(p4r_grpc.P4RuntimeServicer):
    """One device. `install` makes a pipeline the one that forwards."""

    def __init__(
        self,
        device_id: int,
        lock: Lock,
        install: Install,
        pipeline: Pipeline | None = None,
        cpu: CpuPort | None = None,
    ) -> None:
        self._arbiter = Arbiter(device_id)
        self._lock = lock
        self._install = install
        self._forwarding = pipeline
        # What reads and writes mean: the pipeline that forwards, or one that was saved and waits for COMMIT.
        self._pipeline = pipeline
        # All that looks at or changes the state runs on the loop, long work in slices. Whoever has this lock is the
        # only one who changes it between slices.
        self._changing = asyncio.Lock()
        self._loading = asyncio.Lock()
        self._changes = 0
        self._turns = Turns()
        self._streams = 0
        self._strangers: dict[Client, Outbox] = {}
        self._cpu = cpu
        self._losses = StreamLosses()
        self.notifier = Notifier(lambda: self._arbiter.primaries)
        if pipeline is not None:
            self._attach(pipeline)
            self.notifier.watch(pipeline)

    async def Capabilities(self, request: Any, context: Any) -> Any:
        """The version of P4Runtime."""
        try:
            if request.device_id:
                self._arbiter.require_device(request)
        except EntityError as error:
            await _abort(context, error.code, str(error))
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        """Verifies, saves or realizes a pipeline."""
        try:
            with self._change():
                await self._set_pipeline(request)
        except EntityError as error:
            await _abort(context, error.code, str(error))
        except ProgramError as error:
            await _abort(context, rpc_code.INVALID_ARGUMENT, str(error))
        except BuildError as error:
            await _abort(context, rpc_code.INTERNAL, str(error))
        except MemoryError as error:
            await _abort(context, rpc_code.RESOURCE_EXHAUSTED, str(error))
        return p4r.SetForwardingPipelineConfigResponse()

    async def _set_pipeline(self, request: Any) -> None:
        role = self._arbiter.require_primary(request)
        action, config = request.action, request.config
        if action == _ACTIONS.UNSPECIFIED or action not in _ACTIONS.Action.values():
            names = ", ".join(name for name, _ in _ACTIONS.Action.items() if name != "UNSPECIFIED")
            raise invalid(f"the request's action is {action}: it must be one of {names}")
        given = request.HasField("config")
        if given == (action == _ACTIONS.COMMIT):
            name = _ACTIONS.Action.Name(action)
            text = "takes no config: it realizes the one that was saved" if given else "needs a config"
            raise invalid(f"{name} {text}")
        if action == _ACTIONS.VERIFY:
            parts = (config.p4_device_config, config.p4info)
            await _alone(self._loading, lambda: asyncio.to_thread(Pipeline.verify, *parts))
            return
        pipeline = None
        if given:
            cookie = config.cookie.cookie if config.HasField("cookie") else None
            whole = (config.p4_device_config, config.p4info, self._lock, cookie)
            pipeline = await _alone(self._loading, lambda: asyncio.to_thread(Pipeline, *whole))
        await _alone(role.writing, lambda: self._realize(request, action, pipeline))

    async def _realize(self, request: Any, action: int, pipeline: Pipeline | None) -> None:
        async with self._changing:
            self._arbiter.require_primary(request)
            await self._exchange(action, pipeline)

    async def _exchange(self, action: int, pipeline: Pipeline | None) -> None:
        """Makes a pipeline, or the saved one, what controllers see, and, but for VERIFY_AND_SAVE, what forwards."""
        if pipeline is None:
            if self._pipeline is self._forwarding or self._pipeline is None:
                raise EntityError(rpc_code.NOT_FOUND, "no config is saved: VERIFY_AND_SAVE saves one")
            pipeline = self._pipeline
        if action == _ACTIONS.RECONCILE_AND_COMMIT and self._forwarding is not None:
            await asyncio.to_thread(reconcile, self._forwarding, pipeline)
        if action != _ACTIONS.VERIFY_AND_SAVE:
            self._attach(pipeline)
            self._install(pipeline)
            self.notifier.watch(pipeline)
            self._forwarding = pipeline
        self._pipeline = pipeline

    async def GetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        """The pipeline that was set, as it was set; no config if there is none."""
        response = p4r.GetForwardingPipelineConfigResponse()
        kinds = p4r.GetForwardingPipelineConfigRequest
        try:
            self._arbiter.require_device(request)
        except EntityError as error:
            await _abort(context, error.code, str(error))
        pipeline = self._pipeline
        if pipeline is not None:
            response.config.SetInParent()
            if pipeline.cookie is not None:
                response.config.cookie.cookie = pipeline.cookie
            if request.response_type in (kinds.ALL, kinds.P4INFO_AND_COOKIE):
                response.config.p4info.CopyFrom(pipeline.info)
            if request.response_type in (kinds.ALL, kinds.DEVICE_CONFIG_AND_COOKIE):
                response.config.p4_device_config = pipeline.device_config
        return response

    async def Write(self, request: Any, context: Any) -> Any:
        """Applies updates; each that fails has its own error in the status details."""
        errors: list[Any] = []
        try:
            role = self._arbiter.require_primary(request)
            batch.require_mode(request.atomicity)
            with self._change():
                errors = await _alone(role.writing, lambda: self._write(request, context.peer()))
            self.notifier.wake()
        except EntityError as error:
            await _abort(context, error.code, str(error))
        if errors:
            await _abort(context, rpc_code.UNKNOWN, "some updates failed", errors)
        return p4r.WriteResponse()

    async def _write(self, request: Any, client: str) -> list[Any]:
        """What batch.write gives. Others write between the updates of a batch unless it is all or none."""
        self._arbiter.require_primary(request)
        work = Work(batch.write(self._current(), request.updates, request.atomicity))
        if request.atomicity == p4r.WriteRequest.CONTINUE_ON_ERROR:
            async with self._changing:
                work.advance()
            while not work.ended:
                async with self._changing, self._turns.of(client):
                    work.advance()
        else:
            async with self._changing:
                work.advance()
                while not work.ended:
                    async with self._turns.of(client):
                        work.advance()
        return work.result

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The entities that each part of the request asks for, in messages of a few dozen.

        Others read and write between two messages: each entity is as it is when its turn comes.
        """
        errors: list[Any] = []
        try:
            self._arbiter.require_reader(request)
            work = Work(batch.read(self._current(), request.entities))
            for message in work.advance():
                yield message
            while not work.ended:
                async with self._turns.of(context.peer()):
                    found = work.advance()
                for message in found:
                    yield message
            errors = work.result
        except EntityError as error:
            await _abort(context, error.code, str(error))
        if errors:
            await _abort(context, rpc_code.UNKNOWN, "some reads failed", errors)

    @contextlib.contextmanager
    def _change(self) -> Generator[None]:
        """A request that changes something, while it waits and is at work. Raises EntityError if there are too many."""
        if self._changes >= _MOST_CHANGES:
            text = f"{self._changes} writes and pipelines wait or are at work, the most there may be: wait for answers"
            raise EntityError(rpc_code.RESOURCE_EXHAUSTED, text)
        self._changes += 1
        try:
            yield
        finally:
            self._changes -= 1

    async def StreamChannel(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Arbitration, packets in and out, digests and idle entries."""
        if self._streams >= _MOST_STREAMS:
            text = f"there are {_MOST_STREAMS} streams, the most there may be"
            await _abort(context, rpc_code.RESOURCE_EXHAUSTED, text)
        outbox = Outbox(self._losses)
        client = Client(outbox.send)
        self._streams += 1
        self._admit(client, outbox)
        listener = asyncio.create_task(self._listen(request_iterator, client, outbox))
        try:
            while not isinstance(message := await outbox.next(), End):
                yield message
        finally:
            listener.cancel()
            self._arbiter.leave(client)
            self._strangers.pop(client, None)
            self._streams -= 1
        if message.failure is not None:
            await _abort(context, message.failure.code, str(message.failure))

    def _admit(self, client: Client, outbox: Outbox) -> None:
        """Who has not taken part in an arbitration for longest makes room for a new stream."""
        if len(self._strangers) >= _MOST_STRANGERS:
            oldest = self._strangers.pop(next(iter(self._strangers)))
            text = f"{_MOST_STRANGERS} newer streams have sent no arbitration update either: send one first"
            oldest.end(EntityError(rpc_code.RESOURCE_EXHAUSTED, text))
        self._strangers[client] = outbox

    async def _listen(self, requests: AsyncIterator[Any], client: Client, outbox: Outbox) -> None:
        failure: EntityError | None = None
        try:
            async for request in requests:
                if request.WhichOneof("update") == "arbitration":
                    role = self._arbiter.update(client, request.arbitration)
                    self._strangers.pop(client, None)
                    if client.is_primary:
                        # The new primary may write only after what an earlier one had begun is done.
                        async with role.writing:
                            self._arbiter.notify(client)
                else:
                    await self._serve(client, request)
        except EntityError as error:
            failure = error
        finally:
            outbox.end(failure)

    async def _serve(self, client: Client, request: Any) -> None:
        """A message of a stream other than arbitration."""
        try:
            if not client.is_primary:
                raise EntityError(rpc_code.PERMISSION_DENIED, "only a primary controller sends packets and acks")
            kind = request.WhichOneof("update")
            if kind == "packet":
                self._send_packet(request.packet)
            elif kind == "digest_ack":
                acknowledge(self._forwarding_now(), request.digest_ack)
            else:
                raise EntityError(rpc_code.UNIMPLEMENTED, f"{kind or 'an empty message'} is not supported here")
        except EntityError as error:
            client.send(_stream_error(request, error))

    def _send_packet(self, message: Any) -> None:
        header = self._forwarding_now().schema.packet_headers.get("packet_out")
        frame = packet_out(header, message)
        if self._cpu is None:
            raise EntityError(rpc_code.FAILED_PRECONDITION, "the switch has no CPU port: start it with --cpu-port")
        try:
            self._cpu.inject(self._cpu.number, frame)
        except PortError as error:
            raise EntityError(rpc_code.RESOURCE_EXHAUSTED, str(error)) from None

    def losses(self) -> dict[str, int]:
        """What controllers did not get because they did not read their streams."""
        return asdict(self._losses)

    def _attach(self, pipeline: Pipeline) -> None:
        pipeline.state.mailbox.set_cpu_port(None if self._cpu is None else self._cpu.number)

    def _forwarding_now(self) -> Pipeline:
        if self._forwarding is None:
            raise EntityError(rpc_code.FAILED_PRECONDITION, "no forwarding pipeline is set")
        return self._forwarding

    def _current(self) -> Pipeline:
        if self._pipeline is None:
            raise EntityError(rpc_code.FAILED_PRECONDITION, "no forwarding pipeline is set")
        return self._pipeline


def _stream_error(request: Any, error: EntityError) -> Any:
    kind = request.WhichOneof("update")
    response = p4r.StreamMessageResponse()
    response.error.canonical_code = error.code
    response.error.message = str(error)
    response.error.space = "gradlane-switch"
    if kind == "packet":
        response.error.packet_out.packet_out.CopyFrom(request.packet)
    elif kind == "digest_ack":
        response.error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        response.error.other.SetInParent()
    return response


async def _alone(lock: asyncio.Lock, work: Callable[[], Awaitable[_Result]]) -> _Result:
    """Does `work` with a lock. The caller may go away before it has begun; from then on it is done to its end."""

    async def run() -> _Result:
        try:
            return await work()
        finally:
            lock.release()

    await lock.acquire()
    return await asyncio.shield(run())


async def _abort(context: Any, code: int, message: str, errors: list[Any] | None = None) -> NoReturn:
    metadata: tuple[tuple[str, bytes], ...] = ()
    if errors is not None:
        status = rpc_status.Status(code=code, message=message)
        for error in errors:
            status.details.add().Pack(error)
        metadata = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(_CODES[code], message, metadata)
    raise AssertionError("abort raises")
