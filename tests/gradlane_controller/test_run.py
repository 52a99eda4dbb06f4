# SPDX-License-Identifier: Apache-2.0
"""The controller as a process, against a P4Runtime server that records what is written to it."""

import json
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support import zygote

CLI = [sys.executable, "-m", "gradlane_controller.cli"]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return zygote.run([*CLI, *arguments], 60)


def test_it_converges_once_and_a_second_run_writes_nothing(fake_switch, run_controller) -> None:
    first = run_controller(fabric_text(fake_switch.address), job_text())
    line = first.wait_for("ready:")
    assert f"switch s1 at {fake_switch.address}, jobs: 1" in line
    assert fake_switch.log[0] == "VERIFY_AND_COMMIT"
    status, answer = first.ask("GET", "/status")
    assert status == 200
    assert answer["ready"]
    (switch,) = answer["switches"]
    assert switch["connected"]
    assert switch["primary"]
    assert answer["jobs"][0]["name"] == "demo"
    assert sum(switch["entries"].values()) == len(fake_switch.entities) > 10
    assert first.end() == 0

    written = list(fake_switch.log)
    second = run_controller(fabric_text(fake_switch.address), job_text())
    second.wait_for("ready:")
    assert second.end(signal.SIGINT) == 0
    assert fake_switch.log == written


def test_what_others_left_is_put_right_without_a_new_pipeline(
    fake_switch,
    run_controller,
) -> None:
    first = run_controller(fabric_text(fake_switch.address), job_text())
    first.wait_for("ready:")
    assert first.end() == 0
    held = dict(fake_switch.entities)
    gone, *_ = [key for key, entity in held.items() if entity.HasField("table_entry")]
    del fake_switch.entities[gone]
    fake_switch.log.clear()
    second = run_controller(fabric_text(fake_switch.address), job_text())
    second.wait_for("ready:")
    assert fake_switch.log == ["INSERT table_entry"]
    assert fake_switch.entities == held


def test_a_lost_switch_is_converged_again_when_it_is_back(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    held = dict(fake_switch.entities)
    fake_switch.stop()
    assert fake_switch.address in it.wait_for("trying again")
    it.wait_for("can't be reached")
    status, answer = it.ask("GET", "/status")
    assert status == 200
    assert not answer["ready"]
    assert fake_switch.address in answer["switches"][0]["problem"]
    status, answer = it.ask("POST", "/jobs", job_text("other", 2, base=4096))
    assert status == 503
    assert f"{fake_switch.address} is not connected" in answer["error"]
    fake_switch.forget()
    fake_switch.start()
    it.wait_for("converged")
    assert fake_switch.entities == held
    assert it.ask("GET", "/status")[1]["ready"]
    assert it.process.poll() is None


@pytest.mark.timed
def test_an_unreachable_switch_is_named_in_time(run_controller) -> None:
    assert command("--version").returncode == 0  # what forks it has imported it
    begin = time.monotonic()
    it = run_controller(fabric_text("127.0.0.1:9"), job_text())
    line = it.wait_for("waiting for")
    assert line.endswith("waiting for a switch that can be used: switch 's1' at 127.0.0.1:9: can't be reached")
    assert time.monotonic() - begin < 8
    status, answer = it.ask("GET", "/status")
    assert (status, answer["ready"]) == (200, False)
    assert it.process.poll() is None


def test_a_switch_that_comes_late_is_waited_for(fake_switch, run_controller) -> None:
    fake_switch.stop()
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("waiting for a switch")
    assert not any("ready:" in line for line in it.said)
    fake_switch.start()
    it.wait_for("ready:")
    assert it.ask("GET", "/status")[1]["ready"]
    assert len(fake_switch.entities) > 10
    assert it.end() == 0


def test_a_switch_that_refuses_the_program_is_named_with_its_reason(fake_switch, run_controller) -> None:
    fake_switch.refuse_pipeline = True
    it = run_controller(fabric_text(fake_switch.address))
    line = it.wait_for("waiting for")
    assert line.endswith(f"switch 's1' at {fake_switch.address}: refused: INVALID_ARGUMENT: no such extern")
    fake_switch.refuse_pipeline = False  # another version of it takes the program
    it.wait_for("ready:")
    assert it.process.poll() is None


def test_a_switch_with_another_program_gets_this_one(fake_switch, run_controller) -> None:
    first = run_controller(fabric_text(fake_switch.address), job_text())
    first.wait_for("ready:")
    held = dict(fake_switch.entities)
    assert first.end() == 0
    fake_switch.config.cookie.cookie += 1
    fake_switch.log.clear()
    run_controller(fabric_text(fake_switch.address), job_text()).wait_for("ready:")
    assert fake_switch.log[0] == "VERIFY_AND_COMMIT"
    assert fake_switch.entities == held


def test_a_busy_http_port_is_named(fake_switch, run_controller) -> None:
    first = run_controller(fabric_text(fake_switch.address))
    first.wait_for("ready:")
    second = run_controller(fabric_text(fake_switch.address), http_port=int(first.http.split(":")[1]))
    line = second.wait_for("error:")
    assert f"--http: can't listen at {first.http}" in line
    assert "in use" in line
    assert second.process.wait(timeout=60) == 2


def test_jobs_come_and_go_over_http(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    before = dict(fake_switch.entities)
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096)) == (200, {"job": "other", "id": 2})
    assert len(fake_switch.entities) > len(before)
    assert [job["name"] for job in it.ask("GET", "/status")[1]["jobs"]] == ["demo", "other"]
    # The same again changes nothing; another policy under the same name replaces it.
    fake_switch.log.clear()
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096))[0] == 200
    assert fake_switch.log == []
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096, policy="yellow = 3"))[0] == 200
    assert fake_switch.log == ["MODIFY table_entry"] * 2  # the policies of two ports
    assert it.ask("DELETE", "/jobs/other") == (200, {"deleted": "other"})
    assert fake_switch.entities == before
    status, answer = it.ask("DELETE", "/jobs/other")
    assert (status, answer["error"]) == (404, "there is no job 'other'; there are: demo")
    status, answer = it.ask("GET", "/nothing")
    assert status == 404
    assert "/status" in answer["error"]


