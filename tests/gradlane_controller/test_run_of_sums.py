# SPDX-License-Identifier: Apache-2.0
"""The controller as a process: jobs that a switch sums, their slots and what is counted of them."""

import json
import signal
from pathlib import Path

import pytest
from finsy import Action, Match, P4TableEntry

from gradlane_controller.desired import pipeline
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.test_run import command
from tests.gradlane_controller.texts import fabric_text, job_text, summed_text

SCHEMA = pipeline.load(pipeline.DEFAULT_FOLDER, pipeline.AGGREGATION).schema
SUMS, TREES = SCHEMA.counters["sums"].id, SCHEMA.tables["sum_trees"].id


def trees(switch: FakeSwitch) -> dict[int, dict[int, dict[str, int]]]:
    """What the switch holds in `sum_trees`, by job and bucket."""
    found: dict[int, dict[int, dict[str, int]]] = {}
    for entity in switch.entities.values():
        if entity.table_entry.table_id == TREES:
            entry = P4TableEntry.decode(entity, SCHEMA)
            found.setdefault(entry.match["job"], {})[entry.match["bucket"]] = entry.action.args
    return found


def bases(switch: FakeSwitch) -> dict[int, set[int]]:
    """The first slots by the numbers of jobs."""
    return {number: {it["slot_base"] for it in found.values()} for number, found in trees(switch).items()}


def epochs(switch: FakeSwitch) -> set[int]:
    return {it["epoch"] for found in trees(switch).values() for it in found.values()}


def slots(controller) -> dict[str, list[int] | None]:
    jobs = controller.ask("GET", "/status")[1]["jobs"]
    return {it["name"]: it["sums"] and it["sums"]["slots"] for it in jobs}


def test_slots_come_and_go_with_their_jobs_and_stay_over_a_restart(fake_switch, run_controller) -> None:
    fabric = fabric_text(fake_switch.address, aggregation=True)
    first = run_controller(fabric, summed_text(1), job_text("other", 9, base=8192))
    first.wait_for("ready:")
    before = dict(fake_switch.entities)
    assert first.ask("POST", "/jobs", summed_text(2)) == (200, {"job": "j2", "id": 2})
    assert slots(first) == {"j1": [0, 1023], "other": None, "j2": [1024, 2047]}
    assert bases(fake_switch) == {1: {0}, 2: {1024}}
    shown = command("status", *first.access).stdout
    assert "s1, slots 1024 to 2047" in shown
    held = dict(fake_switch.entities)
    assert first.ask("DELETE", "/jobs/j2")[0] == 200
    assert fake_switch.entities == before
    assert first.ask("POST", "/jobs", summed_text(2))[0] == 200
    assert fake_switch.entities == held
    assert first.end() == 0

    # Alone it would get the first ones, but those of a running job stay.
    fake_switch.log.clear()
    second = run_controller(fabric, job_text("other", 9, base=8192))
    second.wait_for("ready:")
    assert slots(second) == {"other": None, "j2": [1024, 2047]}
    assert bases(fake_switch) == {2: {1024}}
    assert set(fake_switch.log) <= {
        "DELETE table_entry",
        "DELETE packet_replication_engine_entry",
        "MODIFY table_entry",
    }
    assert second.ask("POST", "/jobs", summed_text(3))[0] == 200
    assert bases(fake_switch) == {2: {1024}, 3: {0}}


def test_slots_stay_when_another_controller_takes_over(fake_switch, run_controller) -> None:
    fabric = fabric_text(fake_switch.address, aggregation=True)
    first = run_controller(fabric, summed_text(1), summed_text(2))
    first.wait_for("ready:")
    assert bases(fake_switch) == {1: {0}, 2: {1024}}
    second = run_controller(fabric, summed_text(2))
    second.wait_for("stands by: ")
    assert slots(second) == {"j2": [0, 1023]}
    first.end(signal.SIGKILL)
    second.wait_for("converged")
    assert bases(fake_switch) == {2: {1024}}
    assert slots(second) == {"j2": [1024, 2047]}


