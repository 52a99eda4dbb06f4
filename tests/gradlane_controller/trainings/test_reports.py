# SPDX-License-Identifier: Apache-2.0
"""Reports of agents over HTTP: each for its own host, bounded, and of no effect on what is others'."""

import http.client
import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import pytest

from gradlane import job
from gradlane_controller.api.tokens import Scope
from gradlane_controller.trainings.reports import Report, Reports
from tests.gradlane_controller.api.server import PATIENCE, Server
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.agents import NETWORK

JOB_TIME = datetime(2026, 1, 1, tzinfo=timezone.utc)
JOB = job.parse(job_text("train", 7), "train")  # rank 0 on h1, rank 1 on h2
AT = f"{NETWORK}.131"  # an address of h3 in the fabric of the tests


def of_job(**changes: Any) -> dict[str, Any]:
    found = {"name": "train", "id": 7, "rank": 0, "state": "running", "step": 12, "step_seconds": 0.5, "in_flight": 1}
    found |= {"budget": {"used": 0.01, "allowed": 0.03}, "repaired": 5, "lost": 2, "stragglers": [], "waits": []}
    return found | {"sums": None} | changes


def report(*jobs: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"name": "node1", "version": "0.1.0", "addresses": ["10.0.1.2"], "jobs": list(jobs)} | changes


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    switch = FakeSwitch()
    switch.start()
    fabric = fabric_text(switch.address).replace('address = "10.0.3.2"', f'address = "10.0.3.2"\nalso = ["{AT}"]')
    it = Server(tmp_path_factory.mktemp("server"), fabric=fabric, jobs=(job_text("train", 7),))
    yield it
    it.close()
    switch.stop()


def put(
    server: Server, host: str, content: Any, token: str = "admin", source: str = "127.0.0.1"
) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE, source_address=(source, 0))
    body = content if isinstance(content, str) else json.dumps(content)
    headers = {"Authorization": f"Bearer {server.tokens.get(token, token)}", "Content-Type": "application/json"}
    connection.request("PUT", f"/v1/agents/{host}", body, headers)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


def test_an_agent_reports_for_its_own_host_alone(server: Server) -> None:
    _, bound = server.make_token(Scope.AGENTS, host="h1")
    _, free = server.make_token(Scope.AGENTS)
    good = {"host": "h1", "seconds": 1.0, "tolerated": {}}
    assert put(server, "h1", report(), bound) == (200, good)
    assert put(server, "10.0.1.2", report(), bound) == (200, good)
    assert put(server, "h1", report(), "admin") == (200, good)
    status, answer = put(server, "h2", report(), bound)
    assert (status, "is for the agent of 'h1', not for that of 'h2'" in answer["error"]) == (403, True)
    # Without a host it is the address that says whose agent it is: any that the fabric file has of the host.
    assert put(server, "h3", report(), free, AT)[0] == 200
    for host, source in (("h2", AT), ("h3", "127.0.0.1")):
        status, answer = put(server, host, report(), free, source)
        assert (status, f"comes from {source}" in answer["error"]) == (403, True)
    for scope in ("read", "jobs"):
        status, answer = put(server, "h3", report(), scope, AT)
        assert (status, "needs a token of scope agents" in answer["error"]) == (403, True)
    status, answer = put(server, "h1", report(), "gradlane_x")
    assert (status, "this is no token" in answer["error"]) == (401, True)
    status, answer = put(server, "h9", report())
    assert (status, "its hosts are h1 (10.0.1.2)" in answer["error"]) == (404, True)
    for path in ("/v1/status", "/v1/jobs", "/v1/agents", "/v1/state"):
        assert server.ask("GET", path, token=free)[0] == 403
    rows = server.ask("GET", "/v1/agents", token="read")[1]["items"]
    assert [it["host"] for it in rows] == ["h1", "h3"]
    assert rows[0] | {"at": ""} == {
        "host": "h1", "name": "node1", "version": "0.1.0", "addresses": ["10.0.1.2"], "jobs": [], "at": ""
    }  # fmt: skip
    assert server.ask("POST", "/v1/tokens", json.dumps({"name": "x", "scope": "jobs", "host": "h1"}), "admin",
                      Content_Type="application/json")[0] == 409  # fmt: skip


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{}",
        "{",
        "NaN",
        report(name="n" * 300),
        report(addresses=["1" * 50]),
        report(addresses=["10.0.1.2"] * 65),
        report(more=1),
        report(*[of_job()] * 257),
        report(of_job(step=-1)),
        report(of_job(step=1 << 63)),
        report(of_job(step_seconds=-1.0)),
        '{"name":"n","version":"1","addresses":[],"jobs":[' + json.dumps(of_job(step_seconds=float("inf"))) + "]}",
        report(of_job(rank=1024)),
        report(of_job(state="dancing")),
        report(of_job(budget={"used": 2.0, "allowed": 0.1})),
        report(of_job(stragglers=[{"rank": 0, "evidence": "x" * 301}])),
        report(of_job(waits=[{"rank": 1, "seconds": 1.0, "why": "w"}] * 17)),
        report(of_job(extra=1)),
        "[" * 5000,
    ],
)
def test_nonsense_is_refused_and_changes_nothing(server: Server, content: Any) -> None:
    before = server.ask("GET", "/v1/agents")[1]
    status, answer = put(server, "h2", content)
    assert status in (400, 422), answer
    assert answer["error"]
    assert server.ask("GET", "/v1/agents")[1] == before


