# SPDX-License-Identifier: Apache-2.0
"""Who may ask for what: tokens, scopes, their ends, and what is told to whom that has none."""

import asyncio
import contextlib
import json
import logging
import socket
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gradlane_controller.api import tokens as tokens_module
from gradlane_controller.api.tokens import Scope, TokenConflictError, TokenError, Tokens
from gradlane_controller.store import Store
from tests.gradlane_controller.api.server import PATIENCE, Server
from tests.gradlane_controller.texts import job_text

# What each request needs, as docs/controller.md has it.
READ = (
    ("GET", "/v1/status"),
    ("GET", "/v1/fabric"),
    ("GET", "/v1/state"),
    ("GET", "/v1/stream"),
    ("GET", "/v1/events"),
    ("GET", "/v1/history"),
    ("GET", "/v1/links"),
    ("GET", "/v1/counters"),
    ("GET", "/v1/violations"),
    ("GET", "/v1/plan"),
    ("POST", "/v1/plan"),
    ("GET", "/v1/jobs"),
    ("GET", "/v1/jobs/{name}"),
    ("GET", "/v1/agents"),
    ("GET", "/v1/adaptive"),
)
JOBS = (("POST", "/v1/jobs"), ("PUT", "/v1/jobs/{name}"), ("DELETE", "/v1/jobs/{name}"), ("POST", "/v1/trainings"))
ADMIN = (
    ("POST", "/v1/reload"),
    ("POST", "/v1/apply"),
    ("GET", "/v1/export"),
    ("POST", "/v1/switches/{name}/drain"),
    ("POST", "/v1/switches/{name}/undrain"),
    ("POST", "/v1/adaptive/{name}/undo"),
    ("POST", "/v1/adaptive/{name}/resume"),
    ("GET", "/v1/tokens"),
    ("POST", "/v1/tokens"),
    ("DELETE", "/v1/tokens/{id}"),
)
OPEN = (("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/metrics"))
SECRET = len("gradlane_") + 16 + 1  # from there on a token is secret
OF_AGENTS = [("PUT", "/v1/agents/{host}")]  # of the scope agents, or admin: tests of trainings say who may report what
NEEDS = {**dict.fromkeys(READ, "read"), **dict.fromkeys(JOBS, "jobs"), **dict.fromkeys(ADMIN, "admin")}


def path_of(path: str) -> str:
    return path.replace("{name}", "demo").replace("{id}", "0" * 16)


def test_every_request_is_in_the_openapi_document_and_needs_what_the_documentation_says(server: Server) -> None:
    status, document = server.ask("GET", "/openapi.json", token=None)
    assert status == 200
    there = {(method.upper(), path) for path, its in document["paths"].items() for method in its}
    assert there == {*NEEDS, *OPEN, *OF_AGENTS}
    for method, path in OPEN:
        assert b"HTTP/1.1 401" not in server.send(f"{method} {path} HTTP/1.1\r\n\r\n".encode(), patience=PATIENCE)
    bearer = [document["paths"][path][method.lower()].get("security") for method, path in (*NEEDS, *OF_AGENTS)]
    assert all(it == [{"HTTPBearer": []}] for it in bearer)


@pytest.mark.parametrize(("method", "path"), NEEDS)
def test_a_token_of_a_lesser_scope_is_refused_and_none_at_all_too(server: Server, method: str, path: str) -> None:
    needed = NEEDS[method, path]
    status, answer, headers = server.ask_all(method, path_of(path), token=None)
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert "Authorization: Bearer TOKEN" in answer["error"]
    for scope in ("read", "jobs"):
        if ["read", "jobs", "admin"].index(scope) < ["read", "jobs", "admin"].index(needed):
            status, answer, headers = server.ask_all(method, path_of(path), token=scope)
            assert status == 403
            assert answer["error"] == f"this needs a token of scope {needed}; 'for {scope}' has {scope}"
            assert headers["www-authenticate"] == f'Bearer error="insufficient_scope", scope="{needed}"'


@pytest.mark.parametrize(("method", "path"), [it for it in NEEDS if it != ("GET", "/v1/stream")])
def test_the_scope_that_is_needed_is_enough(server: Server, method: str, path: str) -> None:
    assert server.ask(method, path_of(path), token=NEEDS[method, path])[0] not in (401, 403, 405, 500)


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/v1/status/", "/%761/status", "/v1/../v1/status"])
def test_nothing_below_v1_is_told_to_who_has_no_token(server: Server, path: str) -> None:
    assert server.ask("GET", path, token=None)[0] == 401
    assert server.ask("GET", path, token="admin")[0] in (200, 404)


