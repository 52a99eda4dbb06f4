# SPDX-License-Identifier: Apache-2.0
"""Jobs without a job file on their hosts: ranks ask the controller over HTTP, and it makes the job."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gradlane import job
from gradlane_controller.api.tokens import Scope
from gradlane_controller.desired.keys import without_key
from gradlane_controller.errors import BusyError
from gradlane_controller.trainings import gathering, trainings
from tests.gradlane_controller.api.server import PATIENCE, Server
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text

TEMPLATE = """
[job]
patience = 77
[transport]
rate = "50mbit"
multicast = "239.1.0.1"
[loss]
push = 0.03
"""


@pytest.fixture
def live(fake_switch: FakeSwitch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Of a controller that has converged its switch."""
    monkeypatch.setattr(trainings, "HOLD_SECONDS", 0.5)
    it = Server(tmp_path, fabric=fabric_text(fake_switch.address), jobs=(job_text(),))
    yield it
    it.close()


def ask(live: Server, name: str, rank: int, workers: int = 2, token: str = "jobs", **more: Any) -> tuple[int, Any]:
    """Asks once. The ranks are on h1, h2, ..., unless `host` says another."""
    host = more.pop("host", rank + 1)
    wanted = {"name": name, "rank": rank, "workers": workers, "address": f"10.0.{host}.2", **more}
    return live.ask("POST", "/v1/trainings", json.dumps(wanted), token, Content_Type="application/json")


def until_made(live: Server, *args: Any, **more: Any) -> tuple[int, Any]:
    """Asks until it need not wait any more; again, as a client does, where the controller is too busy to answer."""
    deadline = time.monotonic() + PATIENCE
    while (found := ask(live, *args, **more))[0] in (202, 503):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
    return found


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(64) as it:
        yield it


def together(pool: ThreadPoolExecutor, live: Server, name: str, workers: int = 2, **more: Any) -> list[tuple[int, Any]]:
    asked: list[Future[tuple[int, Any]]] = [
        pool.submit(until_made, live, name, rank, workers, **more) for rank in range(workers)
    ]
    return [it.result(PATIENCE) for it in asked]


def test_all_ranks_get_the_same_file_once_all_are_there(live: Server, fake_switch, pool) -> None:
    first = pool.submit(until_made, live, "resnet", 0, template=TEMPLATE, processes=3)
    status, waits = ask(live, "other", 0)  # nobody else comes
    assert (status, waits["missing"], waits["patience"]) == (202, "rank 1", 60)
    assert not first.done()
    assert "resnet" not in {it["name"] for it in live.ask("GET", "/v1/jobs")[1]["items"]}
    written = len(fake_switch.entities)
    second = until_made(live, "resnet", 1, template=TEMPLATE, processes=3)
    assert second[0] == 200, second
    assert first.result(PATIENCE) == second
    assert len(fake_switch.entities) > written

    made = job.parse(second[1]["text"], "made")
    demo = job.parse(job_text(), "demo")
    assert (made.name, made.id, made.patience, made.processes) == ("resnet", second[1]["id"], 77, 3)
    assert [(it.rank, it.host, str(it.address)) for it in made.workers] == [
        (0, "h1", "10.0.1.2"),
        (1, "h2", "10.0.2.2"),
    ]
    assert (made.transport.rate, str(made.transport.multicast), made.loss.push) == (50_000_000, "239.1.0.1", 0.03)
    assert made.racks is None, "both are at one switch"
    assert made.id != demo.id
    assert made.slots.base > demo.slots.last
    assert len(made.key) == 16
    assert live.ask("GET", "/v1/jobs/resnet")[1]["text"] == without_key(second[1]["text"])

    # A rank that is restarted gets the same file; so does one whose answer was lost.
    assert ask(live, "resnet", 1, template=TEMPLATE, processes=3) == second


def test_without_a_template_a_job_is_exact_and_as_fast_as_its_hosts_ports(live: Server, pool) -> None:
    (status, found), _ = together(pool, live, "plain")
    made = job.parse(found["text"], "made")
    assert status == 200
    assert (made.transport.rate, made.transport.buffer, made.loss.push, made.processes) == (100_000_000, 64_000, 0.0, 1)


@pytest.mark.parametrize(
    ("status", "words", "wanted"),
    [
        (409, "workers is 3", {"workers": 3, "host": 3, "rank": 1}),
        (409, "processes is 2", {"processes": 2}),
        (409, "another template", {"template": "[loss]\npush = 0.1\n"}),
        (409, "rank 0 waits at 10.0.1.2", {"rank": 0, "host": 2}),
        (409, "rank 0 waits at 10.0.1.2", {"rank": 1, "host": 1}),
        (404, "10.0.9.2, which no host has", {"host": 9}),
        (400, "controller's own are: none", {"template": "unknown"}),
        (422, "rank is 2, but 2 workers", {"rank": 2, "host": 2}),
        (422, "address", {"address": "10.0.1"}),
        (422, "name", {"name": "../x"}),
        (422, "workers", {"workers": 1025}),
        (422, "extra", {"extra": 1}),
    ],
)
def test_who_is_wrong_is_told_so_and_the_others_go_on(live: Server, pool, status: int, words: str, wanted: Any) -> None:
    first = pool.submit(until_made, live, "resnet", 0)
    while live.context.trainings._gatherings.find("resnet") is None:
        time.sleep(0.01)
    given = {"name": "resnet", "rank": 1, "workers": 2} | wanted
    found = ask(live, given.pop("name"), given.pop("rank"), given.pop("workers"), **given)
    assert (found[0], words in found[1]["error"]) == (status, True), found
    assert until_made(live, "resnet", 1)[0] == 200
    assert first.result(PATIENCE)[0] == 200


