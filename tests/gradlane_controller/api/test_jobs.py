# SPDX-License-Identifier: Apache-2.0
"""Jobs over HTTP: versions, requests that are done once only, and pages of lists."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from gradlane import job
from gradlane_controller.client import JOB_TYPE
from gradlane_controller.desired.keys import without_key
from gradlane_controller.store import Store, answers
from gradlane_controller.store.answers import Answer
from tests.gradlane_controller.api.server import PATIENCE, Server
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text

NEW = job_text("other", 2, hosts=(3, 4), base=4096)
CHANGED = job_text("other", 2, hosts=(3, 4), base=4096, policy="yellow = 3")


@pytest.fixture
def live(fake_switch: FakeSwitch, tmp_path: Path) -> Iterator[Server]:
    """Of a controller that has converged its switch."""
    it = Server(tmp_path, fabric=fabric_text(fake_switch.address), jobs=(job_text(),))
    yield it
    it.close()


def counting(live: Server, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts of jobs that the controller was given."""
    given: list[str] = []
    put: Callable[..., Any] = live.controller.put_job

    async def note(text: str, *arguments: Any) -> Any:
        given.append(text)
        return await put(text, *arguments)

    monkeypatch.setattr(live.controller, "put_job", note)
    return given


def test_a_job_has_its_file_and_a_version_which_changes_with_it(live: Server) -> None:
    status, first, headers = live.ask_all("GET", "/v1/jobs/demo", token="jobs")
    assert status == 200
    assert (first["name"], first["workers"], headers["etag"]) == ("demo", ["h1", "h2"], f'"{first["version"]}"')
    assert first["text"] is None  # its file is that of the command line
    assert live.ask("GET", "/v1/jobs/demo", If_None_Match=headers["etag"]) == (304, None)
    assert live.ask("GET", "/v1/jobs/demo", If_None_Match='"x"')[0] == 200

    status, _, made = live.ask_all("PUT", "/v1/jobs/other", NEW, token="jobs", If_None_Match="*")
    assert status == 200
    status, other, headers = live.ask_all("GET", "/v1/jobs/other", token="jobs")
    assert (status, other["text"], headers["etag"]) == (200, without_key(NEW), made["etag"])
    assert [it["name"] for it in live.ask("GET", "/v1/jobs")[1]["items"]] == ["demo", "other"]
    assert live.ask("GET", "/v1/jobs?limit=1")[1]["next"] == "demo"
    assert [it["name"] for it in live.ask("GET", "/v1/jobs?limit=1&cursor=demo")[1]["items"]] == ["other"]
    status, answer = live.ask("GET", "/v1/jobs/none")
    assert (status, "there is no job 'none'" in answer["error"]) == (404, True)


KEY = "00112233445566ff00112233445566ff"


@pytest.mark.parametrize("token", ["read", "jobs", "admin"])
def test_nobody_who_asks_for_jobs_gets_their_keys(live: Server, token: str) -> None:
    noted = NEW.replace("[job]", f"[job]\n# key = '{KEY}'")  # a comment may have it, too
    assert live.ask("PUT", "/v1/jobs/other", noted)[0] == 200
    paths = [path for path, methods in live.ask("GET", "/openapi.json")[1]["paths"].items() if "get" in methods]
    assert {"/v1/jobs", "/v1/jobs/{name}", "/v1/export", "/v1/state", "/v1/events", "/v1/history"} <= {*paths}
    asked = [path.replace("{name}", name) for path in paths for name in ("other", "demo")]
    answered = 0
    for path in {*asked, "/v1/plan?live=true"} - {"/v1/stream", "/metrics"}:
        if "{" in path or not path.startswith("/v1/"):
            continue
        status, answer = live.ask("GET", path, token=token)
        assert KEY not in json.dumps(answer).lower(), path
        answered += status == 200
    assert answered >= 10
    for method, path, body in (("POST", "/v1/plan", CHANGED), ("PUT", "/v1/jobs/other", CHANGED)):
        assert KEY not in json.dumps(live.ask(method, path, body, token)).lower()
    with live.connect() as sock:
        sock.sendall(live.head("GET", "/v1/stream", token) + b"Last-Event-ID: 0\r\n\r\n")
        said = b""
        while said.count(b"event: state") < 2 or b"event: event" not in said:
            said += sock.recv(65536)
    assert KEY.encode() not in said.lower()


def test_a_file_that_was_read_can_be_put_again_and_the_job_keeps_its_key(live: Server) -> None:
    assert live.ask("PUT", "/v1/jobs/other", NEW)[0] == 200
    text = live.ask("GET", "/v1/jobs/other", token="read")[1]["text"]
    assert job.parse(text, "read").key == b""
    for method, path, body, content_type in (
        ("PUT", "/v1/jobs/other", text, JOB_TYPE),
        ("POST", "/v1/jobs", text, JOB_TYPE),
        ("POST", "/v1/apply", json.dumps({"jobs": [text]}), "application/json"),
    ):
        assert live.ask(method, path, body, Content_Type=content_type)[0] == 200
        assert live.controller.plan.jobs["other"].key.hex() == KEY
        assert KEY in live.controller.stored_jobs["other"].text
    another = NEW.replace(KEY, KEY[::-1])
    assert live.ask("PUT", "/v1/jobs/other", another)[0] == 200
    assert live.controller.plan.jobs["other"].key.hex() == KEY[::-1]
    assert live.ask("DELETE", "/v1/jobs/other")[0] == 200
    assert live.ask("PUT", "/v1/jobs/other", text)[0] == 200
    assert live.controller.plan.jobs["other"].key == b""  # there is no job any more whose key it could have