@pytest.mark.parametrize("path", ["//v1/status", "/./v1/status", "/V1/status", "/healthz/../v1/status", "/status"])
def test_other_ways_to_write_a_path_lead_nowhere(server: Server, path: str) -> None:
    status, answer = server.ask("GET", path, token=None)
    assert status == 404
    assert "/v1/status" in answer["error"]
    assert "switches" not in answer


def wrong_tokens(server: Server) -> Iterator[str]:
    good, other = server.tokens["admin"], server.tokens["read"]
    yield ""
    yield "x"
    yield good[:-1]
    yield good + "x"
    yield good.upper()
    yield f"gradlane_{'0' * 16}_{'A' * 43}"
    yield good[:SECRET] + other[SECRET:]  # the id of one, and the secret of another
    yield good[:-1] + ("A" if good[-1] != "A" else "E")


def test_a_wrong_token_is_told_to_be_one_and_nothing_of_it_is_said(server: Server) -> None:
    for wrong in wrong_tokens(server):
        status, answer = server.ask("DELETE", "/v1/jobs/demo", token=wrong)
        assert status == 401, wrong
        assert len(wrong) < SECRET or wrong[SECRET:] not in answer["error"]


def test_a_token_goes_in_the_header_only_and_once(server: Server) -> None:
    good = server.tokens["admin"]
    assert server.ask("GET", f"/v1/status?token={good}&access_token={good}", token=None)[0] == 401
    assert server.ask("GET", "/v1/status", token=None, Cookie=f"token={good}")[0] == 401
    basic = server.ask("GET", "/v1/status", token=None, Authorization=f"Basic {good}")
    assert basic[0] == 401
    twice = f"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer {good}\r\nAuthorization: Bearer {good}\r\n\r\n"
    assert server.send(twice.encode(), patience=PATIENCE).startswith(b"HTTP/1.1 401")
    assert server.ask("GET", "/v1/status", token=None, Authorization=f"bearer {good}")[0] == 200  # RFC 9110, 11.1


def test_an_expired_token_is_worth_nothing(server: Server) -> None:
    _, text = server.make_token(Scope.ADMIN, timedelta(seconds=0.3))
    time.sleep(0.3)
    status, answer = server.ask("GET", "/v1/status", token=text)
    assert status == 401
    assert "has expired, at 20" in answer["error"]


def test_a_revoked_token_is_worth_nothing_at_once_and_here_within_a_second_if_another_controller_did(
    server: Server,
) -> None:
    number, text = server.make_token(Scope.READ)
    assert server.ask("GET", "/v1/status", token=text)[0] == 200
    assert server.ask("DELETE", f"/v1/tokens/{number}") == (200, {"deleted": number})
    assert server.ask("GET", "/v1/status", token=text)[0] == 401
    assert server.ask("DELETE", f"/v1/tokens/{number}")[0] == 404

    number, text = server.make_token(Scope.READ)
    with contextlib.closing(server.connect()) as sock:  # a stream ends with it
        sock.sendall(f"GET /v1/stream HTTP/1.1\r\nAuthorization: Bearer {text}\r\n\r\n".encode())
        assert b"200 OK" in sock.recv(200)
        elsewhere = Store.open(server.store_url)
        asyncio.run(Tokens(elsewhere).revoke(number))
        elsewhere.close()
        revoked = time.monotonic()
        while server.ask("GET", "/v1/status", token=text)[0] == 200:
            assert time.monotonic() < revoked + PATIENCE
        while sock.recv(1 << 20):
            assert time.monotonic() < revoked + PATIENCE
    assert tokens_module.POLL_SECONDS <= 0.5  # and a second is the promise: once polled, it is gone


