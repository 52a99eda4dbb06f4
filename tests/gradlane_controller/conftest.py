# SPDX-License-Identifier: Apache-2.0
"""A P4Runtime server that holds entities and forwards nothing, and files to control it with."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue, SimpleQueue
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf.any_pb2 import Any as PackedAny

PIPELINE = Path(__file__).parents[2] / "p4src" / "build" / "v1model"


class FakeSwitch(p4r_grpc.P4RuntimeServicer):
    """What the tests look at: `entities`, the `log` of calls that change something; and what it is told to refuse."""

    def __init__(self) -> None:
        self.entities: dict[bytes, p4r.Entity] = {}
        self.config: p4r.ForwardingPipelineConfig | None = None
        self.log: list[str] = []
        self.refuse_pipeline = False
        self.refuse: Callable[[p4r.Entity], bool] = lambda _entity: False
        self.counters: dict[tuple[int, int], tuple[int, int]] = {}
        self._streams: dict[int, SimpleQueue[p4r.StreamMessageResponse | None]] = {}
        self._highest_bid = 0
        self._lock = threading.Lock()
        self._server: grpc.Server | None = None
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        p4r_grpc.add_P4RuntimeServicer_to_server(self, self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        self._server.start()

    def stop(self) -> None:
        if self._server is not None:
            with self._lock:
                for stream in self._streams.values():
                    stream.put(None)
            self._server.stop(0).wait()
            self._server = None

    def forget(self) -> None:
        """As after a restart: no program, no entities."""
        self.entities.clear()
        self.config = None
        self._highest_bid = 0

    def StreamChannel(self, requests, context):
        answers: SimpleQueue[p4r.StreamMessageResponse | None] = SimpleQueue()
        with self._lock:
            self._bid(answers, next(requests).arbitration.election_id.low, context)
        threading.Thread(target=self._listen, args=(requests, answers, context), daemon=True).start()
        while (answer := answers.get()) is not None:
            yield answer
        with self._lock:
            self._streams = {bid: stream for bid, stream in self._streams.items() if stream is not answers}
            self._tell_all()

    def _listen(self, requests, answers, context) -> None:
        try:
            for request in requests:
                if not request.HasField("arbitration"):
                    continue  # a packet
                with self._lock:
                    self._bid(answers, request.arbitration.election_id.low, context)
        except grpc.RpcError:
            pass  # the client went away
        answers.put(None)

    def _bid(self, answers: SimpleQueue[p4r.StreamMessageResponse | None], bid: int, context) -> None:
        if bid in self._streams:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "Election id already exists")
        self._streams = {other: stream for other, stream in self._streams.items() if stream is not answers}
        self._streams[bid] = answers
        self._highest_bid = max(self._highest_bid, bid)
        self._tell_all()

    def _tell_all(self) -> None:
        """P4Runtime 5.4: the primary is who made the highest bid ever seen; if it left, there is none."""
        for bid, stream in self._streams.items():
            answer = p4r.StreamMessageResponse()
            answer.arbitration.election_id.low = self._highest_bid
            if bid == self._highest_bid:
                answer.arbitration.status.code = rpc_code.OK
            elif self._highest_bid in self._streams:
                answer.arbitration.status.code = rpc_code.ALREADY_EXISTS
            else:
                answer.arbitration.status.code = rpc_code.NOT_FOUND
            stream.put(answer)

    def Capabilities(self, request, context):
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.3.0")

    def GetForwardingPipelineConfig(self, request, context):
        if self.config is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device.")
        config = p4r.ForwardingPipelineConfig(cookie=self.config.cookie)
        if request.response_type != p4r.GetForwardingPipelineConfigRequest.COOKIE_ONLY:
            config.p4info.CopyFrom(self.config.p4info)
        return p4r.GetForwardingPipelineConfigResponse(config=config)

    def SetForwardingPipelineConfig(self, request, context):
        if self.refuse_pipeline:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such extern")
        self.log.append(p4r.SetForwardingPipelineConfigRequest.Action.Name(request.action))
        self.entities.clear()
        self.config = request.config
        return p4r.SetForwardingPipelineConfigResponse()

    def Write(self, request, context):
        if request.election_id.low != self._highest_bid:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "not the primary")
        errors = [self._update(update) for update in request.updates]
        if any(error.canonical_code for error in errors):
            status = rpc_status.Status(code=rpc_code.UNKNOWN)
            for error in errors:
                packed = PackedAny()
                packed.Pack(error)
                status.details.append(packed)
            context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(grpc.StatusCode.UNKNOWN, "")
        return p4r.WriteResponse()

    def _update(self, update: p4r.Update) -> p4r.Error:
        if update.entity.HasField("counter_entry"):
            cell = update.entity.counter_entry
            self.counters[cell.counter_id, cell.index.index] = (cell.data.packet_count, cell.data.byte_count)
            return p4r.Error()
        kind = p4r.Update.Type.Name(update.type)
        key = _key(update.entity)
        is_meter = update.entity.HasField("meter_entry")
        self.log.append(f"{kind} {update.entity.WhichOneof('entity')}")
        if self.refuse(update.entity):
            return p4r.Error(canonical_code=rpc_code.RESOURCE_EXHAUSTED, message="no room")
        if kind == "INSERT" and key in self.entities:
            return p4r.Error(canonical_code=rpc_code.ALREADY_EXISTS, message="there already")
        if kind != "INSERT" and key not in self.entities and not is_meter:
            return p4r.Error(canonical_code=rpc_code.NOT_FOUND, message="not there")
        if kind == "DELETE":
            del self.entities[key]
        else:
            self.entities[key] = update.entity
        return p4r.Error()

    def Read(self, request, context):
        answer = p4r.ReadResponse()
        for wanted in request.entities:
            kind = wanted.WhichOneof("entity")
            if kind == "counter_entry":
                cell = wanted.counter_entry.index if wanted.counter_entry.HasField("index") else None
                for (counter, index), (packets, octets) in self.counters.items():
                    if counter == wanted.counter_entry.counter_id and cell in (None, p4r.Index(index=index)):
                        entry = answer.entities.add().counter_entry
                        entry.counter_id = counter
                        entry.index.index = index
                        entry.data.packet_count, entry.data.byte_count = packets, octets
                continue
            if kind == "direct_counter_entry":
                for entity in self.entities.values():
                    if entity.table_entry.table_id == wanted.direct_counter_entry.table_entry.table_id != 0:
                        entry = answer.entities.add().direct_counter_entry
                        entry.table_entry.CopyFrom(entity.table_entry)
                        entry.data.packet_count, entry.data.byte_count = 3, 4500
                continue
            table = wanted.table_entry.table_id
            answer.entities.extend(
                entity
                for entity in self.entities.values()
                if entity.WhichOneof("entity") == kind and table in (0, entity.table_entry.table_id)
            )
        yield answer


def _key(entity: p4r.Entity) -> bytes:
    key = p4r.Entity()
    key.CopyFrom(entity)
    key.table_entry.ClearField("action") if key.HasField("table_entry") else None
    key.meter_entry.ClearField("config") if key.HasField("meter_entry") else None
    if key.HasField("packet_replication_engine_entry"):
        key.packet_replication_engine_entry.multicast_group_entry.ClearField("replicas")
    return key.SerializeToString(deterministic=True)


@pytest.fixture
def make_fake_switch() -> Iterator[Callable[[], FakeSwitch]]:
    made: list[FakeSwitch] = []

    def make() -> FakeSwitch:
        made.append(FakeSwitch())
        made[-1].start()
        return made[-1]

    yield make
    for switch in made:
        switch.stop()


@pytest.fixture
def fake_switch(make_fake_switch: Callable[[], FakeSwitch]) -> FakeSwitch:
    return make_fake_switch()


@pytest.fixture
def pipeline_folder() -> Path:
    return PIPELINE


@pytest.fixture
def fabric_text() -> Callable[..., str]:
    """The text of a fabric file with four hosts, h1 to h4."""

    def make(address: str = "127.0.0.1:9559", target: str = "gradlane-switch") -> str:
        ports = "".join(
            f"""
