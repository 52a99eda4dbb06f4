# SPDX-License-Identifier: Apache-2.0
"""What an agent tells a controller: bounded, and of a form that the controller takes."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gradlane.daemon import config
from gradlane.daemon.report import Projection
from gradlane.daemon.reporting import Reporter
from tests.support.agents import Agent, loopback, running, until


def status(jobs: dict[str, Any]) -> Any:
    return {"version": "0.1.0", "addresses": ["10.0.1.2"], "jobs": jobs}


def job(step: int = 0, peers: Any = None, **more: Any) -> Any:
    counts = {"slices_lost": 0, "slices_expected": 0, "budget_total": 0, "slices_repaired": 3} | more.pop("counts", {})
    found = {"id": 1, "rank": 0, "state": "running", "since": 5.0, "step": step, "in_flight": 2, "counts": counts}
    return found | {"peers": peers or {}} | more


def test_step_seconds_and_the_budget_are_of_the_time_since_the_last_report() -> None:
    it = Projection()
    (first,) = it.report("h", status({"j": job(10)}), 100.0)["jobs"]
    assert (first["step"], first["step_seconds"], first["budget"], first["repaired"]) == (10, None, None, 3)
    counts = {"slices_lost": 5, "slices_expected": 100, "budget_total": 10}
    (second,) = it.report("h", status({"j": job(14, counts=counts)}), 102.0)["jobs"]
    assert (second["step_seconds"], second["budget"]) == (0.5, {"used": 0.05, "allowed": 0.1})
    # Nothing has happened: what was known stays. A longer step then counts from when the last one was seen.
    (third,) = it.report("h", status({"j": job(14, counts=counts)}), 103.0)["jobs"]
    assert (third["step_seconds"], third["budget"]) == (second["step_seconds"], second["budget"])
    (fourth,) = it.report("h", status({"j": job(15, counts=counts)}), 104.0)["jobs"]
    assert fourth["step_seconds"] == 2.0
    # A job of the same id that has begun anew has no past.
    (anew,) = it.report("h", status({"j": job(3, since=9.0)}), 105.0)["jobs"]
    assert (anew["step_seconds"], anew["budget"]) == (None, None)


def test_who_waits_for_whom_and_who_is_a_straggler() -> None:
    peers = {"1": {"control": "connected"}, "2": {"control": "silent", "heard_seconds": 4.0}, "3": {"control": "none"}}
    late = {"straggler": True, "steps": 32, "late_steps": 30, "low": 0.01, "median": 0.02, "high": 0.03, "link": None}
    slow = late | {"straggler": False, "link": 5e7}
    quiet = late | {"straggler": False}
    found = [{**it, "rank": rank, "name": f"rank {rank}"} for rank, it in enumerate((late, slow, quiet))]
    waits = {"1": {"seconds": 2.5, "what": "all-reduce of step 7"}}
    (it,) = Projection().report("h", status({"j": job(peers=peers, stragglers=found, waits=waits)}), 1.0)["jobs"]
    assert it["waits"] == [
        {"rank": 2, "seconds": 4.0, "why": "its agent is silent"},
        {"rank": 1, "seconds": 2.5, "why": "all-reduce of step 7"},
    ]
    assert it["stragglers"] == [
        {"rank": 0, "evidence": "late by 20 ms (10 to 30) in 30 of the last 32 steps"},
        {"rank": 1, "evidence": "its link carries 50 Mbit/s"},
    ]
    joining = job(peers=peers, state="joining", since=time.time() - 3)
    (it,) = Projection().report("h", status({"j": joining}), 1.0)["jobs"]
    assert [(row["rank"], row["why"]) for row in it["waits"]] == [
        (2, "its agent is silent"),
        (3, "has not joined the job"),
    ]


def test_whatever_jobs_do_a_report_is_bounded_and_of_the_form_that_the_controller_takes() -> None:
    from gradlane_controller.trainings.reports import Report

    peers = {str(rank): {"control": "silent", "heard_seconds": 1.0} for rank in range(1, 256)}
    sums = {"by_switch": True, "reason": "r" * 9999, "share": 0.5}
    row = {"straggler": True, "steps": 1, "late_steps": 1, "low": 0, "median": 0, "high": 0, "link": 1e6}
    stragglers = [row | {"rank": rank, "name": "x"} for rank in range(256)]
    waits = {str(rank): {"seconds": 1.0, "what": "w" * 9999} for rank in range(256)}
    jobs = {
        f"j{k} ({k})": job(peers=peers, stragglers=stragglers, waits=waits, sums=sums, id=k + 1) for k in range(300)
    }
    found = Projection().report("n" * 999, status(jobs), 1.0)
    taken = Report.model_validate(found)
    assert (len(taken.jobs), len(taken.jobs[0].stragglers), len(taken.jobs[0].waits)) == (256, 16, 16)
    assert taken.jobs[0].name == "j0"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('url = "10.0.0.9"\ntoken_file = "/t"', "controller.url: '10.0.0.9' must be HOST:PORT"),
        ('token_file = "/t"', "controller.url: is missing"),
        ('url = "a:1"\ntoken_file = "t"', "controller.token_file: is 't'; it must be an absolute path"),
        ('url = "https://a:1"\ntoken_file = "/t"\nca = "/none"', "controller.ca: /none can't be used"),
        ('url = "a:1"\ntoken_file = "/t"\nkey = "/k"', "controller.certificate: and key go together"),
        ('url = "a:1"\ntoken_file = "/t"\nhost = "x"', "controller.host: is not known here"),
    ],
)
def test_what_is_wrong_with_the_configuration_is_named(lines: str, words: str) -> None:
    with pytest.raises(config.ConfigError, match="agent") as caught:
        config.parse(f"[controller]\n{lines}\n", "agent.toml")
    assert words in str(caught.value)


@pytest.fixture
def controller() -> Iterator[tuple[str, dict[str, Any]]]:
    """Its address, and what it answers to reports."""
    answer: dict[str, Any] = {"host": "h1", "seconds": 0.05}

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", answer
        server.shutdown()


@pytest.mark.parametrize(
    ("tolerated", "granted"),
    [
        ({"train": 0.5, "other": 0.25}, {"train": 0.5, "other": 0.25}),
        ({"train": 1.5, "a": -0.5, "b": 1e400, "c": float("nan"), "d": 0}, {"d": 0.0}),
        ({}, {}),
        (None, {}),
    ],
)
def test_an_agent_takes_what_the_controller_leaves_of_tolerances_and_never_more(
    controller: tuple[str, dict[str, Any]], tolerated: object, granted: dict[str, float], tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("gradlane_x")
    address, answer = controller
    if tolerated is not None:  # one of before there was that
        answer["tolerated"] = tolerated
    said: list[Any] = []
    reporter = Reporter(lambda: config.Reporting((address,), tmp_path / "token"), lambda: status({}), said.append)

    async def run() -> None:
        task = asyncio.create_task(reporter.run())
        while not said:
            assert not task.done()
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert said[0] == granted


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of what takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    kept.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.timed
def test_a_controller_that_never_answers_holds_up_nothing(silent: str, tmp_path: Path) -> None:
    token, file = tmp_path / "token", tmp_path / "agent.toml"
    token.write_text("gradlane_x")
    file.write_text(f'[controller]\nurl = ["{silent}", "127.0.0.1:1"]\ntoken_file = "{token}"\n')
    with running(Agent(loopback(1, first=121)[0], tmp_path / "a.sock", "--config", file)) as (agent,):
        until(lambda: "timed out" in agent.status()["controller"]["problem"])
        worst = 0.0
        for _ in range(80):  # in which it tries again
            began = time.monotonic()
            agent.status()
            worst = max(worst, time.monotonic() - began)
            time.sleep(0.1)
        assert worst < 2.0  # of the three seconds that a report waits
        agent.wait_for("can't report to the controller")
        began = time.monotonic()
    assert time.monotonic() - began < 2.5  # and its end does not wait for the report either