def test_who_does_not_know_the_latest_version_changes_nothing(live: Server, fake_switch: FakeSwitch) -> None:
    first = live.ask_all("PUT", "/v1/jobs/other", NEW)[2]["etag"]
    second = live.ask_all("PUT", "/v1/jobs/other", CHANGED, If_Match=first)[2]["etag"]
    assert first != second
    held, written = dict(fake_switch.entities), len(fake_switch.log)
    for method, body, headers in (
        ("PUT", NEW, {"If_Match": first}),
        ("PUT", NEW, {"If_Match": f"W/{second}"}),  # a weak one never matches
        ("PUT", NEW, {"If_None_Match": "*"}),
        ("DELETE", None, {"If_Match": first}),
    ):
        status, answer = live.ask(method, "/v1/jobs/other", body, **headers)
        assert status == 412, (method, headers)
        assert "job 'other'" in answer["error"]
    status, answer = live.ask("PUT", "/v1/jobs/third", job_text("third", 3, hosts=(3, 4), base=8192), If_Match="*")
    assert (status, "is not there" in answer["error"]) == (412, True)
    status, answer = live.ask("PUT", "/v1/jobs/third", NEW)
    assert (status, "job.name: is 'other'; it must be 'third'" in answer["error"]) == (400, True), answer
    assert (fake_switch.entities, len(fake_switch.log)) == (held, written)
    assert live.ask("DELETE", "/v1/jobs/other", If_Match=f'"x", {second}') == (200, {"deleted": "other"})


def test_of_two_who_change_the_same_version_one_is_refused(live: Server) -> None:
    tag = live.ask_all("PUT", "/v1/jobs/other", NEW)[2]["etag"]
    texts = [job_text("other", 2, hosts=(3, 4), base=4096, policy=f"yellow = {n}") for n in (2, 3)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda text: live.ask("PUT", "/v1/jobs/other", text, If_Match=tag)[0], texts))
    assert sorted(found) == [200, 412]


def test_a_request_with_a_key_is_done_once_and_answered_as_before(
    live: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = counting(live, monkeypatch)
    first = live.ask_all("POST", "/v1/jobs", NEW, Idempotency_Key="k")
    again = live.ask_all("POST", "/v1/jobs", NEW, Idempotency_Key="k")
    assert first[:2] == again[:2] == (200, {"job": "other", "id": 2})
    assert "idempotent-replayed" not in first[2]
    assert again[2]["idempotent-replayed"] == "true"
    assert given == [NEW]
    assert live.ask("PUT", "/v1/jobs/other", CHANGED)[0] == 200
    assert live.ask("POST", "/v1/jobs", NEW, Idempotency_Key="k")[0] == 200  # not done again
    assert live.ask("GET", "/v1/jobs/other")[1]["text"] == without_key(CHANGED)

    status, answer = live.ask("POST", "/v1/jobs", CHANGED, Idempotency_Key="k")
    assert (status, answer["error"]) == (
        409,
        "this Idempotency-Key was sent with another body; take another key",
    )
    assert given == [NEW, CHANGED]
    assert live.ask("POST", "/v1/jobs", NEW, token="jobs", Idempotency_Key="k")[0] == 200  # somebody else's key
    assert given == [NEW, CHANGED, NEW]
    assert live.ask("POST", "/v1/jobs", NEW, Idempotency_Key="")[0] == 422
    assert live.ask("POST", "/v1/jobs", NEW, Idempotency_Key="k" * 201)[0] == 422


def test_a_request_that_failed_may_be_sent_again(live: Server) -> None:
    assert live.ask("POST", "/v1/jobs", "x", Idempotency_Key="k")[0] == 400
    assert live.ask("POST", "/v1/jobs", NEW, Idempotency_Key="k")[0] == 200


def test_the_same_key_while_the_first_is_at_work_is_refused(live: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    put: Callable[..., Any] = live.controller.put_job

    async def wait(*arguments: Any) -> Any:
        begun.set()
        await asyncio.to_thread(go_on.wait, PATIENCE)
        return await put(*arguments)

    monkeypatch.setattr(live.controller, "put_job", wait)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(live.ask, "POST", "/v1/jobs", NEW, Idempotency_Key="k")
        assert begun.wait(PATIENCE)
        status, answer = live.ask("POST", "/v1/jobs", NEW, Idempotency_Key="k")
        assert (status, "is at work" in answer["error"]) == (409, True)
        go_on.set()
        assert first.result(PATIENCE)[0] == 200


def test_answers_are_kept_for_a_day_and_not_more_than_so_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.open(f"sqlite:///{tmp_path / 'fabric.db'}")
    begin = datetime.now(timezone.utc)
    monkeypatch.setattr(answers, "MOST", 3)

    def keep(number: int, after: timedelta) -> None:
        store.write(answers.keep, Answer(bytes([number]), b"body", {"n": number}, begin + after))

    def known(after: timedelta) -> list[int]:
        return [n for n in range(9) if store.read(answers.find, bytes([n]), begin + after) is not None]

    keep(0, timedelta(0))
    assert known(timedelta(hours=23, minutes=59)) == [0]
    assert known(timedelta(hours=24)) == []
    for number in range(1, 5):
        keep(number, timedelta(minutes=number))
    assert known(timedelta(hours=1)) == [2, 3, 4]
    keep(5, timedelta(hours=24, minutes=3))
    assert known(timedelta(hours=1)) == [4, 5]
    store.close()
