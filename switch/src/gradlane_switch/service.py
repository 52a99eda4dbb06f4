# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime service over gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import grpc
import grpc.aio
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status

from gradlane_switch import entities
from gradlane_switch.arbitration import Arbiter, Client
from gradlane_switch.errors import BuildError, EntityError, ProgramError, SwitchError
from gradlane_switch.pipeline import Pipeline
from gradlane_switch.state import Lock

API_VERSION = "1.4.1"
_CHUNK = 256  # entities per message of a read
_MAX_MESSAGE = 64 << 20
_CODES = {code.value[0]: code for code in grpc.StatusCode}

Install = Callable[[Pipeline], None]


@dataclass(frozen=True)
class _End:
    """Of a controller's stream; `failure` is what the stream ends with, None if the controller ended it."""

    failure: EntityError | None


class Service(p4r_grpc.P4RuntimeServicer):
    """One device. `install` makes a pipeline the one that forwards."""

    def __init__(self, device_id: int, lock: Lock, install: Install, pipeline: Pipeline | None = None) -> None:
        self._arbiter = Arbiter(device_id)
        self._lock = lock
        self._install = install
        self._pipeline = pipeline
        # One request at a time looks at or changes the state; the loop stays free for the streams.
        self._busy = asyncio.Lock()

    async def Capabilities(self, request: Any, context: Any) -> Any:
        """The version of P4Runtime."""
        del request, context
        return p4r.CapabilitiesResponse(p4runtime_api_version=API_VERSION)

    async def SetForwardingPipelineConfig(self, request: Any, context: Any) -> Any:
        """Verifies a pipeline, and with VERIFY_AND_COMMIT forwards by it, with empty tables."""
        actions = p4r.SetForwardingPipelineConfigRequest
        try:
            self._arbiter.require_primary(request)
            if request.action not in (actions.VERIFY, actions.VERIFY_AND_COMMIT):
                name = actions.Action.Name(request.action) if request.action in actions.Action.values() else "?"
                code = rpc_code.UNIMPLEMENTED if request.action else rpc_code.INVALID_ARGUMENT
                raise EntityError(code, f"{name} is not supported: VERIFY and VERIFY_AND_COMMIT are")
            if not request.HasField("config"):
                raise EntityError(rpc_code.INVALID_ARGUMENT, "the request has no config")
            config = request.config
            async with self._busy:
                if request.action == actions.VERIFY:
                    await asyncio.to_thread(Pipeline.verify, config.p4_device_config, config.p4info)
                else:
                    cookie = config.cookie.cookie if config.HasField("cookie") else None
                    parts = (config.p4_device_config, config.p4info, self._lock, cookie)
                    pipeline = await asyncio.to_thread(Pipeline, *parts)
                    self._arbiter.require_primary(request)
                    self._install(pipeline)
                    self._pipeline = pipeline
        except EntityError as error:
            await _abort(context, error.code, str(error))
        except ProgramError as error:
            await _abort(context, rpc_code.INVALID_ARGUMENT, str(error))
        except (BuildError, MemoryError) as error:
            await _abort(context, rpc_code.INTERNAL, str(error))
        return p4r.SetForwardingPipelineConfigResponse()

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
        """Applies updates one by one; each that fails has its own error in the status details."""
        errors: list[Any] = []
        try:
            self._arbiter.require_primary(request)
            if request.atomicity != p4r.WriteRequest.CONTINUE_ON_ERROR:
                raise EntityError(rpc_code.UNIMPLEMENTED, "only CONTINUE_ON_ERROR is supported")
            async with self._busy:
                pipeline = self._current()
                self._arbiter.require_primary(request)
                errors = await asyncio.to_thread(_write_all, pipeline, list(request.updates))
        except EntityError as error:
            await _abort(context, error.code, str(error))
        if any(error.canonical_code for error in errors):
            await _abort(context, rpc_code.UNKNOWN, "some updates failed", errors)
        return p4r.WriteResponse()

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The entities that each part of the request asks for, in messages of a few hundred."""
        found: list[Any] = []
        errors: list[Any] = []
        try:
            self._arbiter.require_device(request)
            if request.role:
                raise EntityError(rpc_code.NOT_FOUND, "roles are not supported: leave the role unset")
            async with self._busy:
                found, errors = await asyncio.to_thread(_read_all, self._current(), list(request.entities))
        except EntityError as error:
            await _abort(context, error.code, str(error))
        for start in range(0, len(found), _CHUNK):
            yield p4r.ReadResponse(entities=found[start : start + _CHUNK])
        if any(error.canonical_code for error in errors):
            await _abort(context, rpc_code.UNKNOWN, "some reads failed", errors)

    async def StreamChannel(self, request_iterator: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """Arbitration. Packet I/O and digests are answered with a stream error."""
        outbox: asyncio.Queue[Any] = asyncio.Queue()
        client = Client(outbox.put_nowait)
        listener = asyncio.create_task(self._listen(request_iterator, client, outbox))
        try:
            while not isinstance(message := await outbox.get(), _End):
                yield message
        finally:
            listener.cancel()
            self._arbiter.leave(client)
        if message.failure is not None:
            await _abort(context, message.failure.code, str(message.failure))

    async def _listen(self, requests: AsyncIterator[Any], client: Client, outbox: asyncio.Queue[Any]) -> None:
        failure: EntityError | None = None
        try:
            async for request in requests:
                if request.WhichOneof("update") == "arbitration":
                    self._arbiter.update(client, request.arbitration)
                else:
                    client.send(_stream_error(request))
        except EntityError as error:
            failure = error
        finally:
            outbox.put_nowait(_End(failure))

    def _current(self) -> Pipeline:
        if self._pipeline is None:
            raise EntityError(rpc_code.FAILED_PRECONDITION, "no forwarding pipeline is set")
        return self._pipeline


def make_server(service: Service, address: str) -> tuple[grpc.aio.Server, str]:
    """A server for the service, not started yet, and its address, with the port that the system chose for port 0.

    Raises SwitchError if it can't listen on the address.
    """
    options = [("grpc.max_receive_message_length", _MAX_MESSAGE), ("grpc.so_reuseport", 0)]
    server = grpc.aio.server(options=options)
    p4r_grpc.add_P4RuntimeServicer_to_server(service, server)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError:
        bound = 0
    if not bound:
        raise SwitchError(f"can't listen on {address}: it is in use, or not an address of this machine")
    return server, address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{bound}"


def _write_all(pipeline: Pipeline, updates: list[Any]) -> list[Any]:
    return [_attempt(entities.write, pipeline, update) for update in updates]


def _read_all(pipeline: Pipeline, requests: list[Any]) -> tuple[list[Any], list[Any]]:
    found: list[Any] = []

    def read(request: Any) -> None:
        found.extend(entities.read(pipeline, request))

    errors = [_attempt(read, request) for request in requests]
    return found, errors


def _attempt(action: Callable[..., None], *args: Any) -> Any:
    """p4.v1.Error of one part of a request; code OK if it went well."""
    try:
        action(*args)
    except EntityError as error:
        return p4r.Error(canonical_code=error.code, message=str(error), space="gradlane-switch")
    except MemoryError as error:
        return p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message=str(error), space="gradlane-switch")
    return p4r.Error()


def _stream_error(request: Any) -> Any:
    kind = request.WhichOneof("update")
    response = p4r.StreamMessageResponse()
    response.error.canonical_code = rpc_code.UNIMPLEMENTED
    response.error.message = f"{kind} is not supported on this stream"
    response.error.space = "gradlane-switch"
    if kind == "packet":
        response.error.packet_out.packet_out.CopyFrom(request.packet)
    elif kind == "digest_ack":
        response.error.digest_list_ack.digest_list_ack.CopyFrom(request.digest_ack)
    else:
        response.error.other.SetInParent()
    return response


async def _abort(context: Any, code: int, message: str, errors: list[Any] | None = None) -> NoReturn:
    metadata: tuple[tuple[str, bytes], ...] = ()
    if errors is not None:
        status = rpc_status.Status(code=code, message=message)
        for error in errors:
            status.details.add().Pack(error)
        metadata = (("grpc-status-details-bin", status.SerializeToString()),)
    await context.abort(_CODES[code], message, metadata)
    raise AssertionError("abort raises")