def test_servers_begin_no_step_so_the_step_is_that_of_the_workers() -> None:
    it = Reports(lambda: 0.0)
    of_servers = job.parse(job_text("train", 7, servers=(3,)), "train")
    for host, rank, step in (("h1", 0, 12), ("h2", 1, 11), ("h3", 2, 0)):
        said = Report.model_validate(report(of_job(rank=rank, step=step)))
        it.put(host, said, JOB_TIME, {"train": of_servers})
    assert it.of_jobs({"train": of_servers})["train"]["step"]["number"] == 11


def test_what_counts_of_a_report_is_of_jobs_that_are_at_the_host() -> None:
    it = Reports(lambda: 0.0)
    content = [
        of_job(),
        of_job(id=8),  # another job of the name
        of_job(rank=1),  # that is on h2
        of_job(rank=9),
        of_job(name="other"),
    ]
    for host, counts in (("h1", [0]), ("h2", [1]), ("h3", [])):
        own = it.put(host, Report.model_validate(report(*content)), JOB_TIME, {"train": JOB})
        assert [each.rank for each in own] == counts


def test_a_job_is_told_by_all_its_hosts_together() -> None:
    now = [0.0]
    it = Reports(lambda: now[0])
    first = of_job(
        step=12,
        step_seconds=0.5,
        stragglers=[{"rank": 1, "evidence": "late"}, {"rank": 200, "evidence": "nobody"}],
        waits=[{"rank": 1, "seconds": 2.0, "why": "x"}],
    )
    second = of_job(
        rank=1,
        step=11,
        step_seconds=0.7,
        budget={"used": 0.02, "allowed": 0.03},
        stragglers=[{"rank": 1, "evidence": "later"}],
        waits=[{"rank": 0, "seconds": 3.0, "why": "y"}],
    )
    it.put("h1", Report.model_validate(report(first)), JOB_TIME, {"train": JOB})
    now[0] = 5.0
    it.put("h2", Report.model_validate(report(second)), JOB_TIME, {"train": JOB})
    assert it.of_jobs({"train": JOB}) == {
        "train": {
            "step": {"number": 11, "seconds": 0.6},
            "budget": {"used": 0.02, "allowed": 0.03},
            "in_flight": 2,
            "repaired": 10,
            "lost": 4,
            "stragglers": [{"host": "h2", "evidence": "late", "by": ["h1", "h2"]}],
            "waits": [
                {"who": "h2", "for": "h1", "seconds": 3.0, "why": "y"},
                {"who": "h1", "for": "h2", "seconds": 2.0, "why": "x"},
            ],
            "agents": 2,
        }
    }
    now[0] = 12.0  # the first one is old
    assert it.of_jobs({"train": JOB})["train"]["agents"] == 1
    now[0] = 16.0
    assert it.of_jobs({"train": JOB}) == {}
    assert it.of_jobs({}) == {}


def test_the_live_state_has_what_agents_say_and_nothing_without_them(server: Server) -> None:
    put(server, "h1", report())
    (shown,) = server.ask("GET", "/v1/state")[1]["jobs"]
    assert not {"step", "budget", "waits"} & set(shown)
    put(server, "h1", report(of_job()))

    def look() -> Any:
        return server.ask("GET", "/v1/state")[1]["jobs"][0].get("step")

    from tests.support.agents import until

    until(look)
    assert look() == {"number": 12, "seconds": 0.5}