[[port]]
number = {n}
host = "h{n}"
mac = "02:00:00:00:0{n}:01"
host_mac = "02:00:00:00:0{n}:02"
address = "10.0.{n}.2"
prefix = "10.0.{n}.0/24"
rate = "100mbit"
buffer = "64kB"
"""
            for n in range(1, 5)
        )
        return f"""
[[switch]]
name = "s1"
device_id = 1
address = "{address}"
target = "{target}"
[thresholds]
yellow = 0.25
red = 0.5
{ports}
[[dscp]]
dscp = 46
queue_class = 5
"""

    return make


@pytest.fixture
def leafspine_text() -> Callable[..., str]:
    """The text of a fabric file with h1 and h2 at leaf1, h3 and h4 at leaf2, and spines between the leaves."""

    def make(spines: int = 2, addresses: Sequence[str] = (), rates: Sequence[str] = ()) -> str:
        names = ["leaf1", "leaf2", *(f"spine{n}" for n in range(1, spines + 1))]
        addresses = addresses or [f"127.0.0.1:{9559 + n}" for n in range(len(names))]
        switches = "".join(
            f'[[switch]]\nname = "{name}"\naddress = "{address}"\n'
            for name, address in zip(names, addresses, strict=True)
        )
        ports = "".join(
            f"""