def test_a_bad_job_changes_nothing(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    written = list(fake_switch.log)
    for body, reason in (
        ("what", "not valid TOML"),
        (job_text("other", 2), "jobs 'demo'"),
        (job_text("other", 2, hosts=(1, 9), base=4096), "host 'h9' is at no port"),
    ):
        status, answer = it.ask("POST", "/jobs", body)
        assert status == 400
        assert reason in answer["error"]
    assert fake_switch.log == written
    assert [job["name"] for job in it.ask("GET", "/status")[1]["jobs"]] == ["demo"]


def test_a_job_that_the_switch_refuses_is_taken_back(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    held = dict(fake_switch.entities)
    fake_switch.refuse = lambda entity: entity.table_entry.priority > 0
    status, answer = it.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096))
    assert status == 503
    assert fake_switch.address in answer["error"]
    assert "RESOURCE_EXHAUSTED: no room" in answer["error"]
    assert fake_switch.entities == held
    assert [job["name"] for job in it.ask("GET", "/status")[1]["jobs"]] == ["demo"]
    fake_switch.refuse = lambda _entity: False
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096))[0] == 200


def test_posted_jobs_survive_a_restart(fake_switch, run_controller, tmp_path: Path) -> None:
    more = ("--store", f"sqlite:///{tmp_path}/none/jobs.db")
    refused = run_controller(fabric_text(fake_switch.address), job_text(), more=more)
    assert f"store sqlite:///{tmp_path}/none/jobs.db: can't be written: No such file" in refused.wait_for("error:")
    first = run_controller(fabric_text(fake_switch.address), job_text())
    first.wait_for("ready:")
    assert first.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096))[0] == 200
    assert first.ask("POST", "/jobs", job_text("bad", 2, base=4096))[0] == 400
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    assert stored(tmp_path) == ["other"]
    written = list(fake_switch.log)
    second = run_controller(fabric_text(fake_switch.address), job_text())
    assert "jobs: 2" in second.wait_for("ready:")
    assert fake_switch.log == written
    assert second.ask("DELETE", "/jobs/other")[0] == 200
    assert stored(tmp_path) == []


