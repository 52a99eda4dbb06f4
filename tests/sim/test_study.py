# SPDX-License-Identifier: Apache-2.0
"""A study from end to end, on the program as it is built: what a user types, and what is there then."""

import json
import os
import socket
import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gradlane_sim import rivals, studies, workloads
from gradlane_sim.cases import Scenario
from gradlane_sim.document import document
from gradlane_sim.program import DEFAULT
from tests.deploy.datagrams_by_hand import DATA, STOP
from tests.deploy.tshark import dissected
from tests.sim.test_running import calls, program
from tests.support.needs import needs

needs_simulator = pytest.mark.skipif(not DEFAULT.exists(), reason=f"{DEFAULT} is not built: `make sim` does it")
PATIENCE = 300  # s
ARMS = {it.name for it in workloads.with_sums(workloads.arms(), 4)}


def gradlane_sim(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gradlane_sim", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment, check=False)


def simulated(text: str) -> dict[str, Any]:
    done = subprocess.run([DEFAULT], input=text, capture_output=True, text=True, timeout=PATIENCE, check=True)
    return json.loads(done.stdout)


@needs_simulator
def test_a_study_runs_and_leaves_figures_and_a_page(tmp_path: Path) -> None:
    done = gradlane_sim("run", "smoke", "--out", str(tmp_path), "--json", "-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told == json.loads((tmp_path / "result.json").read_text())
    (scenario,) = told["scenarios"]
    rows = {it["arm"]: it for it in scenario["arms"]}
    assert set(rows) == ARMS
    for arm, row in rows.items():
        assert row["errors"] == []
        assert row["violations"] == 0
        # Switches add 16 bits of 32, and send each sum once: with four workers a third of the bytes.
        least = 1 / 3 if arm == workloads.SUMMED.name else 1 - 0.1
        assert row["step"] >= row["ideal"] * least, "no faster than its link, but for what may be lost"
        assert row["step"] < 3 * row["ideal"]
    assert all(it in (tmp_path / "report.html").read_text() for it in rows)
    again = gradlane_sim("run", "smoke", "--out", str(tmp_path), "--json", "-")
    assert again.stdout == done.stdout, "what has run is kept"


@needs_simulator
@pytest.mark.parametrize("arm", sorted(ARMS))
def test_a_seed_repeats_a_run_bit_for_bit(arm: str) -> None:
    text = gradlane_sim("input", "smoke", "--arms", arm, "--seeds", "7").stdout
    first, second = simulated(text), simulated(text)
    assert first.pop("wall") > 0
    assert second.pop("wall") > 0
    assert first == second
    other = simulated(gradlane_sim("input", "smoke", "--arms", arm, "--seeds", "8").stdout)
    assert other["jobs"] != first["jobs"]


def captured(file: Path, own: str) -> tuple[list[int], list[int]]:
    """The bytes of the frames that a host of this address has sent, and of those that came; behind PPP's two bytes."""
    found: tuple[list[int], list[int]] = ([], [])
    at, data = 24, file.read_bytes()
    while at < len(data):
        (length,) = struct.unpack_from("=8xI4x", data, at)
        source = socket.inet_ntoa(data[at + 16 + 2 + 12 :][:4])
        found[source != own].append(length - 2 + 14)
        at += 16 + length
    return found


@needs_simulator
@needs("tshark")
def test_wireshark_reads_the_capture_of_a_port(tmp_path: Path) -> None:
    """Host 3's: it sends as much as its link carries, and every datagram of it is read without a remark."""
    file = tmp_path / "host3.pcap"
    told = gradlane_sim("input", "smoke", "--arms", "gradlane-p3", "--pcap", f"3:1:{file}").stdout
    result = simulated(told)
    seen = dissected(file, workers=4)
    links = {(it["from"], it["to"]): it for it in result["links"]}
    switch = next(to for a, to in links if a == 3)
    out, back = links[3, switch], links[switch, 3]
    sent, came = captured(file, "10.0.0.4")
    # The simulation ends with the last worker's result: what waits then has not left, and a frame may be on the wire.
    assert sum(sent) == out["bytes"] - out["waiting"]
    assert 0 <= back["bytes"] - back["waiting"] - sum(came) <= 1514
    assert len(seen) == len(sent) + len(came)
    datagrams = [it for frame in seen for it in frame.datagrams]
    assert len(datagrams) >= len(seen)
    assert {it["source"][0] for it in datagrams} == {0, 1, 2, 3}
    kinds = [it["kind"][0] for it in datagrams]
    assert kinds.count(DATA) > 2 * 2 * 3 * 400_000 / 4 / 1432 * 0.95
    assert STOP in kinds
    assert all(frame.marks <= {"trimmed"} for frame in seen)


@needs_simulator
def test_a_capture_that_is_not_possible_is_refused(tmp_path: Path) -> None:
    for place, told in (("9:1:a", "node 9 has no port 1"), ("0:2:a", "node 0 has no port 2"), ("0:1:/no/a", "written")):
        text = gradlane_sim("input", "smoke", "--arms", "gradlane-p3", "--pcap", place).stdout
        done = subprocess.run([DEFAULT], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == 1
        assert told in json.loads(done.stderr)["error"]


@pytest.mark.parametrize("name", sorted(studies.STUDIES))
def test_every_case_of_a_study_has_a_name_of_its_own_and_makes_sense(name: str) -> None:
    scenarios = studies.STUDIES[name]()
    assert len({it.name for it in scenarios}) == len(scenarios)
    for scenario in scenarios:
        for arm in scenario.arms:
            specification = scenario.make(arm, 1)
            assert specification.fabric.hosts == scenario.hosts
            assert specification == scenario.make(arm, 1)
            assert specification != scenario.make(arm, 2)


def test_rivals_have_the_settings_that_the_sweep_found_best() -> None:
    there = {it.name: it for it in (*studies.small(), *studies.study())}
    swept = {it.name: it for it in studies.sweep()}
    for name, better in rivals.BETTER.items():
        for rival, setting in better.items():
            assert setting.startswith(f"{rival}-")
            (arm,) = (it for it in there[name].arms if it.name == rival)
            (tried,) = (it for it in swept[name].arms if it.name == setting)
            assert there[name].make(arm, 1) == swept[name].make(tried, 1)
            assert there[name].make(arm, 1) != there[name].make(replace(arm, setting=""), 1)


@pytest.mark.parametrize("scenario", studies.study(), ids=lambda it: it.name)
def test_the_controller_and_the_agent_take_every_scenario(scenario: Scenario) -> None:
    for arm in (scenario.arms[0], scenario.arms[-1]):
        assert document(scenario.make(arm, 1))["jobs"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["run", "smoke", "--arms", "gradlane"], "there is no arm 'gradlane'; there are gradlane-p0"),
        (["run", "smoke", "--only", "x"], "study smoke has no scenario with 'x'"),
        (["input", "smoke"], "say which one by --only, --arms and --seeds"),
        (["run", "smoke", "--seeds", "0"], "seeds are 1 to"),
        (["run", "smoke", "--program", "/nowhere"], "`make sim` builds it"),
        (["input", "smoke", "--pcap", "3"], "must be NODE:PORT:FILE"),
    ],
)
def test_what_is_wrong_is_told_with_what_would_be_right(arguments: list[str], told: str, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)] if arguments[0] == "run" else []
    done = gradlane_sim(*arguments, *out)
    assert done.returncode == 2
    assert told in done.stderr


def test_what_it_has_started_ends_with_it(tmp_path: Path) -> None:
    hanging = program(tmp_path, "hangs").path
    command = [sys.executable, "-m", "gradlane_sim", "run", "smoke", "--processes", "2", "--program", str(hanging)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    out = ["--out", str(tmp_path / "out")]
    with subprocess.Popen([*command, *out], env=environment, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + PATIENCE
        while calls(tmp_path) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        assert calls(tmp_path) == 2
        process.terminate()
        _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "what has run is kept" in said
    assert calls(tmp_path) == 2, "nothing else was begun"
    lines = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(hanging) not in lines


def test_help_has_examples_that_are_commands() -> None:
    text = gradlane_sim("--help").stdout
    examples = [
        line.split("gradlane_sim ")[1].split(" |")[0].split("  ")[0]
        for line in text.splitlines()
        if "-m gradlane_sim " in line
    ]
    assert len(examples) >= 5
    for it in examples:
        words = it.split()
        if words[0] == "list":
            assert gradlane_sim(*words).returncode == 0
