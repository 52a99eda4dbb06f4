# SPDX-License-Identifier: Apache-2.0
"""What the metrics say of HTTP clients: each request and each refusal once, and nothing that a client has made up."""

import asyncio
import re
import threading
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from gradlane_controller.api import connections
from gradlane_controller.api.connections import MAX_BODY_BYTES, MAX_CONNECTIONS, MAX_HEAD_BYTES
from gradlane_controller.api.context import MAX_AT_WORK
from gradlane_controller.api.rates import Buckets
from gradlane_controller.api.traffic import REASONS
from gradlane_controller.metrics import exposition
from tests.gradlane_controller.api.server import PATIENCE, Server, read
from tests.support.agents import until

NAME = "gradlane_controller_http_"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics are those of now."""
    monkeypatch.setattr(exposition, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(exposition, "REST", 0)


def told(server: Server, metric: str) -> Counter[tuple[str, ...]]:
    """The values of a metric by its labels, in the order of their names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    found = re.findall(rf"^{NAME}{metric}{{(.*)}} (\S+)$", text, re.MULTILINE)
    return Counter({tuple(re.findall(r'"([^"]*)"', labels)): int(float(value)) for labels, value in found})


def test_each_request_counts_once_by_its_route_and_status(server: Server) -> None:
    before = told(server, "requests_total")
    assert server.ask("GET", "/v1/status")[0] == 200
    assert server.ask("GET", "/v1/jobs/one")[0] == 404
    assert server.ask("GET", "/v1/jobs/two")[0] == 404
    assert server.ask("PUT", "/v1/status")[0] == 405
    assert server.ask("GET", "/v1/status", token=None)[0] == 401
    more = told(server, "requests_total") - before
    assert more == {
        ("GET", "/v1/status", "2xx"): 1,
        ("GET", "/v1/jobs/{name}", "4xx"): 2,
        ("PUT", "/v1/status", "4xx"): 1,
        ("GET", "none", "4xx"): 1,  # refused before it was looked at
        ("GET", "/metrics", "2xx"): 1,
    }
    assert told(server, "request_seconds_count")[("/v1/status",)] >= 2


def test_no_label_is_what_a_client_has_made_up(server: Server) -> None:
    known = {key[1] for key in told(server, "requests_total")}
    methods = {key[0] for key in told(server, "requests_total")}
    for n in range(30):
        server.ask("GET", f"/v1/secret{n}")
        server.ask("GET", f"/secret{n}/%00?secret={n}")
        server.ask("GET", f"/assets/secret{n}.js")
        server.ask("GET", f"/v1/jobs/secret{n}")
        server.send(server.head(("PATCH", "TRACE", "MKCOL", "LOCK")[n % 4], f"/v1/secret{n}") + b"\r\n", patience=0.2)
        server.ask("GET", "/v1/status", token=None if n > 4 else f"secret{n}", Host=f"localhost:{n + 1}")
    found = told(server, "requests_total")
    assert "secret" not in str(found)
    assert len({key[1] for key in found} - known) <= 4
    assert {key[0] for key in found} - methods <= {"GET", "other"}
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=PATIENCE) as answer:
        assert b"secret" not in answer.read()


def test_each_refusal_is_counted_by_its_reason(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusals(reason: str) -> int:
        return told(server, "refused_total")[(reason,)]

    assert {key[0] for key in told(server, "refused_total")} == set(REASONS)
    before = {reason: refusals(reason) for reason in REASONS}

    def more() -> dict[str, int]:
        return {reason: count for reason in REASONS if (count := refusals(reason) - before[reason])}

    server.ask("GET", "/v1/status", Host="evil.example")
    server.ask("GET", "/v1/status", Origin="http://evil.example")
    server.ask("GET", "/v1/status", token=None)
    server.ask("GET", "/v1/status", token="of nobody")
    server.ask("DELETE", "/v1/jobs/a", token="read")
    server.ask("GET", "/v1/status", token="agents")
    server.ask("POST", "/v1/jobs", b"#" * (MAX_BODY_BYTES + 1))
    server.send(b"nonsense\r\n\r\n")
    server.send(server.head("GET", "/v1/status") + b"x: " + b"y" * MAX_HEAD_BYTES)
    wanted = {"site": 2, "no_token": 1, "token": 1, "scope": 2, "body": 1, "malformed": 1, "head": 1}
    assert more() == wanted

    with monkeypatch.context() as patch:
        patch.setattr(connections, "CLIENT_SECONDS", 0.2)
        with server.connect() as sock:
            assert read(sock) == b""
        until(lambda: more() == wanted | {"slow": 1})
    slow = [server.connect() for _ in range(MAX_CONNECTIONS + 1)]
    until(lambda: more().get("crowded", 0) >= 1)
    for sock in slow:
        sock.close()


def test_who_asks_too_often_is_counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    before = told(server, "refused_total")
    monkeypatch.setattr(Buckets, "take", lambda *_: 1.5)
    assert server.ask("GET", "/v1/status")[0] == 429
    assert (told(server, "refused_total") - before) == {("rate",): 1}


def test_who_asks_while_too_much_is_at_work_is_counted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    async def wait(*_: object) -> None:
        begun.release()
        await asyncio.to_thread(go_on.wait, PATIENCE)

    monkeypatch.setattr(server.controller, "delete_job", wait)
    before = told(server, "refused_total")
    with ThreadPoolExecutor(MAX_AT_WORK) as pool:
        waiting = [pool.submit(server.ask, "DELETE", "/v1/jobs/demo") for _ in range(MAX_AT_WORK)]
        for _ in waiting:
            assert begun.acquire(timeout=PATIENCE)
        assert server.ask("DELETE", "/v1/jobs/demo")[0] == 503
        go_on.set()
    assert (told(server, "refused_total") - before) == {("busy",): 1}