def stored(folder: Path) -> list[str]:
    """The names of the jobs that the store beside the fabric file has."""
    with closing(sqlite3.connect(folder / "fabric.db")) as store:
        return [name for (name,) in store.execute("SELECT name FROM jobs ORDER BY name")]


def test_a_job_that_can_not_be_kept_or_forgotten_changes_nothing(fake_switch, run_controller, tmp_path: Path) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    held, written = dict(fake_switch.entities), list(fake_switch.log)
    with closing(sqlite3.connect(tmp_path / "fabric.db", isolation_level=None)) as store:
        store.execute("CREATE TRIGGER refuse BEFORE INSERT ON jobs BEGIN SELECT RAISE(ABORT, 'no room'); END")
        status, answer = it.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096))
        assert (status, fake_switch.entities, fake_switch.log) == (503, held, written)
        assert f"store sqlite:///{tmp_path}/fabric.db: no room" in answer["error"]
        store.execute("DROP TRIGGER refuse")
        assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096))[0] == 200
        held, written = dict(fake_switch.entities), list(fake_switch.log)
        store.execute("CREATE TRIGGER refuse BEFORE DELETE ON jobs BEGIN SELECT RAISE(ABORT, 'no way'); END")
        assert it.ask("DELETE", "/jobs/other")[0] == 503
        assert (fake_switch.entities, fake_switch.log) == (held, written)
        store.execute("DROP TRIGGER refuse")
    # What a switch refuses leaves the store as it was.
    fake_switch.stop()
    it.wait_for("trying again")
    assert it.ask("DELETE", "/jobs/other")[0] == 503
    assert stored(tmp_path) == ["other"]


def test_sighup_reads_the_files_again_and_keeps_the_old_state_if_they_are_bad(
    fake_switch, run_controller, tmp_path: Path
) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    held = dict(fake_switch.entities)
    path = tmp_path / "job0.toml"
    path.write_text(job_text(number=0))
    it.process.send_signal(signal.SIGHUP)
    assert "job.id: is 0" in it.wait_for("reload failed")
    assert fake_switch.entities == held
    path.write_text(job_text(hosts=(1, 2, 3)))
    it.reload()
    assert it.ask("GET", "/status")[1]["jobs"][0]["workers"] == ["h1", "h2", "h3"]
    assert len(fake_switch.entities) == len(held) + 2  # a sender and a port's policy


def test_a_second_controller_stands_by_and_takes_over(fake_switch, run_controller) -> None:
    first = run_controller(fabric_text(fake_switch.address), job_text())
    first.wait_for("ready:")
    written = list(fake_switch.log)
    second = run_controller(fabric_text(fake_switch.address), job_text())
    second.wait_for("stands by: ")
    status, answer = second.ask("POST", "/jobs", job_text("other", 2, base=4096))
    assert status == 503
    assert f"stands by: {name_of(first)} leads" in answer["error"]
    assert fake_switch.log == written
    first.end(signal.SIGKILL)
    second.wait_for("ready:")
    assert fake_switch.log == written
    assert second.ask("GET", "/status")[1]["ready"]


def name_of(controller) -> str:
    """What it is called, if nobody says so."""
    return f"{socket.gethostname()}:{controller.http.rpartition(':')[2]}"


def test_jobs_that_came_over_http_outlive_a_take_over(fake_switch, run_controller) -> None:
    first = run_controller(fabric_text(fake_switch.address), job_text())
    first.wait_for("ready:")
    second = run_controller(fabric_text(fake_switch.address), job_text())
    second.wait_for("stands by: ")
    assert first.ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096))[0] == 200
    held = dict(fake_switch.entities)
    first.end(signal.SIGKILL)
    second.wait_for("converged")
    assert fake_switch.entities == held
    assert [job["name"] for job in second.ask("GET", "/status")[1]["jobs"]] == ["demo", "other"]


