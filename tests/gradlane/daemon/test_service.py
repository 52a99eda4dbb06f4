# SPDX-License-Identifier: Apache-2.0
"""The agent under a service manager: what it tells it."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import GRADLANE, NETWORK, Agent
from tests.support.paths import ROOT

DEPLOY = ROOT / "deploy" / "systemd"


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(60)
        yield sock


def test_the_service_manager_is_told_of_start_reload_life_and_stop(tmp_path: Path, manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "3000000"}
    agent = Agent(f"{NETWORK}.1", tmp_path / "a.sock", environment=environment)
    try:
        assert manager.recv(4096).decode().splitlines() == ["READY=1", f"STATUS=serving {NETWORK}.1"]
        assert (tmp_path / "a.sock").exists()  # ready means that a training process can connect
        began = time.monotonic()
        assert [manager.recv(4096) for _ in range(2)] == [b"WATCHDOG=1"] * 2
        assert time.monotonic() - began < 2 * 3
        agent.process.send_signal(signal.SIGHUP)
        said = b""
        while b"RELOADING=1" not in said:
            said = manager.recv(4096)
        assert b"MONOTONIC_USEC=" in said
        while b"READY=1" not in said:
            said = manager.recv(4096)
    finally:
        assert agent.end() == 0
    while b"STOPPING=1" not in said:
        said = manager.recv(4096)


def test_a_stopped_event_loop_gives_no_sign_of_life(tmp_path: Path, manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    agent = Agent(f"{NETWORK}.1", tmp_path / "a.sock", environment=environment)
    try:
        agent.wait_for("ready")
        while b"WATCHDOG=1" not in manager.recv(4096):
            pass
        agent.process.send_signal(signal.SIGSTOP)
        os.waitpid(agent.process.pid, os.WUNTRACED)  # it has stopped
        manager.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # what was said before
            while manager.recv(4096):
                pass
        manager.settimeout(0.5)
        with pytest.raises(TimeoutError):
            manager.recv(4096)
    finally:
        agent.process.send_signal(signal.SIGCONT)
        agent.end()


def test_another_process_watchdog_is_not_fed(tmp_path: Path, manager: socket.socket) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "100000", "WATCHDOG_PID": "1"}
    agent = Agent(f"{NETWORK}.1", tmp_path / "a.sock", environment=environment)
    try:
        assert b"READY=1" in manager.recv(4096)
        manager.settimeout(0.5)
        with pytest.raises(TimeoutError):
            manager.recv(4096)
    finally:
        agent.end()


def test_the_unit_lets_the_agent_see_whether_a_training_process_is_stopped() -> None:
    settings = [line.split("=")[0] for line in (DEPLOY / "gradlane-agent.service").read_text().splitlines()]
    assert "ExecStart" in settings
    assert "ProtectProc" not in settings
    assert "ProcSubset" not in settings


@pytest.mark.parametrize("journal", [True, False])
def test_why_the_agent_does_not_start_is_an_error_in_the_journal(tmp_path: Path, journal: bool) -> None:
    file, said = tmp_path / "agent.toml", tmp_path / "stderr"
    file.write_text("adress = '10.0.1.2'\n")
    with said.open("w") as stderr:
        status = os.fstat(stderr.fileno())
        environment = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}" if journal else "1:1"}
        agent = [*GRADLANE, "agent", "--config", str(file)]
        assert subprocess.run(agent, stderr=stderr, env={**os.environ, **environment}, check=False).returncode == 2
    assert said.read_text().startswith("<3>gradlane: error: " if journal else "gradlane: error: ")
