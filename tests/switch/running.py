# SPDX-License-Identifier: Apache-2.0
"""A gradlane-switch process, and a plain gRPC client for it."""

from __future__ import annotations

import json
import queue
import selectors
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_status
from google.protobuf import text_format

COMMAND = [sys.executable, "-m", "gradlane_switch"]


class Process:
    """Started, ready, and ended by SIGTERM. `prefix` runs it elsewhere, e.g. in a network namespace."""

    def __init__(self, *arguments: str, prefix: tuple[str, ...] = (), address: str = "127.0.0.1:0") -> None:
        command = [*prefix, *COMMAND, "--grpc-server-addr", address, *arguments]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stderr, selectors.EVENT_READ)
        self.log = b""
        self.address = self.wait_for("ready ").split(" on ")[1].split(";")[0]

    def wait_for(self, text: str, seconds: float = 30) -> str:
        """The first line of the log that has a text in it."""
        end = time.monotonic() + seconds
        while True:
            for line in self.log.splitlines(keepends=True):
                if text.encode() in line and line.endswith(b"\n"):
                    return line.decode().strip()
            assert self._selector.select(end - time.monotonic()), f"no {text!r} in {self.log!r}"
            more = self._stderr.read1(65536)
            assert more, f"ended without {text!r}: {self.log!r}"
            self.log += more

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> int:
        """Exit code after SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(20)
        self._selector.close()
        self._stderr.close()
        return code

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Controller:
    """A P4Runtime client with one stream."""

    def __init__(self, address: str, election_id: int, device_id: int = 1) -> None:
        self.election_id, self.device_id = election_id, device_id
        self.channel = grpc.insecure_channel(address)
        self.stub: Any = p4r_grpc.P4RuntimeStub(self.channel)
        self._requests: queue.Queue[Any] = queue.Queue()
        self.stream: Any = self.stub.StreamChannel(iter(self._requests.get, None), timeout=60)

    def send(self, request: Any) -> None:
        self._requests.put(request)

    def arbitrate(self, election_id: int | None = None) -> Any:
        """The answer to an arbitration update."""
        if election_id is not None:
            self.election_id = election_id
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=U128.encode(self.election_id))
        self.send(p4r.StreamMessageRequest(arbitration=update))
        return self.next()

    def next(self) -> Any:
        """The next arbitration message."""
        return next(self.stream).arbitration

    @property
    def identity(self) -> dict[str, Any]:
        return {"device_id": self.device_id, "election_id": U128.encode(self.election_id)}

    def set_pipeline(self, program: Path, p4info: Path, cookie: int = 0) -> None:
        info = text_format.Parse(p4info.read_text(), p4i.P4Info())
        config = p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=program.read_bytes())
        config.cookie.cookie = cookie
        action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        request = p4r.SetForwardingPipelineConfigRequest(**self.identity, action=action, config=config)
        self.stub.SetForwardingPipelineConfig(request, timeout=60)

    def write(self, *updates: Any) -> None:
        self.stub.Write(p4r.WriteRequest(**self.identity, updates=updates), timeout=20)

    def insert(self, *wanted: Any) -> None:
        self.write(*(p4r.Update(type=p4r.Update.INSERT, entity=item) for item in wanted))

    def read(self, *wanted: Any) -> list[Any]:
        answers = self.stub.Read(p4r.ReadRequest(device_id=self.device_id, entities=wanted), timeout=20)
        return [item for answer in answers for item in answer.entities]

    def close(self) -> None:
        self._requests.put(None)
        self.stream.cancel()
        self.channel.close()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def update_errors(error: grpc.RpcError) -> list[tuple[int, str]]:
    """(code, message) of each update of a failed Write."""
    metadata: Any = error
    raw = dict(metadata.trailing_metadata())["grpc-status-details-bin"]
    details = rpc_status.Status.FromString(raw).details
    errors = [p4r.Error.FromString(item.value) for item in details]
    return [(item.canonical_code, item.message) for item in errors]


def admin(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """One request to the admin socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(path))
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as lines:
            return json.loads(lines.readline())