@pytest.mark.parametrize(
    ("action", "arguments"),
    [
        ("no_slots", {}),
        (
            "sum_at",
            {"all": 1, "here": 1, "up": 0, "group": 1, "slot_base": 4095, "slot_mask": 4095, "own": 1}
            | {"address": 1, "epoch": 1},
        ),
    ],
)
def test_what_makes_no_sense_in_a_switch_is_put_right(
    fake_switch, run_controller, action: str, arguments: dict[str, int]
) -> None:
    fabric = fabric_text(fake_switch.address, aggregation=True)
    first = run_controller(fabric, summed_text(1))
    first.wait_for("ready:")
    held = dict(fake_switch.entities)
    assert first.end() == 0
    for number in [number for number, it in fake_switch.entities.items() if it.table_entry.table_id == TREES]:
        del fake_switch.entities[number]
    wrong = P4TableEntry("sum_trees", match=Match(job=1, bucket=9), action=Action(action, **arguments))
    fake_switch.put(wrong.encode(SCHEMA))
    run_controller(fabric, summed_text(1)).wait_for("ready:")
    assert fake_switch.entities.keys() == held.keys()
    assert bases(fake_switch) == {1: {0}}


def test_a_switch_that_is_full_refuses_the_next_job_by_name(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address, aggregation=True), summed_text(1, "sum_slots = 4096"))
    it.wait_for("ready:")
    held = dict(fake_switch.entities)
    status, answer = it.ask("POST", "/jobs", summed_text(2))
    assert status == 400
    assert "transport.sum_slots: is 1024, but" in answer["error"]
    assert "4096 of job 'j1'" in answer["error"]
    assert fake_switch.entities == held


def test_a_job_that_no_switch_sums_is_named_with_the_reason(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), summed_text(1))
    line = it.wait_for("job 'j1' is reduced by its hosts, not by a switch: ")
    assert line.endswith("fabric.toml"), line
    reason = line.split("by a switch: ")[1]
    assert reason.startswith("switch 's1' has no `aggregation = true` in ")
    it.wait_for("ready:")
    (row,) = it.ask("GET", "/status")[1]["jobs"]
    assert row["sums"] == {"switches": [], "slots": None, "roots": {}, "reason": reason}
    assert f"its hosts: {reason}" in command("status", *it.access).stdout
    assert it.ask("POST", "/jobs", job_text("other", 9, base=8192))[0] == 200
    assert sum("reduced by its hosts" in said for said in it.said) == 1, "it is said once"
    assert json.loads(command("counters", *it.access, "--json").stdout)["sums"] == []


def test_check_says_which_jobs_are_not_summed(tmp_path: Path) -> None:
    (tmp_path / "j.toml").write_text(summed_text(1))
    for aggregation in (True, False):
        (tmp_path / "f.toml").write_text(fabric_text(aggregation=aggregation))
        shown = command("check", "--fabric", str(tmp_path / "f.toml"), "--job", str(tmp_path / "j.toml")).stdout
        reason = (
            f"job 'j1' is reduced by its hosts, not by a switch: switch 's1' has no `aggregation = true` in {tmp_path}"
        )
        assert ("contributors" in shown, reason in shown) == (aggregation, not aggregation)


def test_sums_are_counted_by_job_and_by_what_became_of_them(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address, aggregation=True), summed_text(1))
    it.wait_for("ready:")
    counts = (60, 20, 3, 4, 5, 6, 7, 8, 9)
    fake_switch.counters = {(SUMS, 1 << 4 | event): (count, 100) for event, count in enumerate(counts)}
    fake_switch.counters |= {(SUMS, 6): (2, 100), (SUMS, 9 << 4): (5, 100)}  # of no job, and of none of this controller
    answer = json.loads(command("counters", *it.access, "--json").stdout)
    names = ("contribution", "result", "answer", "duplicate", "stale", "no_slots", "refused", "late", "partial")
    assert answer["sums"] == [
        {"switch": "s1", "job": None, "events": dict.fromkeys(names, 0) | {"refused": 2}},
        {"switch": "s1", "job": "j1", "events": dict(zip(names, counts, strict=True))},
    ]
    shown = command("counters", *it.access).stdout
    assert shown.splitlines()[-1].split() == ["s1", "j1", *map(str, counts)]
    # Another job with the same index counts from zero.
    assert it.ask("DELETE", "/jobs/j1")[0] == 200
    assert it.ask("POST", "/jobs", summed_text(2))[0] == 200
    answer = json.loads(command("counters", *it.access, "--json").stdout)
    assert [row["job"] for row in answer["sums"]] == [None]
