# SPDX-License-Identifier: Apache-2.0
"""The switches that the packet tests run on: packets in, packets out, and P4Runtime entities.

gradlane-switch runs in this process. BMv2 is a process of its own that takes packets over gRPC
(`--dp-grpc-server-addr`), so it needs neither interfaces nor privileges.
"""

import socket
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

import grpc
from finsy import Action, Match, P4MulticastGroupEntry, P4Schema, P4TableEntry
from finsy.proto import p4r, p4r_grpc, rpc_status
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from gradlane_packets import HOSTS
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from gradlane_switch import Switch

ANSWER_SECONDS = 10.0
START_SECONDS = 20.0


@dataclass(frozen=True)
class Sent:
    """A frame that left the switch. `queue` is None where the target does not tell."""

    port: int
    queue: int | None
    frame: bytes

    @property
    def packet(self) -> Ether:
        """Dissected."""
        return Ether(self.frame)


class Target(Protocol):
    """A switch that runs the program."""

    # Frames of its own that the target sends through the program; each counts once as best effort, forwarded.
    own_packets: int
    own_bytes: int

    def reset(self) -> None:
        """The program as after a start: no entities, no counts, no state."""
        ...

    def write(self, updates: Iterable[p4r.Update]) -> None:
        """Applies P4Runtime updates."""
        ...

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        """What a P4Runtime Read of `entity` gives."""
        ...

    def process(self, port: int, frame: bytes) -> list[Sent]:
        """What leaves when a frame enters a port."""
        ...


class InProcess:
    """gradlane-switch without ports. `switch.now` is its clock in ns, which stands still."""

    def __init__(self, schema: P4Schema, program: Path, p4info: Path) -> None:
        del schema
        self.own_packets = self.own_bytes = 0
        self._files = program, p4info
        self.switch = Switch.load(*self._files)

    def reset(self) -> None:
        self.switch = Switch.load(*self._files)

    def write(self, updates: Iterable[p4r.Update]) -> None:
        self.switch.write(*updates)

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        return self.switch.read(entity)

    def process(self, port: int, frame: bytes) -> list[Sent]:
        return [Sent(*copy) for copy in self.switch.process_queued(port, frame)]


def _frame_message() -> type[Any]:
    """p4.bm.PacketStreamRequest of BMv2's dataplane_interface.proto; PacketStreamResponse has the same fields."""
    types = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="dataplane_frame.proto", package="gradlane.test", syntax="proto3")
    message = file.message_type.add(name="Frame")
    for number, (name, kind) in enumerate(
        (
            ("id", types.TYPE_UINT64),
            ("device_id", types.TYPE_UINT64),
            ("port", types.TYPE_UINT32),
            ("packet", types.TYPE_BYTES),
        ),
        1,
    ):
        message.field.add(name=name, number=number, type=kind, label=types.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("gradlane.test.Frame"))


_Frame = _frame_message()


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