def test_counters_have_names(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    fake_switch.counters = {
        (0x12000001, (1 << 11) | (13 << 6) | (5 << 3) | 3): (7, 9000),
        (0x12000001, 0): (1, 60),
        (0x12000001, (9 << 11) | (13 << 6)): (5, 500),  # no job of this controller
        (0x12000002, (63 << 4) | 2): (7, 9000),
        (0x12000002, 5): (0, 0),
    }
    answer = json.loads(command("counters", *it.access, "--json").stdout)
    assert answer["reasons"]["dropped_red"] == {"packets": 7, "bytes": 9000}
    assert answer["reasons"]["dropped_guard"] == {"packets": 0, "bytes": 0}
    assert answer["away"] == []
    common = {"switch": "s1", "drop_precedence": 3, "packets": 7, "bytes": 9000}
    assert {**common, "job": "demo", "reason": "dropped_red", "queue_class": 5} in answer["decisions"]
    assert [row["job"] for row in answer["decisions"]] == [None, "demo"]
    assert answer["drop_map"] == [{"switch": "s1", "layer": 63, "magnitude": 32, "packets": 7, "bytes": 9000}]
    assert answer["senders"][0] == {
        "switch": "s1", "host": "h1", "job": "demo", "job_id": 1, "port": 1, "source": "10.0.1.2", "packets": 3,
        "bytes": 4500,
    }  # fmt: skip
    table = command("counters", *it.access)
    assert table.returncode == 0
    assert "dropped_red" in table.stdout
    assert "32-47" in table.stdout
    assert "jobs:" in command("status", *it.access).stdout


def test_a_folder_without_the_programs_is_named(tmp_path: Path) -> None:
    for aggregation, name in ((False, "gradlane"), (True, "gradlane-aggregation")):
        (tmp_path / "f.toml").write_text(fabric_text(aggregation=aggregation))
        ended = command("check", "--fabric", str(tmp_path / "f.toml"), "--p4-dir", "/none")
        assert ended.returncode == 2
        assert f"/none: no {name}.p4info.txtpb there" in ended.stderr


def test_check_shows_what_would_be_installed(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(fabric_text())
    (tmp_path / "j.toml").write_text(job_text())
    files = ("--fabric", str(tmp_path / "f.toml"), "--job", str(tmp_path / "j.toml"))
    shown = command("check", *files)
    assert shown.returncode == 0
    assert "destination=10.0.1.0/24" in shown.stdout
    assert "source=::ffff:10.0.1.2 job=1" in shown.stdout
    assert "set_job(job_index=1, slot_base=0, slot_mask=4095, max_share=65535, trim=0, spray=1)" in shown.stdout
    assert "1 x forward(port=1, next_hop=02:00:00:00:01:02, own=02:00:00:00:01:01)" in shown.stdout
    rows = json.loads(command("check", *files, "--json").stdout)
    assert {
        "switch": "s1",
        "table": "dscp_classes",
        "key": "dscp=56",
        "action": "set_queue_class(queue_class=7)",
    } in rows
    (tmp_path / "j.toml").write_text(job_text(hosts=(1, 7)))
    refused = command("check", *files)
    assert refused.returncode == 2
    line = job_text(hosts=(1, 7)).splitlines().index("rank = 1")  # the [[worker]] before it
    where = f"{tmp_path}/j.toml:{line}: rank 1"
    assert refused.stderr.startswith(f"gradlane-controller: error: {where}: host 'h7' is at no port")


def test_something_else_at_the_address_is_told_apart(fake_http_server: str) -> None:
    ended = command("counters", "--http", fake_http_server)
    assert ended.returncode == 1
    assert f"http://{fake_http_server}: something else answers there" in ended.stderr


@pytest.fixture
def fake_http_server() -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"hello": 1}')

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("run", "--fabric", "none.toml"), 2, "none.toml: can't be read: No such file or directory"),
        (("run", "--fabric", "none.toml", "--http", "9560"), 2, "--http: '9560' must be HOST:PORT"),
        (("counters", "--http", "127.0.0.1:9"), 1, "controller at http://127.0.0.1:9: "),
    ],
)
def test_errors_are_one_line_and_have_an_exit_code(arguments: tuple[str, ...], code: int, reason: str) -> None:
    ended = command(*arguments)
    assert ended.returncode == code
    assert ended.stderr.startswith("gradlane-controller: error: ")
    assert reason in ended.stderr
    assert ended.stderr.count("\n") == 1
