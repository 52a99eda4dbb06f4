# SPDX-License-Identifier: Apache-2.0
"""Cases run side by side, are kept by what they follow from, and end with what is wrong with them."""

import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gradlane_sim import fabrics
from gradlane_sim.carriers import Carrier, Gradlane, Rival
from gradlane_sim.cases import Arm, Case
from gradlane_sim.errors import SimulationError
from gradlane_sim.program import Program
from gradlane_sim.running import Outcome, Work
from gradlane_sim.specification import Job, Specification, Tensor

ARM = Arm("gradlane-p0", "as it is", True)
# Counts its calls in a file, and answers as the program does. What it does is in its second line.
FAKE = """#!{python}
# {what}
import json, sys, time
spec = json.load(sys.stdin)
with open({calls!r}, "a") as calls:
    calls.write("x")
print(json.dumps({{"simulated": 1e-4, "wall": 1.0, "events": 5}}), file=sys.stderr, flush=True)
if {what!r} == "fails":
    sys.exit(json.dumps({{"error": "it can't be"}}))
if {what!r} == "hangs":
    time.sleep(600)
if {what!r} == "silent":
    sys.exit(0)
ends = [spec["seed"] * 1_000_000]
job = {{"id": 1, "error": "", "step_ends": ends, "steps_complete": 1, "operations": [[1, 0, 0, 0, ends[0]]],
       "worker_ends": ends}}
counts = {{"packets": 1, "bytes": 1250, "dropped": 0, "marked": 0, "depth_max": 9, "lost": 0}}
links = [dict(counts, **{{"from": a, "to": b, "rate": 10**9}}) for a, b in ((0, 2), (2, 0))]
told = {{"jobs": [job], "messages": [], "switches": [], "links": links}}
print(json.dumps(dict(told, simulated=1e-3, events=9, wall=2)))
"""


def program(folder: Path, what: str = "works") -> Program:
    path = folder / f"fake-{what}"
    path.write_text(FAKE.format(python=sys.executable, what=what, calls=str(folder / "calls")))
    path.chmod(0o755)
    return Program(path)


def calls(folder: Path) -> int:
    return len((folder / "calls").read_text()) if (folder / "calls").exists() else 0


def case(seed: int = 1, carrier: Carrier = Gradlane()) -> Case:  # noqa: B008 - it can't be changed
    fabric = fabrics.single(2, 10**9, 64_000, 1000)
    job = Job(1, (0, 1), carrier, (Tensor(0, 4000, 1),))
    return Case("two", ARM, seed, Specification(fabric, (job,), seed))


def test_what_has_run_is_not_run_again_and_what_changed_is(tmp_path: Path) -> None:
    cases = [case(1), case(2)]
    work = Work(program(tmp_path), tmp_path / "kept")
    first = work.run(cases, 2)
    assert [it.measured["jobs"][0]["seconds"] for it in first if it.measured] == [0.001, 0.002], "in the cases' order"
    assert calls(tmp_path) == 2
    assert work.run(cases, 2) == first
    assert calls(tmp_path) == 2
    work.run([case(1), case(3)], 2)
    assert calls(tmp_path) == 3
    other = program(tmp_path, "works, otherwise")
    Work(other, tmp_path / "kept").run([case(1)], 1)
    assert calls(tmp_path) == 4, "a program that was changed"


def test_a_changed_engine_is_nothing_to_rivals(tmp_path: Path) -> None:
    """The build tells by a file what they follow from."""
    rivals = tmp_path / "rivals.sha256"
    cases = [case(), case(carrier=Rival("tcp"))]
    for what, told, runs in (("works", "a", 2), ("works, with another engine", "a", 3), ("works, otherwise", "b", 5)):
        rivals.write_text(f"{told}\n")
        work = Work(program(tmp_path, what), tmp_path / "kept")
        work.run(cases, 1)
        assert calls(tmp_path) == runs
        assert all(work.kept(it) for it in cases)
    assert not work.kept(case(2))


def test_a_kept_result_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    work = Work(program(tmp_path), tmp_path / "kept")
    first = work.run([case()], 1)
    (file,) = (tmp_path / "kept").iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    assert work.run([case()], 1) == first
    assert calls(tmp_path) == 2


def test_a_case_that_fails_is_told_and_ends_no_other(tmp_path: Path) -> None:
    fails = Work(program(tmp_path, "fails"), tmp_path / "kept").run([case()], 1)
    assert fails == [Outcome(case(), None, "fake-fails ended with 1: it can't be")]
    assert not (tmp_path / "kept").exists(), "it is run again the next time"
    silent = Work(program(tmp_path, "silent"), tmp_path / "kept").run([case()], 1)
    assert silent[0].error == "fake-silent wrote no result"
    impossible = replace(
        case(), specification=replace(case().specification, jobs=(two_of_one_slot(), two_of_one_slot(2)))
    )
    outcomes = Work(program(tmp_path), tmp_path / "kept").run([impossible, case()], 1)
    assert "slots" in outcomes[0].error
    assert outcomes[1].measured


def two_of_one_slot(number: int = 1) -> Job:
    return Job(number, (0, 1), Gradlane(), (Tensor(0, 4000, 1),))


def test_a_program_that_is_not_there_is_named_with_what_builds_it(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match=r"nothing can't be read .*`make sim` builds it"):
        Work(Program(tmp_path / "nothing"), tmp_path).run([case()], 1)


def test_progress_grows_to_the_whole(tmp_path: Path) -> None:
    seen: list[tuple[float, int]] = []
    Work(program(tmp_path), tmp_path / "kept", lambda part, over: seen.append((part, over))).run(
        [case(seed) for seed in (1, 2, 3)], 1
    )
    parts = [part for part, _ in seen]
    assert parts == sorted(parts)
    assert seen[-1] == (1.0, 3)
    assert any(0 < part < 1 / 3 for part in parts), "also while a case runs"


def test_what_runs_can_be_stopped(tmp_path: Path) -> None:
    hanging = program(tmp_path, "hangs")
    threading.Timer(1.0, hanging.stop).start()
    began = time.monotonic()
    outcomes = Work(hanging, tmp_path / "kept").run([case(1), case(2)], 1)
    assert time.monotonic() - began < 60
    assert "ended with -9" in outcomes[0].error
    assert outcomes[1].error == "stopped"
    assert calls(tmp_path) <= 1
