# SPDX-License-Identifier: Apache-2.0
"""Controller and switch under a service manager: what the processes tell it. The agent's is in gradlane/daemon."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gradlane_controller.texts import fabric_text
from tests.support.ports import free_ports
from tests.support.service_manager import ServiceManager

WATCHDOG = 0.3  # s


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[ServiceManager]:
    it = ServiceManager(tmp_path, WATCHDOG)
    yield it
    it.close()


@pytest.fixture(params=["controller", "switch"])
def process(request: pytest.FixtureRequest, manager: ServiceManager, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """With a configuration file, which tells it not to say much."""
    file = tmp_path / "service.toml"
    if request.param == "controller":
        (tmp_path / "fabric.toml").write_text(fabric_text("127.0.0.1:9"))
        file.write_text(f'fabric = "{tmp_path}/fabric.toml"\nhttp = "127.0.0.1:{free_ports(1)[0]}"\n')
        command = ["gradlane_controller.cli", "run"]
    else:
        file.write_text('grpc_server_addr = "127.0.0.1:0"\n')
        command = ["gradlane_switch"]
    arguments = [sys.executable, "-m", *command, "--config", str(file)]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=manager.environment) as started:
        yield started
        started.kill()


def test_it_is_told_of_start_life_reload_and_stop(process: subprocess.Popen[str], manager: ServiceManager) -> None:
    assert any(line.startswith("STATUS=") for line in manager.wait_for("READY=1"))
    for _ in range(3):
        manager.wait_for("WATCHDOG=1")
    process.send_signal(signal.SIGHUP)
    assert any(line.startswith("MONOTONIC_USEC=") for line in manager.wait_for("RELOADING=1"))
    manager.wait_for("READY=1")
    process.terminate()
    manager.wait_for("STOPPING=1")
    assert process.wait(60) == 0


def test_a_reload_ends_although_the_file_is_bad(
    process: subprocess.Popen[str], manager: ServiceManager, tmp_path: Path
) -> None:
    manager.wait_for("READY=1")
    (tmp_path / "service.toml").write_text("nonsense = 1\n")
    process.send_signal(signal.SIGHUP)
    manager.wait_for("RELOADING=1")
    manager.wait_for("READY=1")
    assert process.stderr is not None
    line = next(line for line in process.stderr if "reload failed" in line)
    assert f"nothing has changed: {tmp_path}/service.toml:1: nonsense: is not known here" in line
    assert manager.hears(2 * WATCHDOG) is not None


def test_a_wedged_event_loop_gives_no_sign_of_life(process: subprocess.Popen[str], manager: ServiceManager) -> None:
    manager.wait_for("READY=1")
    manager.wait_for("WATCHDOG=1")
    process.send_signal(signal.SIGUSR1)
    assert process.stderr is not None
    assert any("wedged" in line for line in process.stderr)  # other threads go on
    assert manager.hears(3 * WATCHDOG) is None
