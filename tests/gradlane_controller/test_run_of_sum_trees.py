# SPDX-License-Identifier: Apache-2.0
"""The controller as a process: jobs that the switches of a leaf-spine sum, against servers that record what is written.

Which entries are right is asked in test_sum_trees.py; here it is when they are written, and what stays.
"""

import signal
import time
import urllib.request
from collections import Counter
from functools import partial

import pytest

from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.test_run import command
from tests.gradlane_controller.test_run_of_sums import SCHEMA, bases, epochs, trees
from tests.gradlane_controller.texts import leafspine_text, summed_text
from tests.support.agents import until

LEAF1, LEAF2, SPINE1, SPINE2 = range(4)
UP = {5: "spine1", 6: "spine2"}  # by ports of leaves
ROUTED = SCHEMA.counters["routed"].id
RATE = 100e6  # of every link
FEW, ALIKE = {"spine1": 4, "spine2": 12}, {"spine1": 8, "spine2": 8}


@pytest.fixture
def switches(make_fake_switch) -> list[FakeSwitch]:
    return [make_fake_switch() for _ in range(4)]


@pytest.fixture
def run_controller(run_controller, switches):
    """Nothing that is sent to these switches arrives anywhere, so links are not asked."""
    text = leafspine_text(addresses=[switch.address for switch in switches])
    fabric = text.replace('\naddress = "127', '\naggregation = true\naddress = "127')
    return partial(run_controller, fabric, more=("--no-link-check",))


def across(number: int) -> str:
    """A job of a host of each leaf."""
    text = summed_text(number, "sum_slots = 512", hosts=(number, 2 + number)).replace("mask = 63", "mask = 127")
    return text.replace(f"base = {64 * number}", f"base = {128 * number}")


def roots(it, number: int = 1) -> dict[str, int]:
    found = next(row for row in it.ask("GET", "/status")[1]["jobs"] if row["id"] == number)
    return found["sums"]["roots"]


def ways(switch: FakeSwitch, number: int = 1) -> dict[str, int]:
    """How many buckets go to each spine, as a leaf holds it."""
    return dict(Counter(UP[row["up"]] for row in trees(switch)[number].values()))


def test_all_switches_of_the_trees_get_their_parts_and_a_restarted_controller_writes_nothing(
    switches, run_controller
) -> None:
    it = run_controller(across(1), across(2))
    it.wait_for("ready:")
    assert [bases(each) for each in switches] == [{1: {0}, 2: {512}}] * 4
    (row, _) = it.ask("GET", "/status")[1]["jobs"]
    assert row["sums"] == {
        "switches": ["leaf1", "leaf2", "spine1", "spine2"], "slots": [0, 511], "roots": {"spine1": 8, "spine2": 8},
        "reason": "",
    }  # fmt: skip
    shown = command("status", *it.access).stdout
    assert "leaf1, leaf2 below spine1 (8 of 16), spine2 (8 of 16), slots 0 to 511" in shown
    # The second job keeps its slots, and every switch its epoch, though alone it would get the first ones.
    assert it.ask("DELETE", "/jobs/j1")[0] == 200
    assert it.end(signal.SIGKILL) == -signal.SIGKILL
    written = [list(each.log) for each in switches]
    it = run_controller(across(2))
    it.wait_for("ready:")
    assert [each.log for each in switches] == written
    assert [bases(each) for each in switches] == [{2: {512}}] * 4


def test_a_switch_that_has_lost_its_tables_gets_another_epoch_and_the_others_keep_theirs(
    switches, run_controller
) -> None:
    it = run_controller(across(1))
    it.wait_for("ready:")
    held, before = [dict(each.entities) for each in switches], [epochs(each) for each in switches]
    assert all(len(each) == 1 for each in before)
    for lost in (SPINE1, LEAF2):
        switches[lost].stop()
        it.wait_for("trying again")
        switches[lost].forget()
        switches[lost].start()
        it.wait_for("converged", 60)
        until(lambda: it.ask("GET", "/status")[1]["ready"] and roots(it) == {"spine1": 8, "spine2": 8})
    after = [epochs(each) for each in switches]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, False, True]
    assert [each.entities.keys() for each in switches] == [each.keys() for each in held]
    # One that has only been away keeps its own.
    switches[LEAF1].stop()
    it.wait_for("trying again")
    switches[LEAF1].start()
    it.wait_for("converged", 60)
    assert epochs(switches[LEAF1]) == after[LEAF1]


