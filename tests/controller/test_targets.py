# SPDX-License-Identifier: Apache-2.0
"""The controller against the switches themselves. A switch that is not installed is skipped by name."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from finsy import P4Schema
from finsy.proto import p4r, p4r_grpc

PIPELINE = Path(__file__).parents[2] / "p4src" / "build" / "v1model"
# Beside this Python, where pip puts the command, or on PATH.
SEARCH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
ARGUMENTS = {
    "simple_switch_grpc": ["--no-p4", "--device-id", "1", "--", "--cpu-port", "255", "--grpc-server-addr"],
    "gradlane-switch": ["--cpu-port", "255", "--device-id", "1", "--grpc-server-addr"],
}
DIGEST = P4Schema(PIPELINE / "gradlane.p4info.txtpb").digests["guard_violation_t"].id


class Target:
    """One switch process, started anew by `start`."""

    def __init__(self, command: str, arguments: list[str], port: int, folder: Path) -> None:
        self.kind = "gradlane-switch" if "gradlane" in command else "bmv2"
        self._command = [command, *arguments]
        self.address = f"127.0.0.1:{port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self._folder / "switch.log").open("ab") as log:
            self._process = subprocess.Popen([*self._command, self.address], cwd=self._folder, stdout=log, stderr=log)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(timeout=10)
            self._process = None


@pytest.fixture(params=list(ARGUMENTS))
def target(request: pytest.FixtureRequest, free_port: Callable[[], int], tmp_path: Path) -> Iterator[Target]:
    command = shutil.which(request.param, path=SEARCH)
    if command is None:
        pytest.skip(f"{request.param} is not installed")
    # Only ports that it has can be watched.
    ports = [word for n in range(1, 6) for word in ("-i", f"{n}@udp:127.0.0.1:{free_port()}-127.0.0.1:9")]
    arguments = [*(ports if "gradlane" in command else ()), *ARGUMENTS[request.param]]
    it = Target(command, arguments, free_port(), tmp_path)
    it.start()
    yield it
    it.stop()


def read_everything(target: Target) -> set[bytes]:
    """What the switch holds, asked for by a client that shares no code with the controller."""
    with grpc.insecure_channel(target.address) as channel:
        request = p4r.ReadRequest(device_id=1)
        request.entities.add().table_entry.SetInParent()
        request.entities.add().packet_replication_engine_entry.multicast_group_entry.SetInParent()
        request.entities.add().meter_entry.SetInParent()
        request.entities.add().digest_entry.digest_id = DIGEST
        return {
            entity.SerializeToString(deterministic=True)
            for answer in p4r_grpc.P4RuntimeStub(channel).Read(request, timeout=10)
            for entity in answer.entities
            if not entity.HasField("meter_entry") or entity.meter_entry.HasField("config")
        }


def test_state_survives_controllers_and_comes_back_after_the_switch(
    target: Target, run_controller, fabric_text, job_text
) -> None:
    fabric = fabric_text(target.address, target.kind)
    job = job_text(servers=(3,), transport='multicast = "239.1.0.1"')
    first = run_controller(fabric, job)
    first.wait_for("ready:", 60)
    held = read_everything(target)
    entries = first.ask("GET", "/status")[1]["switches"][0]["entries"]
    assert len(held) == sum(entries.values())
    assert first.ask("GET", "/counters")[1]["senders"][2]["host"] == "h3"
    assert first.end(signal.SIGKILL) == -signal.SIGKILL

    second = run_controller(fabric, job)
    assert "0 inserted, 0 modified, 0 deleted" in second.wait_for("converged")
    assert second.ask("POST", "/jobs", job_text("other", 2, base=4096))[0] == 200
    assert len(read_everything(target)) > len(held)
    assert second.ask("DELETE", "/jobs/other")[0] == 200
    assert read_everything(target) == held

    target.stop()
    second.wait_for("trying again")
    target.start()
    second.wait_for("converged", 60)
    assert read_everything(target) == held


def test_thresholds_follow_the_file_and_ports_that_go_lose_their_meter(
    target: Target, run_controller, fabric_text, job_text, tmp_path: Path
) -> None:
    fabric = fabric_text(target.address, target.kind)
    it = run_controller(fabric, job_text())
    it.wait_for("ready:", 60)
    before = read_everything(target)
    (tmp_path / "fabric.toml").write_text(fabric.replace("red = 0.5", "red = 0.75").replace("number = 4", "number = 5"))
    it.process.send_signal(signal.SIGHUP)
    it.wait_for("files read again")
    after = [p4r.Entity.FromString(entity) for entity in read_everything(target)]
    bursts = {
        e.meter_entry.index.index: e.meter_entry.config.pburst for e in after if e.meter_entry.meter_id == 0x14000001
    }
    assert bursts == {1: 48000, 2: 48000, 3: 48000, 5: 48000}
    assert len(after) == len(before)


def test_a_second_controller_stands_by_and_takes_over(target: Target, run_controller, fabric_text, job_text) -> None:
    fabric = fabric_text(target.address, target.kind)
    first = run_controller(fabric, job_text())
    first.wait_for("ready:", 60)
    held = read_everything(target)
    second = run_controller(fabric, job_text())
    second.wait_for("standing by")
    first.end(signal.SIGKILL)
    assert "0 inserted, 0 modified, 0 deleted" in second.wait_for("converged")
    assert read_everything(target) == held
