# SPDX-License-Identifier: Apache-2.0
"""Whole networks, in namespaces of their own: every topology, either switch, the prompt, priorities on the wire."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effort import only_thorough
from tests.support.isolation import ISOLATED
from tests.support.needs import needs, needs_bmv2, needs_mininet, needs_root
from tests.support.paths import ROOT

PROMPT = [sys.executable, str(ROOT / "mininet" / "prompt.py")]
TRAIN = f"{sys.executable} -m lab.train"
SHAPED_CLASS = re.compile(r"class htb (\S+) parent 1:100 .*?\n Sent (\d+) bytes \d+ pkt \(dropped (\d+),")

pytestmark = [needs_root, needs_mininet, needs("ping")]


def prompt(out: Path, *options: str, script: str = "") -> "subprocess.CompletedProcess[str]":
    command = [*ISOLATED, *PROMPT, "--out", str(out), *options]
    return subprocess.run(command, input=script, capture_output=True, text=True, cwd=ROOT, timeout=400, check=False)


@pytest.mark.parametrize(
    "options",
    [
        ["--topo", "star", "--hosts", "3"],
        pytest.param(
            ["--topo", "leafspine", "--leaves", "2", "--spines", "2", "--hosts", "4"],
            marks=only_thorough("in a tutorial all hosts of this fabric ping one another"),
        ),
        pytest.param(["--topo", "dumbbell", "--hosts", "3", "--switch", "left=bmv2"], marks=needs_bmv2),
        pytest.param(["--topo", "leafspine", "--hosts", "2", "--spines", "1", "--switch", "bmv2"], marks=needs_bmv2),
    ],
    ids=" ".join,
)
def test_every_host_reaches_every_other(options: list[str], tmp_path: Path) -> None:
    done = prompt(tmp_path, *options, "--test")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 % of the pings were lost" in done.stdout


def test_a_script_at_the_prompt_sees_every_hop(tmp_path: Path) -> None:
    done = prompt(tmp_path, "--topo", "leafspine", "--spines", "1", "--hosts", "2", script="h1 traceroute -n -w 2 h2\n")
    assert done.returncode == 0, done.stderr
    hops = re.findall(r"^ *\d+  (\S+)", done.stdout, re.MULTILINE)
    assert len(hops) == 4, done.stdout
    assert [hops[0], *hops[2:]] == ["10.0.1.1", "10.0.2.1", "10.0.2.2"]  # a spine has no address to answer from


def test_a_switch_dies_and_comes_back_at_the_prompt(tmp_path: Path) -> None:
    script = (
        "switch s1 stop\n"
        "switch s1 stop\n"
        "switch s2 start\n"
        "h1 ping -c 1 -W 1 h2\n"
        "switch s1 start\n"
        "h1 ping -c 3 h2 > /dev/null\n"  # h1's ARP requests of before go unanswered first
        "pingall\n"
    )
    done = prompt(tmp_path, "--topo", "star", "--hosts", "2", script=script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("switch NAME stop, of one that runs; switch NAME start, of one that was stopped") == 2
    assert "1 packets transmitted, 0 received" in done.stdout
    assert "0% dropped (2/2 received)" in done.stdout


@needs_bmv2
def test_bmv2_goes_on_when_a_link_of_it_is_taken_down(tmp_path: Path) -> None:
    script = (
        "sh sleep 1\n"  # BMv2 takes notice of its ports every 0.2 s
        "link leaf1 spine2 down\n"
        "link leaf1 spine1 down\n"
        "sh sleep 5\n"
        "pingall 1\n"
        "link leaf1 spine1 up\n"
        "sh sleep 5\n"
        "pingall 1\n"
    )
    options = ["--topo", "leafspine", "--hosts", "4", "--switch", "bmv2,spine1=gradlane"]
    done = prompt(tmp_path, *options, script=script)
    assert done.returncode == 0, done.stderr
    assert "link leaf1 spine2 can't be set down: both its ends are BMv2's" in done.stdout
    assert done.stdout.count("0% dropped (12/12 received)") == 2, done.stdout


@pytest.mark.timed
@needs_bmv2
def test_strict_priority_is_seen_behind_bmv2(tmp_path: Path) -> None:
    """A port of 4 Mbit/s gets 8 in best effort and 2 in class 5: of the latter not a frame is lost."""
    load = "bursts --to 10.0.3.2 --period 1 --duty 1 --seconds 4"
    script = (
        f"h1 {TRAIN} {load} --rate 8mbit > /dev/null &\n"
        f"h2 {TRAIN} {load} --rate 2mbit --dscp 46\n"
        "sh tc -statistics class show dev s1-eth3\n"
    )
    done = prompt(tmp_path, "--hosts", "3", "--switch", "bmv2", "--rate", "4mbit", "--buffer", "16kB", script=script)
    assert done.returncode == 0, done.stderr
    found = {name: (int(sent), int(dropped)) for name, sent, dropped in SHAPED_CLASS.findall(done.stdout)}
    best_effort, priority = found["1:8"], found["1:d"]
    assert priority[0] > 0.9 * 4 * 2_000_000 / 8
    assert priority[1] == 0
    assert best_effort[1] > 500
    # The rate of the link holds for both together.
    assert best_effort[0] + priority[0] < 1.2 * 4.5 * 4_000_000 / 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--hosts", "1"], "hosts is 1; it must be from 2 to 64"),
        (["--topo", "leafspine", "--spines", "9"], "spines is 9; it must be from 1 to 8"),
        (["--switch", "leaf1=bmv2"], "there is no switch 'leaf1'; the star has s1"),
    ],
)
def test_what_can_not_be_is_refused_in_one_line(options: list[str], words: str) -> None:
    done = subprocess.run([*PROMPT, *options], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 2
    assert words in done.stderr.strip().splitlines()[-1]