def test_a_job_that_comes_while_a_spine_is_away_goes_by_the_other_until_it_is_back(switches, run_controller) -> None:
    it = run_controller(across(1))
    it.wait_for("ready:")
    switches[SPINE1].stop()
    it.wait_for("trying again")
    assert roots(it) == {"spine1": 8, "spine2": 8}, "the links say nothing of that, and it goes on"
    assert it.ask("POST", "/jobs", across(2))[0] == 200
    assert [ways(switches[leaf], number) for leaf in (LEAF1, LEAF2) for number in (1, 2)] == [{"spine2": 16}] * 4
    switches[SPINE1].start()
    until(lambda: roots(it, 2) == {"spine1": 8, "spine2": 8})
    until(lambda: ways(switches[LEAF2], 2) == {"spine1": 8, "spine2": 8})
    assert bases(switches[SPINE1]) == {1: {0}, 2: {512}}


def test_a_job_that_gets_other_slots_is_told_by_the_epoch(switches, run_controller) -> None:
    it = run_controller(across(1))
    it.wait_for("ready:")
    before = epochs(switches[LEAF1])
    assert it.ask("DELETE", "/jobs/j1")[0] == 200
    assert it.ask("POST", "/jobs", across(2))[0] == 200
    assert epochs(switches[LEAF1]) == before, "another job's"
    assert it.ask("POST", "/jobs", across(1))[0] == 200
    assert bases(switches[SPINE2]) == {1: {512}, 2: {0}}
    assert epochs(switches[LEAF1]) != before


def send(switch: FakeSwitch, port: int, part: float) -> None:
    """From now on that port sends so much of its rate, in ordinary traffic."""
    (_, before), begun = switch.counters.get((ROUTED, port), (0, 0)), time.monotonic()

    def count() -> None:
        switch.counters[ROUTED, port] = 0, before + int(part * RATE / 8 * (time.monotonic() - begun))

    switch.count = count


def loads(it) -> dict[str, float | None]:
    return {
        end: load
        for link in it.ask("GET", "/links")[1]["links"]
        for end, load in zip(link["ends"], link["load"], strict=True)
    }


def test_buckets_leave_a_busy_spine_and_come_back(switches, run_controller) -> None:
    it = run_controller(across(1))
    it.wait_for("ready:")
    assert roots(it) == ALIKE
    send(switches[LEAF1], 5, 0.6)
    until(lambda: roots(it) == FEW)
    until(lambda: ways(switches[LEAF1]) == ways(switches[LEAF2]) == FEW)
    until(lambda: 0.59 * RATE < (loads(it)["leaf1:5"] or 0) < 0.61 * RATE)
    assert loads(it)["leaf2:5"] is None, "that switch has counted nothing"
    with urllib.request.urlopen(f"http://{it.http}/metrics") as found:
        text = found.read().decode()
    assert 'gradlane_controller_link_load_bits{port="5",switch="leaf1"}' in text
    assert 'gradlane_controller_sum_buckets{job="j1",root="spine1"} 4.0' in text
    assert "spine1 (4 of 16), spine2 (12 of 16)" in command("status", *it.access).stdout
    assert "leaf1:5 - spine1:1" in command("links", *it.access).stdout
    # What comes then goes by the same loads.
    assert it.ask("POST", "/jobs", across(2))[0] == 200
    assert roots(it, 2) == FEW
    send(switches[LEAF1], 5, 0.0)
    until(lambda: min(*roots(it).values(), *roots(it, 2).values()) >= 7)
    until(lambda: ways(switches[LEAF1]) == ways(switches[LEAF2]) == roots(it))


def test_a_switch_that_has_begun_to_count_anew_moves_nothing(switches, run_controller) -> None:
    it = run_controller(across(1))
    switches[LEAF1].counters[ROUTED, 5] = 0, 10**15
    it.wait_for("ready:")
    log = list(switches[LEAF1].log)
    until(lambda: loads(it)["leaf1:5"] == 0)
    switches[LEAF1].counters[ROUTED, 5] = 0, 0
    written = time.monotonic() + 6
    until(lambda: time.monotonic() > written)
    assert loads(it)["leaf1:5"] == 0
    assert switches[LEAF1].log == log
