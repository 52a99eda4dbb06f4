# SPDX-License-Identifier: Apache-2.0
"""A simple_switch_grpc process: P4Runtime, and frames over gRPC (`--dp-grpc-server-addr`), so that it needs neither
interfaces nor privileges.
"""

import subprocess
import threading
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import grpc
from finsy import P4Schema
from finsy.proto import p4r, p4r_grpc, rpc_status
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.support.ports import free_ports

ANSWER_SECONDS = 60.0
START_SECONDS = 120.0


_UINT64, _UINT32, _BYTES = (
    getattr(descriptor_pb2.FieldDescriptorProto, f"TYPE_{n}") for n in ("UINT64", "UINT32", "BYTES")
)


def _message(name: str, *fields: tuple[str, int]) -> type[Any]:
    """A message of BMv2's dataplane_interface.proto, by its fields in order of their numbers."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="gradlane.test", syntax="proto3")
    message = file.message_type.add(name=name)
    for number, (field, kind) in enumerate(fields, 1):
        label = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
        message.field.add(name=field, number=number, type=kind, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"gradlane.test.{name}"))


# PacketStreamRequest and PacketStreamResponse have the same fields.
Frame = _message("Frame", ("id", _UINT64), ("device_id", _UINT64), ("port", _UINT32), ("packet", _BYTES))
# The enum of the status reads like a number: 1 is down, 2 is up.
_PortStatus = _message("PortStatus", ("device_id", _UINT64), ("port", _UINT32), ("oper_status", _UINT32))
_Nothing = _message("Nothing")


class Stream:
    """A bidirectional gRPC stream: `send` queues a message, `receive` waits for one."""

    def __init__(self, method: Any) -> None:
        self._out: SimpleQueue[Any] = SimpleQueue()
        self._in: SimpleQueue[Any] = SimpleQueue()
        self._call = method(iter(self._out.get, None))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            for message in self._call:
                self._in.put(message)
        except grpc.RpcError as error:
            self._in.put(error)

    def send(self, message: Any) -> None:
        self._out.put(message)

    def receive(self, what: str) -> Any:
        try:
            message = self._in.get(timeout=ANSWER_SECONDS)
        except Empty:
            raise AssertionError(f"no {what} within {ANSWER_SECONDS:g} s") from None
        if isinstance(message, grpc.RpcError):
            raise AssertionError(f"no {what}: {message}") from message
        return message

    def close(self) -> None:
        self._out.put(None)
        self._call.cancel()
        self._reader.join(ANSWER_SECONDS)


class Bmv2Process:
    """BMv2 with a program. `thrift_port` is where simple_switch_CLI reaches it."""

    def __init__(self, schema: P4Schema, command: str, folder: Path, cpu_port: int | None = None) -> None:
        self._schema = schema
        self._cleanup = ExitStack()
        ports = iter(free_ports(3))
        runtime, dataplane = (f"127.0.0.1:{next(ports)}" for _ in range(2))
        self.thrift_port = next(ports)
        log = self._cleanup.enter_context((folder / "bmv2.log").open("wb"))
        arguments = ["--no-p4", "--device-id", "1", "--thrift-port", str(self.thrift_port)]
        arguments += ["--notifications-addr", f"ipc://{folder}/notifications.ipc", "--"]
        arguments += ["--grpc-server-addr", runtime, "--dp-grpc-server-addr", dataplane, "--priority-queues", "8"]
        arguments += [] if cpu_port is None else ["--cpu-port", str(cpu_port)]
        self._process = subprocess.Popen([command, *arguments], cwd=folder, stdout=log, stderr=log)
        self._cleanup.callback(self._end)
        try:
            self._connect(runtime, dataplane)
        except BaseException:
            self.close()
            raise

    def _connect(self, runtime: str, dataplane: str) -> None:
        channels = [self._cleanup.enter_context(grpc.insecure_channel(where)) for where in (runtime, dataplane)]
        for channel in channels:
            grpc.channel_ready_future(channel).result(START_SECONDS)
        self._stub = p4r_grpc.P4RuntimeStub(channels[0])
        self.session = Stream(self._stub.StreamChannel)
        self._cleanup.callback(self.session.close)
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = request.arbitration.election_id.low = 1
        self.session.send(request)
        assert self.session.receive("answer to the arbitration").arbitration.status.code == 0
        self.load_program()  # BMv2 takes packets once it has a program
        method = channels[1].stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream", Frame.SerializeToString, Frame.FromString
        )
        wait_until_started(method)
        self._frames = Stream(method)
        self._set_port = channels[1].unary_unary(
            "/p4.bm.DataplaneInterface/SetPortOperStatus", _PortStatus.SerializeToString, _Nothing.FromString
        )
        self._cleanup.callback(self._frames.close)

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(ANSWER_SECONDS)

    def close(self) -> None:
        """Ends the process."""
        self._cleanup.close()

    def load_program(self) -> None:
        """The program anew. BMv2 itself keeps multicast groups that P4Runtime then forgets."""
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            election_id=p4r.Uint128(low=1),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=self._schema.get_pipeline_config(),
        )
        self._stub.SetForwardingPipelineConfig(request, timeout=START_SECONDS)

    def write(self, updates: Iterable[p4r.Update]) -> None:
        """Applies P4Runtime updates."""
        request = p4r.WriteRequest(device_id=1, election_id=p4r.Uint128(low=1), updates=updates)
        try:
            self._stub.Write(request, timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise AssertionError(f"BMv2 refused: {_details(error)}") from error

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        """What a P4Runtime Read of the entities gives."""
        answers = self._stub.Read(p4r.ReadRequest(device_id=1, entities=entities), timeout=ANSWER_SECONDS)
        return [found for answer in answers for found in answer.entities]

    def set_port(self, port: int, up: bool) -> None:
        """Says that a port is up or down; BMv2 acts on it a little later."""
        self._set_port(_PortStatus(device_id=1, port=port, oper_status=2 if up else 1), timeout=ANSWER_SECONDS)

    def send(self, port: int, frame: bytes) -> None:
        """Lets a frame enter a port."""
        self._frames.send(Frame(device_id=1, port=port, packet=frame))

    def receive(self, what: str) -> tuple[int, bytes]:
        """The next frame that leaves, as (port, frame). AssertionError, naming `what` was expected, when none comes."""
        answer = self._frames.receive(what)
        return answer.port, answer.packet


def wait_until_started(method: Any) -> None:
    """BMv2 answers P4Runtime before it takes frames; until then it ends a stream of frames as unavailable."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            list(method(iter(())))
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                raise
        else:
            return


def _details(error: Any) -> str:
    """The reasons in a Write's error: P4Runtime keeps one per update."""
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    reasons = [p4r.Error.FromString(each.value) for each in rpc_status.Status.FromString(packed).details]
    return "; ".join(reason.message for reason in reasons if reason.canonical_code) or str(error)