class Bmv2:
    """A simple_switch_grpc process.

    It answers nothing when it drops a packet, so after each packet a marker goes the same way: multicast to every port
    (multicast passes no meter) in the lowest class, so that on each port it comes last.
    """

    MARKER_GROUP = (1 << 15) - 1  # the highest that it takes
    MARKER_ADDRESS = "239.255.255.255"
    MARKER_PORT = 60
    MARKER = bytes(Ether() / IP(src="10.255.0.1", dst=MARKER_ADDRESS, ttl=64, proto=253))

    def __init__(self, schema: P4Schema, command: str, folder: Path) -> None:
        self.own_packets = self.own_bytes = 0
        self._schema = schema
        self._has_program = False
        self._cleanup = ExitStack()
        ports = iter(free_ports(3))
        runtime, dataplane = (f"127.0.0.1:{next(ports)}" for _ in range(2))
        log = self._cleanup.enter_context((folder / "bmv2.log").open("wb"))
        arguments = ["--no-p4", "--device-id", "1", "--thrift-port", str(next(ports))]
        arguments += ["--notifications-addr", f"ipc://{folder}/notifications.ipc", "--"]
        arguments += ["--grpc-server-addr", runtime, "--dp-grpc-server-addr", dataplane, "--priority-queues", "8"]
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
        self._session = Stream(self._stub.StreamChannel)
        self._cleanup.callback(self._session.close)
        request = p4r.StreamMessageRequest()
        request.arbitration.device_id = request.arbitration.election_id.low = 1
        self._session.send(request)
        assert self._session.receive("answer to the arbitration").arbitration.status.code == 0
        self.reset()  # BMv2 takes packets once it has a program
        method = channels[1].stream_stream(
            "/p4.bm.DataplaneInterface/PacketStream", _Frame.SerializeToString, _Frame.FromString
        )
        self._frames = Stream(method)
        self._cleanup.callback(self._frames.close)

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(ANSWER_SECONDS)

    def close(self) -> None:
        """Ends the process."""
        self._cleanup.close()

    def reset(self) -> None:
        self._delete_groups()
        request = p4r.SetForwardingPipelineConfigRequest(
            device_id=1,
            election_id=p4r.Uint128(low=1),
            action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
            config=self._schema.get_pipeline_config(),
        )
        self._stub.SetForwardingPipelineConfig(request, timeout=START_SECONDS)
        self.own_packets = self.own_bytes = 0
        ports = tuple(host.port for host in HOSTS)
        route = P4TableEntry(
            "routes",
            match=Match(destination=f"{self.MARKER_ADDRESS}/32"),
            action=Action("replicate", group=self.MARKER_GROUP),
        )
        marker = (P4MulticastGroupEntry(self.MARKER_GROUP, replicas=ports), route)
        self.write(p4r.Update(type=p4r.Update.INSERT, entity=entity.encode(self._schema)) for entity in marker)

    def _delete_groups(self) -> None:
        """A new program makes P4Runtime forget the groups, but not BMv2 itself: it would replicate to old and new."""
        if self._has_program:
            held = self.read(P4MulticastGroupEntry().encode(self._schema))
            self.write(p4r.Update(type=p4r.Update.DELETE, entity=entity) for entity in held)
        self._has_program = True

    def write(self, updates: Iterable[p4r.Update]) -> None:
        request = p4r.WriteRequest(device_id=1, election_id=p4r.Uint128(low=1), updates=updates)
        try:
            self._stub.Write(request, timeout=ANSWER_SECONDS)
        except grpc.RpcError as error:
            raise AssertionError(f"BMv2 refused: {_details(error)}") from error

    def read(self, entity: p4r.Entity) -> list[p4r.Entity]:
        answers = self._stub.Read(p4r.ReadRequest(device_id=1, entities=[entity]), timeout=ANSWER_SECONDS)
        return [found for answer in answers for found in answer.entities]

    def process(self, port: int, frame: bytes) -> list[Sent]:
        self._frames.send(_Frame(device_id=1, port=port, packet=frame))
        self._frames.send(_Frame(device_id=1, port=self.MARKER_PORT, packet=self.MARKER))
        self.own_packets += 1
        self.own_bytes += len(self.MARKER)
        return list(self._until_marked())

    def _until_marked(self) -> Iterator[Sent]:
        waiting = {host.port for host in HOSTS}
        while waiting:
            answer = self._frames.receive(f"frame from BMv2, though a marker is due on ports {waiting}")
            if answer.packet[30:34] == bytes((239, 255, 255, 255)):
                waiting.remove(answer.port)
            else:
                assert answer.port in waiting, "a frame of a higher class must leave before the marker"
                yield Sent(answer.port, None, answer.packet)


def _details(error: Any) -> str:
    """The reasons in a Write's error: P4Runtime keeps one per update."""
    packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    reasons = [p4r.Error.FromString(each.value) for each in rpc_status.Status.FromString(packed).details]
    return "; ".join(reason.message for reason in reasons if reason.canonical_code) or str(error)


def free_ports(count: int) -> list[int]:
    """TCP ports of 127.0.0.1 that are free now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
