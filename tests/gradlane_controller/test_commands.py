# SPDX-License-Identifier: Apache-2.0
"""The commands as an operator uses them, against a running controller with switches that record what they get."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema_rs
import pytest

from tests.gradlane_controller.conftest import write
from tests.gradlane_controller.controller_process import PATIENCE, Running
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text
from tests.support import zygote

CLI = [sys.executable, "-m", "gradlane_controller.cli"]
OTHER = job_text("other", 2, hosts=(3, 4), base=4096)
THIRD = job_text("third", 3, hosts=(1, 4), base=8192)


def command(*arguments: object) -> "subprocess.CompletedProcess[str]":
    return zygote.run([*CLI, *map(str, arguments)], 60)


def names(it: Running) -> list[str]:
    return [each["name"] for each in it.ask("GET", "/status")[1]["jobs"]]


def test_validate_tells_every_mistake_with_its_line(tmp_path: Path) -> None:
    fabric = fabric_text().replace('host = "h2"', 'hots = "h2"').replace('"10.0.4.2"', '"10.0.4"')
    files = [write(tmp_path / "f.toml", fabric), write(tmp_path / "j.toml", job_text(policy="yelow = 1"))]
    done = command("validate", *files, tmp_path / "none.toml")
    assert done.returncode == 2
    lines = fabric.splitlines()
    second, fourth = lines.index('hots = "h2"'), lines.index('address = "10.0.4"') + 1
    header = max(n for n, line in enumerate(lines[:second], 1) if line == "[[port]]")
    policy = job_text(policy="yelow = 1").splitlines().index("yelow = 1") + 1
    assert [line.removeprefix("gradlane-controller: error: ") for line in done.stderr.splitlines()] == [
        f"{files[0]}:{header}: port[1].host: is missing; is 'hots' meant to be it?",
        f"{files[0]}:{fourth}: port[3].address: is '10.0.4'; it must be an IPv4 address in dotted form, "
        "e.g. '10.0.1.2'",
        f"{files[1]}:{policy}: policy.yelow: is not known here; did you mean 'yellow'? known: drop_precedences, "
        "on_congestion, priority, queue_classes, red, spray, weight, yellow",
        f"{tmp_path}/none.toml: can't be read: No such file or directory",
    ]


def test_validate_looks_at_files_together(tmp_path: Path) -> None:
    fabric = write(tmp_path / "f.toml", fabric_text())
    jobs = [write(tmp_path / "a.toml", job_text()), write(tmp_path / "b.toml", job_text("b", 2, base=4095))]
    good = command("validate", fabric, jobs[0])
    assert (good.returncode, good.stdout) == (0, f"good: {fabric}, {jobs[0]}\n")
    apart = command("validate", *jobs)
    assert (apart.returncode, "each by itself" in apart.stdout) == (0, True)
    line = job_text().splitlines().index("[slots]") + 2
    together = command("validate", fabric, *jobs)
    assert together.returncode == 2
    assert f"{jobs[1]}:{line}: slots.base: jobs 'demo'" in together.stderr
    assert command("validate", fabric, fabric).returncode == 2


@pytest.mark.parametrize("kind", ["fabric", "job"])
def test_schema_prints_one(kind: str) -> None:
    done = command("schema", kind)
    assert done.returncode == 0
    jsonschema_rs.meta.validate(json.loads(done.stdout))


def test_apply_shows_what_would_change_and_does_all_or_nothing(fake_switch, run_controller, tmp_path: Path) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    files = ["--job", write(tmp_path / "o.toml", OTHER), "--job", write(tmp_path / "t.toml", THIRD)]
    asked = command("apply", *files, *it.access)
    assert (asked.returncode, names(it)) == (2, ["demo"])
    assert "pass --yes" in asked.stderr
    assert "to insert" in asked.stdout
    # One that the switch refuses takes the other with it.
    fake_switch.refuse = lambda entity: any(it.exact.value == b"\x03" for it in entity.table_entry.match[:1])
    held = dict(fake_switch.entities)
    refused = command("apply", *files, "--yes", *it.access)
    assert refused.returncode == 1
    assert "RESOURCE_EXHAUSTED" in refused.stderr
    assert (names(it), fake_switch.entities) == (["demo"], held)
    fake_switch.refuse = lambda _entity: False
    done = command("apply", *files, "--yes", *it.access)
    assert (done.returncode, names(it)) == (0, ["demo", "other", "third"])
    assert done.stdout.endswith("applied: other, third\n")
    same = command("apply", *files, "--yes", *it.access)
    assert "s1: 0 to insert, 0 to modify, 0 to delete" in same.stdout
    # The files again, and a job at once.
    write(tmp_path / "job0.toml", job_text(policy="weight = 3"))
    done = command("apply", "--fabric", "--yes", *it.access)
    assert done.stdout.endswith("applied: the files, read again\n")
    assert command("apply", "--yes", *it.access).returncode == 2
    bad = write(tmp_path / "bad.toml", job_text().replace('name = "demo"', "name = 3"))
    assert f"{bad}:3: job.name" in command("apply", "--job", bad, *it.access).stderr
    status, answer = it.ask("POST", "/apply", json.dumps({"jobs": [OTHER, OTHER]}), Content_Type="application/json")
    assert (status, "like that of another in the request" in answer["error"]) == (400, True)
    for body, status in {
        "": 400,
        "[" * 10_000: 400,
        "[]": 422,
        '{"jobs": [1]}': 422,
        '{"jobs": [], "files": 1}': 422,
    }.items():
        assert (it.ask("POST", "/apply", body, Content_Type="application/json")[0], body[:30]) == (status, body[:30])


def test_apply_asks_on_a_terminal(fake_switch, run_controller, tmp_path: Path) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    file = write(tmp_path / "o.toml", OTHER)
    for answer, code, jobs in ((b"\n", 1, ["demo"]), (b"n\n", 1, ["demo"]), (b"y\n", 0, ["demo", "other"])):
        terminal = Terminal("apply", "--job", file, *it.access)
        terminal.wait_for(b"change it? [y/N]")
        terminal.press(answer)
        assert (terminal.end(), names(it)) == (code, jobs)


def test_drain_and_undrain_say_what_they_have_done(make_fake_switch, run_controller) -> None:
    switches = [make_fake_switch() for _ in range(4)]
    fabric = leafspine_text(addresses=[each.address for each in switches])
    it = run_controller(fabric, job_text(hosts=(1, 3)), more=("--no-link-check",))
    it.wait_for("ready:")
    done = command("drain", "spine1", *it.access)
    assert (done.returncode, done.stdout) == (0, "spine1 is drained: it may go now\n")
    assert "drained, ready" in command("status", *it.access).stdout
    assert command("drain", "spine1", *it.access).returncode == 0
    leaf = command("drain", "leaf2", *it.access)
    assert (
        leaf.returncode,
        "leaf2 has hosts, which can't move: h3, h4; these jobs stop when it goes: demo" in leaf.stdout,
    ) == (1, True)
    other = command("drain", "spine2", *it.access)
    assert (other.returncode, "no other way now between 'leaf1' and 'leaf2'" in other.stderr) == (1, True)
    # A leaf that is away may still send through the spine.
    assert command("undrain", "spine1", *it.access).stdout == "spine1 is used again\n"
    switches[0].stop()
    it.wait_for("trying again")
    away = command("drain", "spine1", *it.access)
    assert (away.returncode, "may still send through spine1: switch 'leaf1'" in away.stdout) == (1, True)
    exported = it.ask("GET", "/export")[1]
    assert exported["drained"] == ["leaf2", "spine1"]
    for name, code in (("nobody", 1), ("a/b", 2), ("", 2)):
        assert command("drain", name, *it.access).returncode == code


def test_export_writes_files_that_run_takes(fake_switch, run_controller, tmp_path: Path) -> None:
    it = run_controller(fabric_text(fake_switch.address), job_text())
    it.wait_for("ready:")
    assert it.ask("POST", "/jobs", OTHER)[0] == 200
    folder = tmp_path / "exported"
    done = command("export", folder, *it.access)
    assert done.returncode == 0
    files = [folder / name for name in ("fabric.toml", "job-demo.toml", "job-other.toml")]
    assert done.stdout == f"gradlane-controller run --fabric {files[0]} --job {files[1]} --job {files[2]}\n"
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * 3
    assert command("validate", *files).returncode == 0
    assert "is not empty" in command("export", folder, *it.access).stderr
    held, written = dict(fake_switch.entities), list(fake_switch.log)
    assert it.end() == 0
    again = Running(
        ["--fabric", str(files[0]), "--job", str(files[1]), "--job", str(files[2])],
        int(it.http[10:]),
        tmp_path / "again.token",
    )
    try:
        again.wait_for("ready:")
        assert (fake_switch.entities, fake_switch.log) == (held, written)
    finally:
        again.end(signal.SIGKILL)


def test_top_shows_switches_links_and_jobs(make_fake_switch, run_controller) -> None:
    switches = [make_fake_switch() for _ in range(4)]
    fabric = leafspine_text(addresses=[each.address for each in switches])
    it = run_controller(fabric, job_text(hosts=(1, 3)), more=("--no-link-check",))
    it.wait_for("ready:")
    shown = command("top", "--once", *it.access)
    assert shown.returncode == 0
    title, _, *rest = shown.stdout.splitlines()
    assert title == f"controller at http://{it.http}: 4 of 4 switches ready, 4 of 4 links work (not checked), 1 job(s)"
    assert rest[0].split() == ["switch", "address", "entries", "mended", "state"]
    assert rest[1].split()[:2] + rest[1].split()[-1:] == ["leaf1", switches[0].address, "ready"]
    assert any(line.startswith("leaf1:5 - spine1:1") and line.endswith("works") for line in rest)
    assert rest[-1].split() == ["demo", "1", "2", "0", "hosts"]
    # On a terminal it goes on until q, and tells when the controller has gone.
    terminal = Terminal("top", "--interval", "0.2", *it.access)
    terminal.wait_for(b"leaf1:5 - spine1:1")
    it.end(signal.SIGKILL)
    terminal.wait_for(b"is `gradlane-controller run` there?")
    terminal.press(b"q")
    assert terminal.end() == 0
    gone = command("top", "--once", *it.access)
    assert (gone.returncode, f"controller at http://{it.http}" in gone.stderr) == (1, True)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: object) -> None:
        self._master, slave = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "LINES": "60"}
        self._process = subprocess.Popen(
            [*CLI, *map(str, arguments)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self._said = b""

    def wait_for(self, text: bytes) -> None:
        end = time.monotonic() + PATIENCE
        while text not in self._said:
            assert select.select([self._master], [], [], max(end - time.monotonic(), 0))[0], self._said
            self._said += os.read(self._master, 65536)

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def end(self) -> int:
        try:
            while os.read(self._master, 65536):
                pass
        except OSError:
            pass  # the other side is closed
        os.close(self._master)
        return self._process.wait(PATIENCE)


def test_a_reader_that_has_enough_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*CLI, "schema", "fabric"], stdout=writer, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")
