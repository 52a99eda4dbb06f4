# SPDX-License-Identifier: Apache-2.0
"""A gradlane-switch between hosts on wires, and its P4Runtime controller: whatever a benchmark writes into a switch."""

from __future__ import annotations

import queue
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format

from bench.harness.wires import SENDER, SENDER_MAC, Wires
from bench.harness.worker import Worker
from lab.model.errors import ControlError
from lab.net.control import ask_switch

_SECONDS = 60.0  # that a server may take to start, and that an answer may take
_DSCP_CLASS = 5
_OWN_MAC = b"\x02\0\0\0\0\xff"


@dataclass(frozen=True)
class Pipeline:
    """A compiled P4 program: `name`.json and `name`.p4info.txtpb in that folder."""

    folder: Path
    name: str

    @property
    def program(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def p4info(self) -> Path:
        return self.folder / f"{self.name}.p4info.txtpb"

    def info(self) -> Any:
        """The p4.config.v1.P4Info."""
        return text_format.Parse(self.p4info.read_text(), p4i.P4Info())

    def ids(self) -> dict[str, int]:
        """P4Runtime ids of tables, actions and counters, by alias."""
        info = self.info()
        return {item.preamble.alias: item.preamble.id for item in [*info.tables, *info.actions, *info.counters]}


GRADLANE = Pipeline(Path(__file__).resolve().parents[2] / "p4src" / "build" / "v1model", "gradlane")
"""The project's own program."""


class RunningSwitch(Worker):
    """A gradlane-switch in the switch's namespace; `ports` as its option -i takes them.

    Use as a context manager: within it the switch is ready. `before`: words in front of its command; `flags`: behind.
    Raises ProcessError.
    """

    def __init__(
        self,
        wires: Wires,
        folder: Path,
        ports: Sequence[str],
        *,
        pipeline: Pipeline = GRADLANE,
        before: Sequence[str] = (),
        flags: Sequence[str] = (),
    ) -> None:
        self.admin, self.address = folder / "admin.sock", f"unix:{folder}/p4runtime.sock"
        command = ["ip", "netns", "exec", wires.switch, *before, sys.executable, "-m", "gradlane_switch", "--seed", "1"]
        command += ["--program", str(pipeline.program), "--p4info", str(pipeline.p4info)]
        command += ["--admin", str(self.admin), "--grpc-server-addr", self.address]
        for port in ports:
            command += ["-i", port]
        super().__init__("gradlane-switch", [*command, *flags], asked=False, logs=True)

    def __enter__(self) -> RunningSwitch:
        with ExitStack() as stack:
            stack.push(self)
            self.wait_for("ready device")
            stack.pop_all()
        return self

    def request(self, **request: Any) -> dict[str, Any]:
        """The answer to a request to the admin socket. Raises ControlError."""
        return ask_switch(self.admin, request)


class Client:
    """The primary controller of a P4Runtime server, until it is left as a context manager. Raises ControlError."""

    def __init__(self, address: str) -> None:
        self.identity: dict[str, Any] = {"device_id": 1, "election_id": U128.encode(1)}
        self._channel = grpc.insecure_channel(address, [("grpc.max_send_message_length", -1)])
        self._stub: Any = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: queue.Queue[Any] = queue.Queue()
        self._requests.put(p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(**self.identity)))
        with refusals("arbitration"):
            grpc.channel_ready_future(self._channel).result(_SECONDS)
            self._stream: Any = self._stub.StreamChannel(iter(self._requests.get, None))
            next(self._stream)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._stream.cancel()
        self._channel.close()

    def listen(self, told: Counter[str]) -> None:
        """Counts what comes on the stream from now on: packets, digest lists, their values. Acknowledges the lists."""
        threading.Thread(target=self._listen, args=[told], daemon=True).start()

    def _listen(self, told: Counter[str]) -> None:
        with suppress(grpc.RpcError):
            for message in self._stream:
                kind = message.WhichOneof("update")
                told[kind] += 1
                if kind == "digest":
                    told["values"] += len(message.digest.data)
                    ack = p4r.DigestListAck(digest_id=message.digest.digest_id, list_id=message.digest.list_id)
                    self._requests.put(p4r.StreamMessageRequest(digest_ack=ack))

    def set_pipeline(self, pipeline: Pipeline) -> None:
        """Makes the switch run that program."""
        config = p4r.ForwardingPipelineConfig(p4info=pipeline.info(), p4_device_config=pipeline.program.read_bytes())
        action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request = p4r.SetForwardingPipelineConfigRequest(**self.identity, action=action, config=config)
        with refusals("the program"):
            self._stub.SetForwardingPipelineConfig(request, timeout=_SECONDS)

    def write(self, kind: Any, entities: Iterable[Any]) -> None:
        """Updates of one kind, in a batch."""
        updates = [p4r.Update(type=kind, entity=entity) for entity in entities]
        with refusals("a write"):
            self._stub.Write(p4r.WriteRequest(**self.identity, updates=updates), timeout=_SECONDS)

    def write_serialized(self, requests: Iterable[bytes]) -> None:
        """Sends p4.v1.WriteRequests that are bytes already, one after the other."""
        write: Any = self._channel.unary_unary(
            "/p4.v1.P4Runtime/Write", request_serializer=None, response_deserializer=None
        )
        with refusals("a write"):
            for request in requests:
                write(request)

    def read(self, entity: Any) -> list[Any]:
        """The entities that a request asks for."""
        with refusals("a read"):
            answers = self._stub.Read(p4r.ReadRequest(device_id=1, entities=[entity]), timeout=_SECONDS)
            return [item for answer in answers for item in answer.entities]


