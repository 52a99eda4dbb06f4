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
import pytest
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_status
from google.protobuf import text_format

from tests.support import zygote

COMMAND = [sys.executable, "-m", "gradlane_switch"]

# Seconds: 100,000 entries are read on a machine that is busy with other tests.
_PATIENCE = 600.0


def _is_stopped(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"


class Process:
    """Started, ready, and ended by SIGTERM. `prefix` runs it elsewhere, e.g. in a network namespace."""

    def __init__(
        self,
        *arguments: str,
        prefix: tuple[str, ...] = (),
        address: str = "127.0.0.1:0",
        environment: dict[str, str] | None = None,
    ) -> None:
        command = [*prefix, *COMMAND, "--grpc-server-addr", address, *arguments]
        self._process = zygote.start(command, stderr=subprocess.PIPE, env=environment)
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stderr, selectors.EVENT_READ)
        self.log = b""
        try:
            self.address = self.wait_for("ready ").split(" on ")[1].split(";")[0]
        except BaseException:
            self._process.kill()
            self.stop()
            raise

    def wait_for(self, text: str, seconds: float = 120) -> str:
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

    def unread(self) -> bytes:
        """What the log has got since it was looked at, without waiting."""
        more = b""
        while self._selector.select(0) and (part := self._stderr.read1(65536)):
            more += part
        self.log += more
        return more

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def terminate_and_read(self) -> str:
        """Everything it says until it has ended after SIGTERM."""
        self._process.send_signal(signal.SIGTERM)
        self.log += self._stderr.read()
        self.stop()
        return self.log.decode()

    def signal(self, number: int) -> None:
        """Sends a signal, and does not wait."""
        self._process.send_signal(number)

    def pause(self) -> None:
        """Stops it, and waits until none of its threads runs any more: a signal takes its time to reach each."""
        self._process.send_signal(signal.SIGSTOP)
        end = time.monotonic() + 10
        while not all(map(_is_stopped, Path(f"/proc/{self._process.pid}/task").iterdir())):
            assert time.monotonic() < end, "threads of the switch still run"
            time.sleep(0.001)

    def terminate(self) -> None:
        """Sends SIGTERM, and does not wait."""
        self._process.send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """Exit code after SIGTERM."""
        self.terminate()
        code = self._process.wait(60)
        self._selector.close()
        self._stderr.close()
        return code

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Controller:
    """A P4Runtime client with one stream. `options` are those of the gRPC channel."""

    def __init__(
        self, address: str, election_id: int, device_id: int = 1, role: str = "", options: list[Any] | None = None
    ) -> None:
        self.election_id, self.device_id, self.role = election_id, device_id, role
        self.channel = grpc.insecure_channel(address, options)
        self.stub: Any = p4r_grpc.P4RuntimeStub(self.channel)
        self._requests: queue.Queue[Any] = queue.Queue()
        self.stream: Any = self.stub.StreamChannel(iter(self._requests.get, None), timeout=_PATIENCE)

    def send(self, request: Any) -> None:
        self._requests.put(request)

    def arbitrate(self, election_id: int | None = None) -> Any:
        """The answer to an arbitration update."""
        if election_id is not None:
            self.election_id = election_id
        update = p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=U128.encode(self.election_id))
        if self.role:
            update.role.name = self.role
        self.send(p4r.StreamMessageRequest(arbitration=update))
        return self.next()

    def next(self) -> Any:
        """The next arbitration message."""
        return next(self.stream).arbitration

    @property
    def identity(self) -> dict[str, Any]:
        return {"device_id": self.device_id, "election_id": U128.encode(self.election_id), "role": self.role}

    def set_pipeline(self, program: Path, p4info: Path, cookie: int = 0) -> None:
        info = text_format.Parse(p4info.read_text(), p4i.P4Info())
        config = p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=program.read_bytes())
        config.cookie.cookie = cookie
        self.set_config(p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT, config)

    def set_config(self, action: int, config: Any = None) -> None:
        """Any action of SetForwardingPipelineConfig."""
        request = p4r.SetForwardingPipelineConfigRequest(**self.identity, action=action, config=config)
        self.stub.SetForwardingPipelineConfig(request, timeout=_PATIENCE)

    def get_config(self) -> Any:
        request = p4r.GetForwardingPipelineConfigRequest(device_id=self.device_id)
        return self.stub.GetForwardingPipelineConfig(request, timeout=_PATIENCE).config

    def write(self, *updates: Any, atomicity: int = 0) -> None:
        self.stub.Write(p4r.WriteRequest(**self.identity, updates=updates, atomicity=atomicity), timeout=_PATIENCE)

    def insert(self, *wanted: Any) -> None:
        self.write(*(p4r.Update(type=p4r.Update.INSERT, entity=item) for item in wanted))

    def read(self, *wanted: Any) -> list[Any]:
        request = p4r.ReadRequest(device_id=self.device_id, entities=wanted, role=self.role)
        answers = self.stub.Read(request, timeout=_PATIENCE)
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
        connection.settimeout(60)
        connection.connect(str(path))
        connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile() as lines:
            return json.loads(lines.readline())


def failure(call: Any, *args: Any, **options: Any) -> tuple[grpc.StatusCode, str]:
    """Code and message of an RPC that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*args, **options)
    error: Any = caught.value
    return error.code(), error.details()


def failures(call: Any, *args: Any, **options: Any) -> list[tuple[int, str]]:
    """(code, message) of each part of a Write or Read that must fail."""
    with pytest.raises(grpc.RpcError) as caught:
        call(*args, **options)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.UNKNOWN, error
    return update_errors(error)
