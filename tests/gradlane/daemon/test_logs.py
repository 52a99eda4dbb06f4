# SPDX-License-Identifier: Apache-2.0
"""The log: its form, its limits, and that nothing that happens to it stops the agent."""

import contextlib
import fcntl
import json
import logging
import mmap
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradlane import logs
from gradlane.daemon.service import PROGRAM
from gradlane.logs import Log
from tests.support.agents import GRADLANE, NETWORK, Agent, agents, command, loopback, until
from tests.support.communicators import training
from tests.support.members import job_file

PAGE = mmap.PAGESIZE


@pytest.fixture
def handlers() -> Iterator[None]:
    """Gives pytest its own handlers back."""
    root, ours = logging.getLogger(), logging.getLogger("gradlane")
    saved, level, level_of_ours, raising = root.handlers[:], root.level, ours.level, logging.raiseExceptions
    for handler in saved:
        root.removeHandler(handler)
    yield
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        handler.close()
    for handler in saved:
        root.addHandler(handler)
    root.setLevel(level)
    ours.setLevel(level_of_ours)
    logging.raiseExceptions = raising


def test_json_lines_have_stable_keys(tmp_path: Path) -> None:
    file = tmp_path / "agent.log"
    with (
        agents(tmp_path, loopback(2), "--log-format", "json") as hosts,
        training(job_file(tmp_path, loopback(2)), hosts),
    ):
        hosts[0].wait_for("joins")
    file.write_text("\n".join(hosts[0].log))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert all({"time", "level", "message", "job", "rank", "peer"} <= line.keys() for line in lines)
    joins = next(line for line in lines if "joins" in line["message"])
    assert (joins["level"], joins["job"], joins["rank"], joins["peer"]) == ("info", "trial", 0, None)
    assert joins["time"].endswith("Z")
    assert lines[-1]["message"] == "stopping"


@pytest.mark.usefixtures("handlers")
def test_one_place_cannot_flood_the_log_and_others_go_on(tmp_path: Path) -> None:
    file = tmp_path / "agent.log"
    logs.setup(Log(format="json", file=file), PROGRAM)
    log = logging.getLogger("gradlane")

    def flood(count: int) -> None:
        for number in range(count):
            log.info("flood %d", number)

    began = time.monotonic()
    flood(500)
    seconds = time.monotonic() - began
    log.info("another place")
    logging.getLogger().handlers[0].close()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert logs.BURST_LINES <= len(lines) - 1 <= logs.BURST_LINES + seconds * logs.LINES_PER_SECOND + 2
    assert lines[-1]["message"] == "another place"


@pytest.mark.usefixtures("handlers")
def test_the_next_line_says_how_many_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    limit, now = logs.RateLimit(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def record() -> logging.LogRecord:
        return logging.LogRecord("gradlane", logging.INFO, "x.py", 1, "text", None, None)

    assert sum(limit.filter(record()) for _ in range(logs.BURST_LINES + 7)) == logs.BURST_LINES
    now[0] += 1.5 / logs.LINES_PER_SECOND
    last = record()
    assert limit.filter(last)
    assert logs.TextFormatter("gradlane", journal=False, times=False).format(last) == (
        "gradlane: text (7 such lines were left out)"
    )


def test_lines_about_one_subject_do_not_cost_those_about_another_and_debug_is_not_limited() -> None:
    limit = logs.RateLimit(logging.INFO, "switch")

    def passed(level: int, **extra: str) -> int:
        records = [logging.LogRecord("x", level, "x.py", 1, "text", None, None) for _ in range(2 * logs.BURST_LINES)]
        for record in records:
            record.__dict__.update(extra)
        return sum(map(limit.filter, records))

    for switch in ("s1", "s2"):
        assert logs.BURST_LINES <= passed(logging.INFO, switch=switch) < 2 * logs.BURST_LINES
    assert passed(logging.DEBUG, switch="s1") == 2 * logs.BURST_LINES


def test_json_has_the_context_always_and_details_where_there_are_any() -> None:
    formatter = logs.JsonFormatter(logs.Program("p", ("p",), context=("switch",), details=("seconds",)))
    record = logging.LogRecord("p", logging.INFO, "x.py", 1, "text", None, None)
    assert json.loads(formatter.format(record)).keys() == {"time", "level", "message", "switch"}
    record.__dict__.update(switch="s1", seconds=0.0, token="secret")
    line = json.loads(formatter.format(record))
    assert (line["switch"], line["seconds"]) == ("s1", 0.0)
    assert "token" not in line


def test_the_journal_gets_the_level_on_every_line() -> None:
    formatter = logs.TextFormatter("gradlane", journal=True, times=False)
    record = logging.LogRecord("gradlane", logging.WARNING, "x.py", 1, "one\ntwo", None, None)
    assert formatter.format(record) == "<4>gradlane: warning: one\n<4>two"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("takes the right to mount")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_loses_lines_but_no_step_and_is_told_later(tmp_path: Path, small_disk: Path) -> None:
    file, config, ballast = small_disk / "agent.log", tmp_path / "agent.toml", small_disk / "ballast"
    config.write_text(f'[log]\nfile = "{file}"\nformat = "json"\n')
    hosts = [
        Agent(f"{NETWORK}.{n + 1}", tmp_path / f"{n}.sock", *own)
        for n, own in enumerate([("--config", config), ()])  # one writer of the file: what is torn is its own
    ]
    try:
        until(lambda: file.exists() and "ready" in file.read_text())
        hosts[1].wait_for("ready")
        with file.open("ab") as stream:
            stream.write(b"\n" * (-file.stat().st_size % PAGE))  # or some lines more would find room
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
            while True:
                stream.write(b"x" * PAGE)

        def lose() -> bool:
            hosts[0].process.send_signal(signal.SIGHUP)
            return _lost(tmp_path) > 0

        until(lose)
        with training(job_file(tmp_path, loopback(2)), hosts):
            pass
        ballast.unlink()

        def tell() -> bool:
            hosts[0].process.send_signal(signal.SIGHUP)
            return "log line(s) before this one were lost: No space left on device" in file.read_text()

        until(tell)
        lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        assert lines[-1]["level"] in ("info", "warning")
    finally:
        assert [agent.end() for agent in hosts] == [0, 0]


def _lost(folder: Path) -> int:
    return json.loads(command("status", "--json", "--socket", folder / "0.sock", check=True).stdout)["log_lines_lost"]


@pytest.mark.parametrize("reader", ["gone", "stuck"])
def test_a_pipe_that_nobody_reads_stops_nothing(tmp_path: Path, reader: str) -> None:
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
    if reader == "stuck":
        os.set_blocking(write, False)
        while True:
            try:
                os.write(write, b"x" * 512)
            except BlockingIOError:
                break
        os.set_blocking(write, True)
    else:
        os.close(read)
    argv = [*GRADLANE, "agent", "--address", f"{NETWORK}.1", "--socket", str(tmp_path / "0.sock")]
    agent = subprocess.Popen(argv, stderr=write)
    os.close(write)
    try:
        asking = ("status", "--json", "--socket", tmp_path / "0.sock")
        until(lambda: command(*asking).returncode == 0)
        for _ in range(3):
            agent.send_signal(signal.SIGHUP)
            status = command(*asking, check=True)
        if reader == "gone":
            assert json.loads(status.stdout)["log_lines_lost"] > 0
    finally:
        agent.terminate()
        assert agent.wait(60) == 0
    if reader == "stuck":
        os.close(read)