@contextmanager
def refusals(what: str) -> Generator[None, None, None]:
    """Errors of gRPC within the block become a ControlError about `what`."""
    try:
        yield
    except (grpc.RpcError, grpc.FutureTimeoutError) as problem:
        raise ControlError(f"the switch refused {what}, or did not answer: {problem}") from None


# Entries of the project's own program


class Entries:
    """Makes p4.v1.Entity messages for GRADLANE."""

    def __init__(self) -> None:
        self.ids = GRADLANE.ids()

    def next_hops(self, ports: Iterable[int]) -> list[Any]:
        """The switch's own MAC address, and for each port a group of that number, whose one member is the host there.
        Routes refer to them."""
        mine = self._exact(_OWN_MAC)
        entities = [self._entry("stations", mine, "route")]
        for port in ports:
            forward = self._action("forward", bytes([port]), b"\x02\0\0\0\0" + bytes([port]), _OWN_MAC)
            entry = p4r.TableEntry(table_id=self.ids["next_hops"], match=self._exact(bytes([port])))
            entry.action.action_profile_action_set.action_profile_actions.add(action=forward, weight=1)
            entities.append(p4r.Entity(table_entry=entry))
        return entities

    def senders(self, ports: Iterable[int]) -> list[Any]:
        """Hosts at these ports that may send what `wires.frame` makes, and ARP."""
        return [
            self._entry("sources", self._exact(bytes([port]), SENDER_MAC, source), "known", b"\0")
            for port in ports
            for source in (b"\xff\xff" + SENDER, b"\0")
        ]

    def route(self, address: bytes, length: int, port: int) -> Any:
        """Sends what is for a prefix to the next hop at a port."""
        match = p4r.FieldMatch(field_id=1, lpm=p4r.FieldMatch.LPM(value=address, prefix_len=length))
        return self._entry("ipv4_routes", [match], "set_next_hop", bytes([port]))

    def dscp_class(self, dscp: int) -> Any:
        """Puts packets of a DSCP in a queue above best effort."""
        return self._entry("dscp_classes", self._exact(bytes([dscp])), "set_queue_class", bytes([_DSCP_CLASS]))

    @staticmethod
    def _exact(*values: bytes) -> list[Any]:
        return [
            p4r.FieldMatch(field_id=number, exact=p4r.FieldMatch.Exact(value=value))
            for number, value in enumerate(values, 1)
        ]

    def _entry(self, table: str, match: list[Any], action: str, *params: bytes) -> Any:
        entry = p4r.TableEntry(table_id=self.ids[table], match=match)
        entry.action.action.CopyFrom(self._action(action, *params))
        return p4r.Entity(table_entry=entry)

    def _action(self, name: str, *params: bytes) -> Any:
        action = p4r.Action(action_id=self.ids[name])
        for number, value in enumerate(params, 1):
            action.params.add(param_id=number, value=value)
        return action