def test_a_token_is_shown_once_and_kept_as_a_hash(server: Server) -> None:
    wanted = json.dumps({"name": "prometheus", "scope": "read", "days": 1})
    status, made = server.ask("POST", "/v1/tokens", wanted, Content_Type="application/json")
    assert status == 201
    secret = made["token"][SECRET:]
    assert made["token"].startswith(f"gradlane_{made['id']}_")
    assert datetime.fromisoformat(made["expires"]) - datetime.fromisoformat(made["created"]) == timedelta(days=1)
    assert server.ask("GET", "/v1/jobs", token=made["token"])[0] == 200
    _, listed = server.ask("GET", "/v1/tokens?limit=1000")
    (row,) = [it for it in listed["items"] if it["id"] == made["id"]]
    assert row == {key: it for key, it in made.items() if key != "token"} | {"used": row["used"]}
    assert datetime.now(timezone.utc) - datetime.fromisoformat(row["used"]) < timedelta(minutes=1)
    files = [it for it in server.folder.iterdir() if it.name.startswith("fabric.db")]
    assert files
    for file in files:
        assert secret.encode() not in file.read_bytes()


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "the body"),
        ("[]", "the body"),
        ('{"name": "x"}', "scope: field required"),
        ('{"name": "x", "scope": "root"}', "scope is 'root': input should be 'agents', 'read', 'jobs' or 'admin'"),
        ('{"name": "", "scope": "read"}', "name is ''"),
        ('{"name": "a\\nb", "scope": "read"}', "name is 'a\\nb': string should match"),
        ('{"name": "\\ud800", "scope": "read"}', "name"),
        ('{"name": "x", "scope": "read", "days": -1}', "days is '-1': input should be greater than 0"),
        ('{"name": "x", "scope": "read", "days": 1e999}', "days"),
        ('{"name": "x", "scope": "read", "days": NaN}', "days"),
    ],
)
def test_a_malformed_wish_for_a_token_is_refused_with_what_would_be_right(
    server: Server, body: str, reason: str
) -> None:
    before = server.ask("GET", "/v1/tokens?limit=1000")[1]["items"]
    status, answer = server.ask("POST", "/v1/tokens", body, Content_Type="application/json")
    assert status == 422
    assert reason in answer["error"]
    assert len(server.ask("GET", "/v1/tokens?limit=1000")[1]["items"]) == len(before)


def test_lists_come_in_pages(server: Server) -> None:
    for _ in range(3):
        server.make_token(Scope.READ)
    whole = server.ask("GET", "/v1/tokens?limit=1000")[1]
    assert whole["next"] is None
    found, cursor = [], ""
    while cursor is not None:
        page = server.ask("GET", f"/v1/tokens?limit=2&cursor={cursor}")[1]
        assert len(page["items"]) <= 2
        found += [it["id"] for it in page["items"]]
        cursor = page["next"]
    assert found == [it["id"] for it in whole["items"]] == sorted(set(found))
    for query in ("limit=0", "limit=1001", "limit=x"):
        assert server.ask("GET", f"/v1/tokens?{query}")[0] == 422


@pytest.mark.parametrize(
    ("method", "path", "headers", "status", "reason"),
    [
        ("PATCH", "/v1/status", {}, 405, "/v1/status has no PATCH, but GET"),
        ("PATCH", "/v1/jobs/a", {}, 405, "/v1/jobs/a has no PATCH, but DELETE and GET and PUT"),
        ("GET", "/v1/status", {"Accept": "text/html"}, 406, "the answer is application/json"),
        ("GET", "/v1/status", {"Accept": "application/json;q=0"}, 406, "the answer is application/json"),
        ("GET", "/v1/stream", {"Accept": "application/json"}, 406, "the answer is text/event-stream"),
        ("GET", "/v1/status", {"Accept": "text/html, application/*;q=0.1"}, 200, None),
        ("POST", "/v1/plan", {"Content_Type": "text/plain"}, 415, "Content-Type: application/toml"),
        ("POST", "/v1/tokens", {"Content_Type": "text/plain"}, 415, "Content-Type: application/json"),
        ("POST", "/v1/tokens", {"Content_Type": "application/json"}, 400, "the body is no JSON: "),
        ("PUT", "/v1/jobs/demo", {"Content_Type": "application/json"}, 415, "Content-Type: application/toml"),
        ("GET", "/docs", {}, 404, "no /docs here; there are /v1/status"),
        ("GET", "/redoc", {}, 404, "no /redoc here"),
        ("OPTIONS", "/v1/jobs", {}, 405, "/v1/jobs has no OPTIONS, but GET and POST"),
    ],
)
def test_refusals_name_what_would_be_right(
    server: Server, method: str, path: str, headers: dict[str, str], status: int, reason: str | None
) -> None:
    found, answer, given = server.ask_all(method, path, job_text(), **headers)
    assert found == status
    assert reason is None or reason in answer["error"]
    assert not [name for name in given if name.startswith("access-control-")]
    if status == 405:
        assert given["allow"]