def test_a_template_that_makes_no_job_is_refused_at_once(live: Server) -> None:
    for template, words in (
        ("[transport]\nrate = 'fast'\n", "transport.rate"),
        ("[transport]\nspeed = 1\n", "transport.speed"),
        ("[loss\n", "not valid TOML"),
        ("[job]\nid = 3\n", "job.id: can't be in a template"),
        ("[job]\nkey = '00112233445566ff00112233445566ff'\n", "job.key: can't be in a template"),
        ("[slots]\nbase = 3\n", "slots: can't be in a template"),
        ("[[worker]]\nrank = 0\n", "worker: can't be in a template"),
        ("[[server]]\nrank = 0\n", "server: can't be in a template"),
        ("transport = 3\n", "transport"),
        ("[x]\ny = " + "[" * 3000 + "]" * 3000 + "\n", "nested too deeply"),
        ("[transport]\nwire = 'int16'\n", "multicast"),
    ):
        status, answer = ask(live, "resnet", 0, template=template)
        assert (status, words in answer["error"]) == (400, True), answer
    assert ask(live, "resnet", 0, workers=5)[0] == 404  # of four hosts
    assert live.context.trainings._gatherings.find("resnet") is None


def test_ranks_wait_while_another_change_waits_for_a_switch(
    live: Server, pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, busy = live.controller.put_job, 3

    async def put_job(*arguments: Any) -> job.Job:
        nonlocal busy
        if busy:
            busy -= 1
            raise BusyError("another change waits for switch 's1'; try again")
        return await put(*arguments)

    monkeypatch.setattr(live.controller, "put_job", put_job)
    assert [status for status, _ in together(pool, live, "resnet")] == [200, 200]
    assert busy == 0


def test_nobody_takes_the_name_of_anothers_job(live: Server, pool) -> None:
    together(pool, live, "resnet")
    _, other = live.make_token(Scope.JOBS)
    text = live.ask("GET", "/v1/jobs/resnet")[1]["text"]
    for found in (
        ask(live, "resnet", 0, token=other),
        live.ask("PUT", "/v1/jobs/resnet", text, other),
        live.ask("POST", "/v1/jobs", text, other),
        live.ask("DELETE", "/v1/jobs/resnet", None, other),
    ):
        assert (found[0], "belongs to another token" in found[1]["error"]) == (403, True), found
    assert ask(live, "resnet", 0)[0] == 200
    assert ask(live, "resnet", 0, token="admin")[0] == 200
    assert live.ask("PUT", "/v1/jobs/resnet", text, "jobs")[0] == 200
    status, answer = ask(live, "demo", 0)
    assert (status, "put as a job file" in answer["error"]) == (409, True)
    # While its ranks gather a name is taken, too.
    assert ask(live, "other", 0)[0] == 202
    status, answer = ask(live, "other", 1, token=other)
    assert (status, "wait with another token" in answer["error"]) == (403, True)


def test_a_scope_below_jobs_starts_nothing(live: Server) -> None:
    for token in ("agents", "read"):
        assert ask(live, "resnet", 0, token=token)[0] == 403
    assert live.context.trainings._gatherings.find("resnet") is None


def test_a_job_that_a_switch_refuses_is_no_half_made_one(live: Server, fake_switch, pool, monkeypatch) -> None:
    put = live.controller.put_job

    async def refuse(*args: Any) -> Any:
        raise trainings.JobError("x", "y", "is refused")

    monkeypatch.setattr(live.controller, "put_job", refuse)
    held = dict(fake_switch.entities)
    for status, answer in together(pool, live, "resnet"):
        assert (status, "is refused" in answer["error"]) == (400, True)
    assert fake_switch.entities == held
    monkeypatch.setattr(live.controller, "put_job", put)
    monkeypatch.setattr(gathering, "FAILED_SECONDS", 0.0)
    assert [it[0] for it in together(pool, live, "resnet")] == [200, 200]


def test_many_jobs_begin_at_once_and_share_nothing(live: Server, pool) -> None:
    names = [f"job{number}" for number in range(12)]
    begun = [pool.submit(until_made, live, name, rank, template=TEMPLATE) for name in names for rank in (0, 1)]
    texts = {it.result(PATIENCE)[1]["text"] for it in begun}
    jobs = [job.parse(text, "made") for text in texts] + [job.parse(job_text(), "demo")]
    assert len(jobs) == 13
    assert len({it.id for it in jobs}) == 13
    assert len({it.key for it in jobs}) == 13
    slots = [number for it in jobs for number in range(it.slots.base, it.slots.last + 1)]
    assert len(slots) == len(set(slots))
    addresses = [it.multicast_address(index) for it in jobs[:-1] for index in range(2)]
    assert len(addresses) == len(set(addresses))


def test_more_ranks_than_there_are_held_answers_are_told_to_ask_again(live: Server, pool, monkeypatch) -> None:
    monkeypatch.setattr(trainings, "MAX_HELD", 0)
    began = time.monotonic()
    status, answer = ask(live, "resnet", 0)
    assert (status, answer["seconds"]) == (202, 1.0)
    assert time.monotonic() < began + trainings.HOLD_SECONDS
    assert ask(live, "resnet", 1)[0] == 202
    assert until_made(live, "resnet", 0)[0] == 200
    assert threading.active_count() < 100
