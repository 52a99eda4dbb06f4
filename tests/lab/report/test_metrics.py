# SPDX-License-Identifier: Apache-2.0
"""From records to figures."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from lab.model.errors import RecordsError
from lab.model.results import Decision, Distribution, MapCell, SwitchFigures, TailDrops
from lab.net.control import Reading
from lab.report.metrics import RecordFile, arm_result, progress
from tests.support.figures import arm_result as figures

NOTHING = SwitchFigures((), (), None)
COUNTS = ("sent", "expected", "delivered", "lost", "repaired", "duplicate")


def statistics(scale: int) -> dict[str, Any]:
    counts = {f"slices_{name}": scale * (index + 1) for index, name in enumerate(COUNTS)}
    sums = {"reduced_bytes": 800 * scale, "summed_bytes": 600 * scale}
    sums |= {"sums_repaired": scale, "sums_left_out": 2 * scale}
    return {
        **counts,
        **sums,
        "budget_total": 7 * scale,
        "budget_violations": 0,
        "bad_token": 1,
        "bad_length": 2,
        "flows": {},
    }


def write(path: Path, *records: dict[str, Any]) -> RecordFile:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    file = RecordFile(path)
    file.read_new()
    return file


def worker(path: Path, step_seconds: list[float], reached: float | None = 0.4, lockstep: bool = True) -> RecordFile:
    steps = [
        {"event": "step", "step": i, "t": 0.1 * (i + 1), "loss": 2.0 - i, "step_seconds": s}
        for i, s in enumerate(step_seconds)
    ]
    exchanges = [
        {"event": "exchange", "group": [0, 1], "ready": 0.1 * i, "done": 0.1 * i + 0.05, "seconds": s / 2}
        for i, s in enumerate(step_seconds)
    ]
    return write(
        path,
        {"event": "start", "start": 100.0, "metric": "accuracy", "target": 0.95, "lockstep": lockstep},
        *steps,
        *exchanges,
        {"event": "evaluation", "step": 2, "t": 0.2, "value": 0.5},
        {"event": "evaluation", "step": 4, "t": 0.4, "value": 0.96},
        {"event": "final", "seconds": 0.4, "seconds_to_target": reached, "statistics": statistics(10)},
    )


def test_a_step_is_as_long_as_its_slowest_worker(tmp_path: Path) -> None:
    files = [worker(tmp_path / "0", [1.0, 4.0, 1.0, 1.0]), worker(tmp_path / "1", [2.0, 1.0, 1.0, 3.0])]
    result = arm_result("clean", "gradlane", 3, files, [statistics(10), statistics(20)], NOTHING)
    assert result.step_seconds == (2.0, 4.0, 1.0, 3.0)
    assert result.step == Distribution(4, 2.5, 2.0, 4.0)
    assert result.allreduce == Distribution(4, 1.25, 1.0, 2.0)
    assert (result.final, result.seconds_to_target, result.seed) == (0.96, 0.4, 3)
    assert result.transport is not None
    assert (result.transport.sent, result.transport.delivered, result.transport.budget) == (30, 90, 210)
    assert result.transport.bad_datagrams == 6
    assert result.transport.delivered_fraction == 90 / 60
    assert (result.transport.summed_fraction, result.transport.sums_repaired) == (0.75, 30)
    assert result.transport.sums_left_out == 60


def test_workers_that_differ_in_their_number_of_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shorter"):
        arm_result("clean", "ddp-gloo", 1, [worker(tmp_path / "0", [1, 1]), worker(tmp_path / "1", [1])], [], NOTHING)


def test_without_lockstep_a_step_is_a_batch_for_each_worker(tmp_path: Path) -> None:
    # They end at 0.1, 0.1, 0.2, 0.2, 0.3 and 0.4 s.
    files = [
        worker(tmp_path / "0", [0.1] * 4, lockstep=False),
        worker(tmp_path / "1", [0.3] * 2, lockstep=False),
    ]
    result = arm_result("straggler", "ripples", 1, files, [statistics(1)], NOTHING)
    assert result.step_ends == pytest.approx([0.1, 0.2, 0.4])
    assert result.step_seconds == pytest.approx([0.1, 0.1, 0.2])
    assert result.batches == (4, 2)
    assert result.allreduce is not None
    assert dataclasses.astuple(result.allreduce) == (6, pytest.approx(0.25 / 3), 0.05, 0.15)
    assert result.exchanges == ()
    assert progress("ripples", 3, files, 0).step == 3


def test_progress_says_how_far_each_worker_is_and_who_is_waited_for(tmp_path: Path) -> None:
    files = [worker(tmp_path / "0", [1.0]), worker(tmp_path / "1", [1.0, 1.0])]
    assert progress("gradlane", 9, files, 0).steps_of == ()
    state = progress("gradlane", 9, files, 0, by_worker=True)
    assert state.steps_of == (1, 2)
    assert state.awaited is None  # all were ready at the same time


def test_a_half_written_line_waits_for_its_end(tmp_path: Path) -> None:
    file = write(tmp_path / "records", {"event": "start"})
    with (tmp_path / "records").open("a") as out:
        out.write('{"event": "st')
        out.flush()
        assert file.read_new() == []
        out.write('ep"}\n')
    assert file.read_new() == [{"event": "step"}]


def test_what_is_no_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "records").write_text("nonsense\n")
    with pytest.raises(RecordsError, match="records: a line is not JSON"):
        RecordFile(tmp_path / "records").read_new()


def test_a_worker_that_ended_without_its_last_word_is_named(tmp_path: Path) -> None:
    file = write(tmp_path / "worker-0.jsonl", {"event": "start", "metric": "accuracy", "target": 0.95})
    with pytest.raises(RecordsError, match=r"worker-0\.jsonl has no 'final' record"):
        arm_result("clean", "ddp-gloo", 1, [file], [], NOTHING)


def test_progress_before_the_first_step(tmp_path: Path) -> None:
    state = progress("gradlane", 120, [RecordFile(tmp_path / "absent")], 0)
    assert (state.step, state.loss, state.delivered) == (0, None, 0)


def test_what_the_switches_counted_is_summed_and_what_stood_still_is_left_out() -> None:
    before = Reading(
        {("s1", "forwarded", 0, 0): (10, 1000), ("s2", "dropped_red", 5, 2): (1, 100)},
        {},
        {("s1", "s1", 1, 0): (5, 500)},
    )
    after = Reading(
        {
            ("s1", "forwarded", 0, 0): (10, 1000),
            ("s1", "dropped_red", 5, 2): (4, 400),
            ("s2", "dropped_red", 5, 2): (3, 300),
        },
        {("s2", 3, 16): (6, 600)},
        {("s1", "s1", 1, 0): (7, 800), ("s2", "s2", 1, 0): (0, 0)},
    )
    change = after.since(before)
    assert change.decisions == (Decision("dropped_red", 5, 2, 6, 600),)
    assert change.drop_map == (MapCell(3, 16, 6, 600),)
    assert change.tail_drops == (TailDrops("s1", 1, 0, 2, 300),)
    assert after.policy_drops == 7


def test_a_switch_that_died_counts_with_what_it_had_last_said() -> None:
    before = Reading({("s1", "dropped_red", 5, 2): (1, 100), ("s2", "dropped_red", 5, 2): (1, 100)}, {}, None)
    last = Reading({("s1", "dropped_red", 5, 2): (2, 200), ("s2", "dropped_red", 5, 2): (4, 400)}, {}, None)
    after = Reading({("s1", "dropped_red", 5, 2): (9, 900)}, {}, None)
    assert after.since(before).policy_drops == 8
    assert after.completed_by(last.of_switch("s2")).since(before).policy_drops == 8 + 3


def test_recovery_lasts_until_a_step_begins_that_is_as_short_as_those_after_it() -> None:
    steps = [0.1, 0.1, 0.9, 0.4, 0.2, 0.2, 0.2]
    result = dataclasses.replace(figures("gradlane", step_seconds=steps), failed_at=0.25)
    assert result.step_before_failure == pytest.approx(0.1)
    assert result.step_after_failure == pytest.approx(0.2)
    assert result.recovery_seconds == pytest.approx(1.5 - 0.25)
    assert dataclasses.replace(result, failed_at=None).recovery_seconds is None
    assert dataclasses.replace(result, failed_at=9.0).recovery_seconds is None
