# SPDX-License-Identifier: Apache-2.0
"""The live state: what it says, what it costs, and streams to clients that read or do not."""

import contextlib
import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradlane_controller.api import connections, live_state
from gradlane_controller.api.connections import MAX_CONNECTIONS, MAX_STREAMS
from gradlane_controller.api.routes.live import BATCH
from tests.gradlane_controller.api.server import PATIENCE, Server
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text


class Stream:
    """A client that reads events."""

    def __init__(self, server: Server, *lines: str) -> None:
        self._sock = server.connect()
        head = server.head("GET", "/v1/stream", "read") + "".join(f"{line}\r\n" for line in lines).encode()
        self._sock.sendall(head + b"\r\n")
        self._file = self._sock.makefile("rb")
        self.status = self._file.readline().decode()
        self.headers: dict[str, str] = {}
        self._rest = b""
        while (line := self._file.readline().decode().strip()) != "":
            name, _, value = line.partition(": ")
            self.headers[name] = value

    def next(self) -> dict[str, str]:
        """The fields of the next event."""
        while b"\n\n" not in self._rest:
            size = int(self._file.readline(), 16)
            self._rest += self._file.read(size)
            self._file.readline()
        event, _, self._rest = self._rest.partition(b"\n\n")
        return dict(line.split(": ", 1) for line in event.decode().splitlines())

    def close(self) -> None:
        self._file.close()
        self._sock.close()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def reading(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """When the switches' counters were asked for."""
    asked: list[float] = []

    async def counters(*_: object) -> Any:
        asked.append(time.monotonic())
        raise live_state.GradlaneError("away")

    monkeypatch.setattr(server.controller, "counters", counters)
    return asked


def test_a_picture_each_second_and_none_when_nobody_watches(
    server: Server, monkeypatch: pytest.MonkeyPatch, reading: list[float]
) -> None:
    monkeypatch.setattr(live_state, "SECONDS", 0.05)
    monkeypatch.setattr(live_state, "COUNTER_SECONDS", 0.1)
    monkeypatch.setattr(live_state, "INTEREST_SECONDS", 0.1)
    stream = Stream(server)
    assert "200 OK" in stream.status
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    found = [json.loads(event["data"]) for event in (stream.next() for _ in range(8)) if event["event"] == "state"]
    assert len({it["at"] for it in found}) == 8
    assert len(reading) >= 2
    stream.close()
    until(lambda: server.context.live.idle)
    before = len(reading)
    time.sleep(0.5)
    assert len(reading) == before


def test_readings_of_counters_are_apart_however_many_watch(
    server: Server, monkeypatch: pytest.MonkeyPatch, reading: list[float]
) -> None:
    monkeypatch.setattr(live_state, "SECONDS", 0.02)
    monkeypatch.setattr(live_state, "COUNTER_SECONDS", 0.2)
    streams = [Stream(server) for _ in range(4)]
    for _ in range(30):
        for each in streams:
            each.next()
        server.ask("GET", "/v1/state")
    for each in streams:
        each.close()
    apart = [b - a for a, b in itertools.pairwise(reading)]
    assert apart
    assert min(apart) > 0.15


def test_streams_have_a_limit_of_their_own_and_leave_room_for_others(server: Server) -> None:
    streams = [Stream(server) for _ in range(MAX_STREAMS)]
    assert all("200 OK" in each.status for each in streams)
    status, answer, headers = server.ask_all("GET", "/v1/stream")
    assert (status, headers["retry-after"]) == (503, "10")
    assert f"{MAX_STREAMS} clients take streams" in answer["error"]
    idle = [server.connect() for _ in range(2 * MAX_CONNECTIONS)]
    assert server.ask("GET", "/v1/status")[0] == 200
    assert all(each.next()["event"] == "state" for each in streams)  # none of them had to go
    for each in (*streams, *idle):
        each.close()
    until(lambda: "200 OK" in _status_of_another(server))


def _status_of_another(server: Server) -> str:
    stream = Stream(server)
    stream.close()
    return stream.status


def test_who_does_not_read_its_stream_is_dropped_and_who_reads_is_not(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_state, "SECONDS", 0.01)
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.5)
    real = server.controller.status
    monkeypatch.setattr(server.controller, "status", lambda: _large(real()))
    reader = Stream(server)
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", server.port))
        lazy.sendall(server.head("GET", "/v1/stream") + b"\r\n")
        deadline = time.monotonic() + PATIENCE
        began = time.monotonic()
        while time.monotonic() < began + 2 or len(server.places.streams) > 1:
            assert reader.next()["event"] == "state"
            assert time.monotonic() < deadline
        found = 0
        lazy.settimeout(PATIENCE)
        with contextlib.suppress(ConnectionError):
            while more := lazy.recv(1 << 20):
                found += len(more)
        assert found < 8 << 20  # what lay in the kernel; not all pictures of two seconds
    reader.close()


