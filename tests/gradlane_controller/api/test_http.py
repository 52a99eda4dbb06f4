# SPDX-License-Identifier: Apache-2.0
"""The HTTP server against clients that are no friends: pages of web sites, slow ones, greedy ones, broken ones."""

import asyncio
import contextlib
import json
import logging
import socket
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_controller.api import connections
from gradlane_controller.api.connections import MAX_BODY_BYTES, MAX_CONNECTIONS
from gradlane_controller.api.context import MAX_AT_WORK
from gradlane_controller.api.errors import MAX_ERROR
from tests.gradlane_controller.api.server import PATIENCE, Server, read
from tests.gradlane_controller.texts import job_text
from tests.support.effort import tries


@contextlib.contextmanager
def complaints() -> Iterator[list[str]]:
    """What is logged meanwhile: a client must not be able to fill the log."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    names = ("uvicorn.error", "asyncio", "gradlane_controller")
    for name in names:
        logging.getLogger(name).addHandler(handler)
    yield said
    for name in names:
        logging.getLogger(name).removeHandler(handler)


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({"Origin": "http://evil.example"}, 403, "pages of web sites may not use the controller"),
        ({"Origin": "null"}, 403, "pages of web sites"),
        ({"Sec_Fetch_Site": "cross-site"}, 403, "pages of web sites"),
        ({"Sec_Fetch_Site": "same-site"}, 403, "pages of web sites"),
        ({"Host": "evil.example:9560"}, 403, "the request is for 'evil.example'; use this machine's address or name"),
        ({"Host": "127.0.0.1.evil.example"}, 403, "use this machine's address"),
        ({"Content_Type": "text/plain"}, 415, "Content-Type: application/toml"),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415, "Content-Type: application/toml"),
    ],
)
def test_a_page_of_a_web_site_changes_nothing(
    server: Server, headers: dict[str, str], status: int, reason: str
) -> None:
    answer = server.ask("POST", "/v1/jobs", job_text(), **headers)
    assert answer[0] == status
    assert reason in answer[1]["error"]
    if status == 403:
        assert server.ask("GET", "/v1/counters", **headers)[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:80", "[::1]:9560", "192.0.2.7:9560", socket.gethostname()])
def test_addresses_and_names_of_this_machine_are_answered(server: Server, host: str) -> None:
    assert server.ask("GET", "/v1/status", Host=host, Sec_Fetch_Site="none")[0] == 200


def test_metrics_say_of_each_switch_whether_it_is_ready(server: Server) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE) as found:
        assert found.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        answer = found.read().decode()
    for line in ('ready{switch="s1"} 0.0', 'primary{switch="s1"} 0.0', 'mended_times_total{switch="s1"} 0.0'):
        assert f"\ngradlane_controller_switch_{line}\n" in answer
    assert "\ngradlane_controller_jobs 0.0\n" in answer


def test_slow_clients_do_not_keep_others_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 10 * PATIENCE)  # none of them has to go yet
    slow = [server.connect() for _ in range(MAX_CONNECTIONS)]
    for each in slow:
        each.sendall(b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n")
    for _ in range(3):
        assert server.ask("GET", "/v1/status")[0] == 200
    assert read(slow[0]) == b""  # it has made room
    more = [server.connect() for _ in range(3 * MAX_CONNECTIONS)]
    assert server.ask("GET", "/v1/status")[0] == 200
    for each in (*slow, *more):
        each.close()


@pytest.mark.parametrize(
    "begin",
    [
        b"",
        b"GET /v1/status HTTP/1.1\r\nHost: loc",
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/toml\r\nContent-Length: 9\r\n\r\na",
    ],
)
def test_a_request_that_does_not_arrive_in_time_is_dropped(
    server: Server, monkeypatch: pytest.MonkeyPatch, begin: bytes
) -> None:
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.2)
    with server.connect() as sock:
        sock.sendall(begin)
        assert read(sock) == b""


def test_a_connection_is_for_one_request(server: Server) -> None:
    request = server.head("GET", "/v1/status") + b"\r\n"
    with server.connect() as sock:
        sock.sendall(request + request)
        answer = read(sock)
    assert answer.count(b"HTTP/1.1 200 OK") == 1


def test_requests_have_a_size(server: Server) -> None:
    head = server.head("POST", "/v1/jobs") + b"Content-Type: application/toml\r\nTransfer-Encoding: chunked\r\n"
    endless = (b"1000\r\n" + b"#" * 0x1000 + b"\r\n") * 200
    packed = b"\x1f\x8b\x08" + bytes(1000)  # is not unpacked, so that it can't grow
    assert len(server.ask("GET", "/v1/jobs/" + 4000 * "j")[1]["error"]) == MAX_ERROR
    with complaints() as said:
        assert server.ask("POST", "/v1/jobs", b"#" * (MAX_BODY_BYTES + 1))[0] == 413
        assert b"200 OK" not in server.send(head + b"\r\n", endless)
        assert b"200 OK" not in server.send(head, *(b"x%d: y\r\n" % n for n in range(100_000)))
        assert server.ask("POST", "/v1/jobs", packed, Content_Encoding="gzip")[0] == 400
    assert said == []


def test_work_at_switches_is_bounded_and_the_status_is_always_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    async def wait(_name: str, _check: object) -> None:
        begun.release()
        await asyncio.to_thread(go_on.wait, PATIENCE)

    monkeypatch.setattr(server.controller, "delete_job", wait)
    with ThreadPoolExecutor(MAX_AT_WORK) as pool:
        waiting = [pool.submit(server.ask, "DELETE", "/v1/jobs/demo") for _ in range(MAX_AT_WORK)]
        for _ in waiting:
            assert begun.acquire(timeout=PATIENCE)
        status, answer = server.ask("DELETE", "/v1/jobs/demo")
        assert status == 503
        assert "at work; try again" in answer["error"]
        assert server.ask("GET", "/v1/status")[0] == 200
        idle = [server.connect() for _ in range(MAX_CONNECTIONS)]
        assert server.ask("GET", "/v1/status")[0] == 200
        go_on.set()
        assert [it.result()[0] for it in waiting] == [200] * len(waiting)
        for each in idle:
            each.close()


Lines = st.lists(
    st.one_of(
        st.sampled_from(
            [b"Host: localhost", b"Content-Length: 5", b"Content-Length: -1", b"Transfer-Encoding: chunked"]
        ),
        st.sampled_from([b"Expect: 100-continue", b"Upgrade: h2c", b"Connection: Upgrade", b"Origin: x", b" folded"]),
        st.binary(max_size=40),
    ),
    max_size=6,
)


@pytest.mark.parametrize(
    "request_line", [b"GET /v1/status", b"CONNECT  HTTP/1.0", b"CONNECT  HTTP/9", b"GET /v1/status HTTP/2.0"]
)
def test_whatever_version_a_request_has_the_answer_is_of_the_servers(server: Server, request_line: bytes) -> None:
    with server.connect() as sock:
        sock.sendall(request_line + b"\r\n\r\n")
        assert sock.recv(9) == b"HTTP/1.1 "  # RFC 9110, section 2.5


@settings(max_examples=tries(60), deadline=None)
@given(
    method=st.sampled_from([b"GET", b"POST", b"DELETE", b"PUT", b"HEAD", b"OPTIONS", b"CONNECT", b"PRI", b"\x16\x03"]),
    path=st.sampled_from(
        [b"/v1/status", b"/v1/jobs", b"/v1/jobs/a", b"/v1/jobs/%00", b"*", b"//", b"http://x/", b"/\xff"]
    )
    | st.binary(max_size=20),
    version=st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b""]),
    lines=Lines,
    body=st.binary(max_size=30) | st.just(b"5\r\nhello\r\n0\r\n\r\n"),
)
def test_malformed_requests_are_answered_or_dropped_and_nothing_else_happens(
    server: Server, method: bytes, path: bytes, version: bytes, lines: list[bytes], body: bytes
) -> None:
    with complaints() as said:
        head = b" ".join((method, path, version))
        answer = server.send(b"\r\n".join((head, *lines, b"", body)), patience=0.1)
        assert not answer or answer.startswith((b"HTTP/1.", b"<"))
        assert b" 500 " not in answer.partition(b"\r\n")[0]
        assert server.ask("GET", "/v1/status")[0] == 200
    assert said == []


Values = st.one_of(
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.sampled_from(["nan", "inf", "-inf", "1e400", "0x" + "f" * 9000, "9" * 5000, "2020-13-45", "true", "''", "[]"]),
    st.sampled_from(
        ['"\\ud800"', '"\\u0000"', "[" * 2000, "{a = {}}", "[[1]]", "a." * 3000 + "a", '"' + "x" * 2000 + '"']
    ),
    st.text(max_size=20).map(json.dumps),
)


@settings(max_examples=tries(60), deadline=None)
@given(where=st.integers(0, 40), value=Values, cut=st.integers(0, 2000))
def test_malformed_jobs_are_refused_with_a_reason(server: Server, where: int, value: str, cut: int) -> None:
    lines = job_text().splitlines()
    places = [number for number, line in enumerate(lines) if " = " in line]
    place = places[where % len(places)]
    lines[place] = f"{lines[place].partition(' = ')[0]} = {value}"
    status, answer = server.ask("POST", "/v1/jobs", "\n".join(lines)[: cut + 200].encode(errors="surrogateescape"))
    assert status in (400, 503)  # 503: it is a job, and the switch is away
    assert len(answer["error"]) <= MAX_ERROR


def test_a_job_of_many_ranges_is_refused_at_once(server: Server) -> None:
    rows = ",".join(f"{{layers=[{n},{n}],class=1}}" for n in range(1025))
    status, answer = server.ask(
        "POST", "/v1/jobs", job_text().partition("queue_classes")[0] + f"queue_classes = [{rows}]"
    )
    assert status == 400
    assert "queue_classes: has 1025 tables; at most 1024 are possible" in answer["error"]
