# SPDX-License-Identifier: Apache-2.0
"""The demonstration, end to end in namespaces of its own; and what it says where it can't run."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.effort import only_thorough, thorough
from tests.support.isolation import ISOLATED
from tests.support.liveness import gone
from tests.support.needs import needs_bmv2, needs_mininet, needs_root
from tests.support.paths import PIPELINE, ROOT

pytestmark = pytest.mark.long

DEMO = [sys.executable, str(ROOT / "mininet" / "demo.py")]
STEPS = 10  # of a training that is compared


def demo(*options: str, prefix: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
    command = [*prefix, *DEMO, *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=400, check=False)


@dataclass(frozen=True)
class Compared:
    """Three arms that were trained one after the other: what was printed, and where the rest is."""

    printed: Any
    out: Path

    def arm(self, name: str) -> Any:
        (found,) = [run for run in self.printed["runs"] if run["arm"] == name]
        return found


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    out = tmp_path_factory.mktemp("compared")
    options = ["--scenario", "clean", "--workers", "2", "--steps", str(STEPS), "--json"]
    options += ["--out", os.path.relpath(out, ROOT)]  # as `make demo` has it
    done = demo(*options, "--arms", "gradlane,gradlane-switch-sum,ddp-gloo", prefix=ISOLATED)
    assert done.returncode == 0, done.stderr
    return Compared(json.loads(done.stdout), out)


@needs_root
@needs_mininet
def test_arms_are_trained_and_compared(compared: Compared) -> None:
    assert compared.printed == json.loads((compared.out / "result.json").read_text())
    assert [run["arm"] for run in compared.printed["runs"]] == ["gradlane", "gradlane-switch-sum", "ddp-gloo"]
    gradlane, gloo = compared.arm("gradlane"), compared.arm("ddp-gloo")
    assert gradlane["transport"]["delivered"] > 1000
    assert gradlane["budget_violations"] == 0
    assert gloo["transport"] is None
    assert gradlane["step"]["count"] == gloo["step"]["count"] == STEPS
    forwarded = sum(row["packets"] for row in gradlane["switch"]["decisions"] if row["reason"] == "forwarded")
    assert forwarded > 1000
    assert (compared.out / "report.html").read_text().count("<svg") >= 2


@needs_root
@needs_mininet
def test_agents_report_to_the_controller_and_so_the_page_shows_steps(compared: Compared) -> None:
    logs = [*(compared.out / "run" / "clean" / "logs").glob("agent-of-*.log")]
    assert len(logs) == 2
    for log in logs:
        assert "gradlane: reports to the controller\n" in log.read_text(), log.read_text()


@needs_root
@needs_mininet
@pytest.mark.parametrize("switch", ["gradlane", pytest.param("bmv2", marks=needs_bmv2)])
def test_a_training_outlives_a_spine(switch: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if switch == "bmv2" and not request.config.getoption("--thorough"):
        pytest.skip("takes more than a minute on BMv2; --thorough runs it")
    arms = "gradlane-ecmp,gradlane" if thorough() else "gradlane"
    options = ["--scenario", "spine-failure", "--workers", "2", "--steps", "20", "--arms", arms, "--switch", switch]
    done = demo(*options, "--json", "--out", str(tmp_path), prefix=ISOLATED)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert read["settings"]["topology"] == "leafspine of 2 leaves and 2 spines"
    assert read["settings"]["failure"] == "spine1 after 40% of the steps"
    assert [run["arm"] for run in read["runs"]] == arms.split(",")
    for run in read["runs"]:  # a second one finds the fabric whole again
        assert 0 < run["failed_at"] < run["seconds"]
        assert run["step"]["count"] == 20
        assert run["budget_violations"] == 0
        assert run["links"]["leaf1:2"] > 0  # to the spine that failed
        assert run["links"]["leaf1:3"] > 100_000


@needs_root
@needs_mininet
def test_a_switch_sums_the_gradients_of_a_training(compared: Compared) -> None:
    check_sums(compared.arm("gradlane-switch-sum"), compared.arm("ddp-gloo"), compared.out)


@needs_root
@needs_mininet
def test_a_switch_sums_wider_numbers(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--thorough"):
        pytest.skip("differs from the other case in the width of numbers; --thorough runs it")
    options = ["--scenario", "clean", "--workers", "3", "--steps", str(STEPS), "--json"]
    options += ["--arms", "gradlane-switch-sum-int32,ddp-gloo"]
    done = demo(*options, "--out", str(tmp_path), prefix=ISOLATED)
    assert done.returncode == 0, done.stderr
    summed, gloo = json.loads(done.stdout)["runs"]
    check_sums(summed, gloo, tmp_path)


def check_sums(summed: Any, gloo: Any, out: Path) -> None:
    assert summed["step"]["count"] == gloo["step"]["count"] == STEPS
    # All but the first step, and the second, in which DDP has other buckets; on a busy machine hosts go on earlier.
    # Each bucket has an element more.
    transport = summed["transport"]
    assert 0 < transport["summed_bytes"] * STEPS <= transport["reduced_bytes"] * (STEPS - 2) * 1.001
    assert transport["budget_violations"] == transport["bad_datagrams"] == 0
    assert sum(row["packets"] for row in summed["switch"]["decisions"] if row["reason"] == "absorbed") > 500
    assert abs(summed["curve"][-1]["value"] - gloo["curve"][-1]["value"]) < 0.2
    assert "Summed in the switch" in (out / "report.html").read_text()


@needs_root
@needs_mininet
def test_a_slow_worker_is_waited_for_in_lockstep_and_not_without_it(tmp_path: Path) -> None:
    options = ["--scenario", "straggler", "--workers", "3", "--steps", "10", "--arms", "ripples,gradlane"]
    done = demo(*options, "--json", "--out", str(tmp_path), prefix=ISOLATED)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert read["settings"]["slow worker"].startswith("the last: a step's computation takes 3 x 300 ms")
    ripples, lockstep = read["runs"]
    assert lockstep["batches"] == [10, 10, 10]
    assert sum(ripples["batches"]) == 3 * 10
    assert ripples["batches"][2] < min(ripples["batches"][:2])
    assert ripples["step"]["count"] == lockstep["step"]["count"] == 10
    for waiter in (0, 1):  # by 600 ms in each step, so in the most part of the run
        assert lockstep["waited"][waiter][2] > 0.4 * lockstep["seconds"]
        assert ripples["waited"][waiter][2] < 0.3 * ripples["seconds"]
    assert ripples["seconds"] < lockstep["seconds"]
    assert "waiting for worker 2: " in done.stderr  # live
    assert "Who waited for whom" in (tmp_path / "report.html").read_text()


@pytest.fixture
def running_demo(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A demonstration in the middle of an arm."""
    options = ["--scenario", "clean", "--workers", "2", "--steps", "5000", "--arms", "gradlane"]
    process = subprocess.Popen(
        [*ISOLATED, *DEMO, *options, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "  loss " in line:
            break
    yield process
    process.kill()
    process.communicate()


def children(pid: int) -> dict[int, str]:
    """The command lines of the children of a process."""
    pids = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return {int(child): Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ") for child in pids}


@only_thorough("that a dead process is named is tested without a demonstration, too")
@needs_root
@needs_mininet
def test_a_killed_switch_is_named_and_nothing_is_left(running_demo: "subprocess.Popen[str]") -> None:
    before = children(running_demo.pid)
    (switch,) = [pid for pid, command in before.items() if "bin/gradlane-switch" in command]
    os.kill(switch, signal.SIGKILL)
    _, error = running_demo.communicate(timeout=60)
    assert running_demo.returncode == 1
    assert f"switch s1 (gradlane-switch, pid {switch}) died with signal 9" in error
    assert "during arm gradlane, step" in error
    assert not [pid for pid in before if Path(f"/proc/{pid}").exists()]


@needs_root
@needs_mininet
def test_sigterm_tears_everything_down(running_demo: "subprocess.Popen[str]") -> None:
    before = children(running_demo.pid)
    assert len(before) >= 9, before  # two hosts' shells and the switch's, switch, controller, two agents, two workers
    running_demo.terminate()
    _, error = running_demo.communicate(timeout=60)
    assert running_demo.returncode == 128 + signal.SIGTERM
    assert "stopped by SIGTERM" in error
    assert not [pid for pid in before if Path(f"/proc/{pid}").exists()]


@needs_root
@needs_mininet
def test_nothing_outlives_a_killed_runner(running_demo: "subprocess.Popen[str]") -> None:
    before = children(running_demo.pid)
    with Path(f"/proc/{running_demo.pid}/ns/net").open() as namespace:
        assert "s1-eth2" in interfaces(namespace)
        running_demo.kill()
        running_demo.wait()
        deadline = time.monotonic() + 60
        while interfaces(namespace) != ["lo"] or not all(map(gone, before)):
            assert time.monotonic() < deadline, (interfaces(namespace), before)


def interfaces(namespace: IO[str]) -> list[str]:
    """The names of the interfaces in a network namespace, without the other ends of their links."""
    command = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{namespace.fileno()}", "ip", "-json", "link", "show"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [link["ifname"] for link in json.loads(done.stdout)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--workers", "40"], "workers is 40; it must be from 2 to 16"),
        (["--scenario", "calm"], "invalid choice: 'calm'"),
        (["--rate", "fast"], "'fast' is not a rate"),
        (["--switch", "ovs"], "switch 'ovs' is unknown; there are gradlane, bmv2"),
        (["--scenario", "asymmetric", "--topo", "star"], "needs a switch 'spine1'"),
        (["--scenario", "spine-failure", "--spines", "1"], "needs at least 2 spines"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(options: list[str], words: str) -> None:
    done = demo(*options)
    assert done.returncode == 2
    assert words in done.stderr.strip().splitlines()[-1]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up being root")
def test_not_root_is_said() -> None:
    command = ["setpriv", "--reuid=65534", "--clear-groups", sys.executable, "-c", NOT_ROOT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "Permission denied" in done.stderr:
        pytest.skip("this Python is readable for root only")
    assert done.stdout.startswith("not root: network namespaces need it")


NOT_ROOT = """
from lab.model import preconditions
try:
    preconditions.check_root()
except preconditions.PreconditionError as problem:
    print(problem)
"""


def test_a_second_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.model import preconditions

    monkeypatch.setattr(preconditions, "RUN_DIRECTORY", tmp_path)
    with (tmp_path / "lock").open("w") as held:
        held.write("4711\n")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(preconditions.PreconditionError, match=r"another run \(pid 4711\) holds"):
            preconditions.lock()
    preconditions.lock().close()


def test_a_missing_switch_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from lab.model import preconditions

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(preconditions.PreconditionError, match=r"simple_switch_grpc .*not on PATH"):
        preconditions.find_program("simple_switch_grpc")


@pytest.mark.parametrize(
    ("version", "words"),
    [("1.13.0", r"1.15.0 \(of 2024-11\) or newer is needed: its program"), ("unknown", "names no version")],
)
def test_an_old_bmv2_is_named(version: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.model import preconditions

    program = tmp_path / "simple_switch_grpc"
    program.write_text(f"#!/bin/sh\necho {version}\n")
    program.chmod(0o755)
    monkeypatch.setattr(preconditions, "find_program", lambda name: str(program if name == program.name else name))
    with pytest.raises(preconditions.PreconditionError, match=words):
        preconditions.check({"bmv2"}, (), (), PIPELINE)


@needs_root
def test_a_busy_port_is_named() -> None:
    import socket

    from lab.model import preconditions

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(preconditions.PreconditionError, match=f"TCP port {port} on 127.0.0.1 is busy"):
            preconditions.check({"gradlane"}, (port,), (), PIPELINE)