def _large(status: dict[str, Any]) -> dict[str, Any]:
    status["switches"][0]["problem"] = "x" * 300_000
    return status


def test_a_reader_that_was_slow_gets_the_latest_picture(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_state, "SECONDS", 0.01)
    real = server.controller.status
    monkeypatch.setattr(server.controller, "status", lambda: _large(real()))
    stream = Stream(server)
    stream.next()
    number = server.context.live.number
    until(lambda: server.context.live.number > number + 200)
    at = [json.loads(stream.next()["data"])["at"] for _ in range(30)]
    stream.close()
    # 200 pictures were made meanwhile. A few lay in buffers; then it goes on with those of now.
    assert len(set(at)) == len(at)
    assert at == sorted(at)


@pytest.fixture
def live(fake_switch: FakeSwitch, tmp_path: Path) -> Iterator[Server]:
    """Of a controller that runs, and so tells of what happens."""
    it = Server(tmp_path, fabric=fabric_text(fake_switch.address), jobs=(job_text(),))
    yield it
    it.close()


def entries(stream: Stream, number: int) -> list[tuple[int, str]]:
    """The next ones of the timeline that a test has recorded: their ids and subjects."""
    found: list[tuple[int, str]] = []
    while len(found) < number:
        event = stream.next()
        if event["event"] == "event":
            content = json.loads(event["data"])
            assert int(event["id"]) == content["id"]
            if content["kind"] == "test":
                found.append((content["id"], content["subject"]))
    return found


def test_a_stream_tells_what_happens_and_goes_on_where_it_was(live: Server) -> None:
    stream = Stream(live)
    stream.next()
    for n in range(3):
        live.call(live.controller.journal.record, "test", f"first {n}", "text", n=n)
    found = entries(stream, 3)
    assert [subject for _, subject in found] == ["first 0", "first 1", "first 2"]
    stream.close()
    for n in range(BATCH + 50):  # nobody listens
        live.call(live.controller.journal.record, "test", f"second {n}", "text")
    again = Stream(live, f"Last-Event-ID: {found[1][0]}")
    expected = ["first 2", *(f"second {n}" for n in range(BATCH + 50))]
    later = entries(again, len(expected))
    assert [subject for _, subject in later] == expected
    assert [number for number, _ in later] == sorted({number for number, _ in later})
    live.call(live.controller.journal.record, "test", "third", "text")
    assert entries(again, 1)[0][1] == "third"
    again.close()
    for wrong in ("-1", "x", str(1 << 63)):
        assert live.ask("GET", "/v1/stream", Last_Event_ID=wrong)[0] == 422


def test_the_timeline_comes_in_pages(live: Server) -> None:
    for n in range(5):
        live.call(live.controller.journal.record, "test", f"subject {n}", "text", n=n)
    until(lambda: len(live.ask("GET", "/v1/events?kind=test")[1]["items"]) == 5)
    latest = live.ask("GET", "/v1/events?limit=2&kind=test")[1]
    assert ([it["subject"] for it in latest["items"]], latest["next"]) == (["subject 3", "subject 4"], None)
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = live.ask("GET", f"/v1/events?kind=test&limit=2&after={after}")[1]
        assert len(page["items"]) <= 2
        found += page["items"]
        after = page["next"]
    told = [(it["kind"], it["subject"], it["data"]) for it in found]
    assert told == [("test", f"subject {n}", {"n": n}) for n in range(5)]
    assert {"test", "switch"} <= {it["kind"] for it in live.ask("GET", "/v1/events?limit=1000")[1]["items"]}
    for wrong in ("after=-1", f"after={1 << 63}", "limit=0", "after=x", f"kind={'x' * 33}"):
        assert live.ask("GET", f"/v1/events?{wrong}")[0] == 422