[[port]]
switch = "leaf{1 + n // 2}"
number = {1 + n % 2}
host = "h{n + 1}"
mac = "02:00:00:00:0{n + 1}:01"
host_mac = "02:00:00:00:0{n + 1}:02"
address = "10.0.{n + 1}.2"
prefix = "10.0.{n + 1}.0/24"
gateway = "10.0.{n + 1}.1"
address6 = "fd00:{n + 1}::2"
prefix6 = "fd00:{n + 1}::/64"
gateway6 = "fd00:{n + 1}::1"
rate = "100mbit"
buffer = "64kB"
"""
            for n in range(4)
        )
        links = "".join(
            f'[[link]]\nends = ["leaf{leaf}:{4 + spine}", "spine{spine}:{leaf}"]\n'
            f'rate = "{rates[spine - 1] if rates else "100mbit"}"\nbuffer = "64kB"\n'
            for spine in range(1, spines + 1)
            for leaf in (1, 2)
        )
        return switches + ports + links

    return make


@pytest.fixture
def job_text() -> Callable[..., str]:
    """The text of a job file on some of the hosts h1 to h4."""

    def make(
        name: str = "demo",
        number: int = 1,
        hosts: tuple[int, ...] = (1, 2),
        servers: tuple[int, ...] = (),
        base: int = 0,
        mask: int = 4095,
        transport: str = "",
        policy: str = "",
    ) -> str:
        members = "".join(
            f'[[{kind}]]\nrank = {rank}\nhost = "h{n}"\naddress = "10.0.{n}.2"\n'
            for rank, (kind, n) in enumerate([("worker", n) for n in hosts] + [("server", n) for n in servers])
        )
        return f"""
[job]
name = "{name}"
id = {number}
key = "00112233445566ff00112233445566ff"
{members}
[transport]
rate = "100mbit"
{transport}
[policy]
queue_classes = [ {{ layers = [0, 3], class = 6 }}, {{ layers = [4, 65535], class = 5 }} ]
drop_precedences = [
    {{ magnitudes = [0, 63], drop_precedence = 3 }},
    {{ magnitudes = [64, 127], drop_precedence = 2, layers = [0, 10] }},
]
{policy}
[slots]
base = {base}
mask = {mask}
"""

    return make


# Seconds for what should happen at once, on a machine that is busy with other tests.
PATIENCE = 60.0


class Running:
    """A controller process. `lines` gets what it says on stderr."""

    def __init__(self, arguments: list[str], http_port: int) -> None:
        self.http = f"127.0.0.1:{http_port}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gradlane_controller.cli", "run", "--http", self.http, *arguments],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._lines: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str, seconds: float = PATIENCE) -> str:
        """The next line with that text. Fails the test with all that was said if there is none in time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except Empty:
                pytest.fail(f"no line with {text!r} in {seconds} s; the controller said {self.said}")
            if line is None:
                pytest.fail(f"it ended without a line with {text!r}; the controller said {self.said}")
            if text in line:
                return line

    def ask(self, method: str, path: str, body: str | None = None) -> tuple[int, Any]:
        """HTTP status and JSON of a request."""
        data = None if body is None else body.encode()
        request = urllib.request.Request(f"http://{self.http}{path}", data=data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as problem:
            return problem.code, json.load(problem)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            self._lines.put(line.rstrip())
        self._lines.put(None)


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def run_controller(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts `gradlane-controller run` with a fabric file, job files and more arguments; ends it after the test."""
    started: list[Running] = []

    def start(fabric: str, *jobs: str, more: tuple[str, ...] = (), http_port: int | None = None) -> Running:
        arguments = ["--fabric", str(write(tmp_path / "fabric.toml", fabric))]
        for number, job in enumerate(jobs):
            arguments += ["--job", str(write(tmp_path / f"job{number}.toml", job))]
        started.append(Running([*arguments, *more], http_port or find_free_port()))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.wait(timeout=PATIENCE)


@pytest.fixture
def free_port() -> Callable[[], int]:
    return find_free_port


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path