def test_the_controllers_own_page_may_ask_and_no_other(server: Server) -> None:
    own = {"Host": "localhost:9560", "Origin": "http://localhost:9560", "Sec_Fetch_Site": "same-origin"}
    assert server.ask("GET", "/v1/status", **own)[0] == 200
    for wrong in ({"Origin": "http://localhost:1"}, {"Origin": "https://localhost:9560"}, {"Host": "localhost:1"}):
        assert server.ask("GET", "/v1/status", **{**own, **wrong})[0] == 403
    link = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}
    assert server.ask("GET", "/v1/status", **link)[0] == 403


def test_the_first_start_makes_a_token_and_later_ones_do_not(tmp_path: Path) -> None:
    file = tmp_path / "fabric.db.token"

    async def run() -> None:
        store = Store.open(f"sqlite:///{tmp_path / 'fabric.db'}")
        it = Tokens(store)
        assert await it.ensure_admin(file)
        assert file.stat().st_mode & 0o777 == 0o600
        first = it.check(file.read_text().strip())
        assert first.scope is Scope.ADMIN
        again = Tokens(store)
        assert not await again.ensure_admin(file)
        assert again.check(file.read_text().strip()) == first
        with pytest.raises(TokenConflictError, match="is the last of scope admin"):
            await it.revoke(first.id)
        second, text = await it.create("other", Scope.ADMIN)
        await it.revoke(first.id)
        with pytest.raises(TokenError, match="nobody has this token"):
            it.check(file.read_text().strip())
        assert it.check(text).id == second.id
        later = Tokens(store, lambda: datetime.now(timezone.utc) + timedelta(days=400))
        await later.load()
        assert later.check(text).id == second.id
        store.close()

    asyncio.run(run())


def test_a_token_file_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        store = Store.open(f"sqlite:///{tmp_path / 'fabric.db'}")
        with pytest.raises(TokenError, match="none/token: can't be written: No such file or directory"):
            await Tokens(store).ensure_admin(tmp_path / "none" / "token")
        store.close()

    asyncio.run(run())


def test_checks_ask_no_store_and_what_was_used_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        store = Store.open(f"sqlite:///{tmp_path / 'fabric.db'}")
        it = Tokens(store)
        token, text = await it.create("x", Scope.READ)
        asked: list[object] = []
        monkeypatch.setattr(store, "read", lambda *_: asked.append(1))
        for _ in range(100):
            it.check(text)
        assert asked == []
        monkeypatch.undo()
        monkeypatch.setattr(tokens_module, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(tokens_module, "USED_SECONDS", 0.02)
        running = asyncio.create_task(it.run())
        other = Tokens(store)
        deadline = time.monotonic() + PATIENCE
        while (await other.load()) or {each.id: each for each in other.all()}[token.id].used is None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait((running,))
        store.close()

    asyncio.run(run())


def test_no_log_error_or_status_has_a_token(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    secrets = [text[SECRET:] for text in server.tokens.values()]
    said: list[str] = []
    with caplog.at_level(logging.DEBUG):
        for method, path in NEEDS:
            if path != "/v1/stream":
                for token in (*server.tokens, "wrong"):
                    said.append(json.dumps(server.ask_all(method, path_of(path), "x", token=token)))
        for path in ("/metrics", "/openapi.json", "/healthz", "/readyz"):
            said.append(server.send(f"GET {path} HTTP/1.1\r\n\r\n".encode(), patience=PATIENCE).decode())
        said.append(server.send(server.head("GET", "/v1/sta\0tus") + b"bad\r\n\r\n", patience=PATIENCE).decode())
    said.append(caplog.text)
    assert len(caplog.text) < 100_000
    for secret in secrets:
        assert not [text for text in said if secret in text]


def test_many_strangers_do_not_keep_out_who_has_a_token(server: Server) -> None:
    strangers = [server.connect() for _ in range(200)]
    for each in strangers:
        with contextlib.suppress(OSError):
            each.sendall(b"GET /v1/status HTTP/1.1\r\nAuthorization: Bearer x\r\nX: ")
    assert server.ask("GET", "/v1/status")[0] == 200
    for each in strangers:
        each.close()


def test_a_client_that_does_not_read_its_answer_is_dropped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradlane_controller.api.connections.CLIENT_SECONDS", 0.3)
    monkeypatch.setattr(server.controller, "status", lambda: {"large": "x" * (64 << 20)})
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(PATIENCE)
        sock.connect(("127.0.0.1", server.port))
        sock.sendall(server.head("GET", "/v1/status") + b"\r\n")
        deadline = time.monotonic() + PATIENCE
        while server.places.opened:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        found = 0
        with contextlib.suppress(ConnectionError):
            while more := sock.recv(1 << 20):
                found += len(more)
        assert found < 64 << 20
