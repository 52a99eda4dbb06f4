# SPDX-License-Identifier: Apache-2.0
"""The controller as a process with several switches, against P4Runtime servers that record what is written to them."""

import signal
import time
from functools import partial
from pathlib import Path

import pytest
from finsy.proto import p4r

from tests.gradlane_controller.controller_process import PATIENCE
from tests.gradlane_controller.controller_thread import PIPELINE
from tests.gradlane_controller.texts import job_text, leafspine_text
from tests.support.agents import pause

NAMES = "leaf1", "leaf2", "spine1", "spine2"
LEAF1, LEAF2, SPINE1, SPINE2 = range(4)
PORTS, JOBS = (PIPELINE.schema.tables[name].id for name in ("ports", "jobs"))


@pytest.fixture
def switches(make_fake_switch) -> list:
    return [make_fake_switch() for _ in range(4)]


@pytest.fixture
def run_controller(run_controller):
    """Without asking the ends of links: nothing that is sent to these switches arrives anywhere."""
    return partial(run_controller, more=("--no-link-check",))


@pytest.fixture
def fabric(switches) -> str:
    return leafspine_text(addresses=[switch.address for switch in switches])


def indices(switch) -> dict[int, int]:
    """Job index by job id, as the switch holds them."""
    jobs = [entity.table_entry for entity in switch.entities.values() if entity.table_entry.table_id == 0x02000008]
    return {
        int.from_bytes(entry.match[0].exact.value, "big"): int.from_bytes(entry.action.action.params[0].value, "big")
        for entry in jobs
    }


def test_every_switch_gets_its_own_state(switches, fabric: str, run_controller) -> None:
    it = run_controller(fabric, job_text(hosts=(1, 3)))
    assert "switches leaf1, leaf2, spine1, spine2, jobs: 1" in it.wait_for("ready:")
    status = it.ask("GET", "/status")[1]
    assert status["ready"]
    assert [each["name"] for each in status["switches"]] == ["leaf1", "leaf2", "spine1", "spine2"]
    assert [sum(each["entries"].values()) for each in status["switches"]] == [len(each.entities) for each in switches]
    assert len(switches[LEAF1].entities) > len(switches[SPINE1].entities) > 10
    held = [dict(each.entities) for each in switches]
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(2, 4), base=4096))[0] == 200
    assert [indices(each) for each in switches] == [{1: 1, 2: 2}] * 4
    assert it.ask("DELETE", "/jobs/other")[0] == 200
    assert [each.entities for each in switches] == held


def test_a_restarted_controller_writes_nothing(switches, fabric: str, run_controller) -> None:
    first, second = job_text(hosts=(1, 3)), job_text("other", 2, hosts=(2, 4), base=4096)
    it = run_controller(fabric, first, second)
    it.wait_for("ready:")
    assert it.ask("DELETE", "/jobs/demo")[0] == 200
    assert it.end(signal.SIGKILL) == -signal.SIGKILL
    written = [list(each.log) for each in switches]
    # The job that is left keeps its index 2, though it is the only one now.
    again = run_controller(fabric, second)
    again.wait_for("ready:")
    assert [each.log for each in switches] == written
    assert again.ask("GET", "/status")[1]["jobs"][0]["index"] == 2
    # The first one comes back with the index that is free.
    assert again.ask("POST", "/jobs", first)[0] == 200
    assert indices(switches[SPINE1]) == {1: 1, 2: 2}


def test_an_index_begins_anew_for_another_job(switches, fabric: str, run_controller) -> None:
    it = run_controller(fabric, job_text(hosts=(1, 3)))
    it.wait_for("ready:")
    forwarded, other = (0x12000001, 1 << 11), (0x12000001, 2 << 11)
    switches[LEAF1].counters = {forwarded: (9, 900), other: (5, 500)}
    it.end()
    it = run_controller(fabric, job_text(hosts=(1, 3)))
    it.wait_for("ready:")
    assert switches[LEAF1].counters[forwarded] == (9, 900)  # the same job goes on
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(2, 4), base=4096))[0] == 200
    assert switches[LEAF1].counters == {forwarded: (9, 900), other: (0, 0)}


def test_a_switch_that_is_away_stops_only_what_needs_it(switches, fabric: str, run_controller) -> None:
    it = run_controller(fabric, job_text(hosts=(1, 2)))
    it.wait_for("ready:")
    for each in (LEAF2, SPINE1):
        switches[each].stop()
        it.wait_for("can't be reached")
    status = it.ask("GET", "/status")[1]
    assert not status["ready"]
    for name in ("ready", "up_to_date"):
        assert [each[name] for each in status["switches"]] == [True, False, False, True]
    counters = it.ask("GET", "/counters")
    assert counters[0] == 200
    assert counters[1]["away"] == ["leaf2", "spine1"]
    # A rank at leaf2: refused by name, and nothing is written.
    written = list(switches[LEAF1].log)
    status, answer = it.ask("POST", "/jobs", job_text("other", 2, hosts=(1, 3), base=4096))
    assert status == 503
    assert f"switch 'leaf2' at {switches[LEAF2].address} is not connected" in answer["error"]
    assert switches[LEAF1].log == written
    # A spine that is away does not matter; it gets its part when it is back.
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(1, 2), base=4096))[0] == 200
    assert indices(switches[LEAF1]) == {1: 1, 2: 2}
    for each, name in ((LEAF2, "leaf2"), (SPINE1, "spine1")):
        switches[each].forget()
        switches[each].start()
        it.wait_for(f"converged {name}")
    assert indices(switches[SPINE1]) == indices(switches[LEAF2]) == {1: 1, 2: 2}
    assert it.ask("GET", "/status")[1]["ready"]


def test_a_controller_starts_without_a_switch_that_is_away(
    switches,
    fabric: str,
    run_controller,
) -> None:
    switches[SPINE2].stop()
    it = run_controller(fabric, job_text(hosts=(1, 3)))
    assert f"not ready: switch 'spine2' at {switches[SPINE2].address}: can't be reached" in it.wait_for("ready:")
    assert indices(switches[SPINE1]) == {1: 1}
    switches[SPINE2].start()
    it.wait_for("converged spine2")
    assert indices(switches[SPINE2]) == {1: 1}


def test_without_any_switch_it_names_them_all_and_goes_on_with_the_first_that_comes(
    switches, fabric: str, run_controller
) -> None:
    for each in switches:
        each.stop()
    it = run_controller(fabric)
    line = it.wait_for("waiting for")
    for name, switch in zip(("leaf1", "leaf2", "spine1", "spine2"), switches, strict=True):
        assert f"switch '{name}' at {switch.address}: " in line
    unreachable = [
        f"switch '{name}' at {switch.address}: can't be reached" for name, switch in zip(NAMES, switches, strict=True)
    ]
    wait(lambda: [each["problem"] for each in it.ask("GET", "/status")[1]["switches"]] == unreachable)
    switches[SPINE1].start()
    assert f"not ready: switch 'leaf1' at {switches[LEAF1].address}: " in it.wait_for("ready:")
    assert switches[SPINE1].entities


def test_what_one_switch_refuses_is_taken_back_at_all(switches, fabric: str, run_controller) -> None:
    it = run_controller(fabric, job_text(hosts=(1, 3)))
    it.wait_for("ready:")
    held = [dict(each.entities) for each in switches]
    switches[SPINE2].refuse = lambda entity: entity.table_entry.table_id == 0x02000008
    status, answer = it.ask("POST", "/jobs", job_text("other", 2, hosts=(2, 4), base=4096))
    assert status == 503
    assert f"switch 'spine2' at {switches[SPINE2].address}: refused" in answer["error"]
    assert [each.entities for each in switches] == held
    assert [job["name"] for job in it.ask("GET", "/status")[1]["jobs"]] == ["demo"]


def test_a_second_controller_takes_over_every_switch_with_its_jobs_indices(
    switches,
    fabric: str,
    run_controller,
) -> None:
    jobs = (job_text(hosts=(1, 3)), job_text("other", 2, hosts=(2, 4), base=4096))
    first = run_controller(fabric, jobs[1])
    first.wait_for("ready:")
    assert first.ask("POST", "/jobs", jobs[0])[0] == 200
    assert indices(switches[LEAF1]) == {2: 1, 1: 2}
    second = run_controller(fabric, *jobs)
    for _ in switches:
        second.wait_for("stands by: ")
    assert second.ask("DELETE", "/jobs/demo")[0] == 503
    written = [list(each.log) for each in switches]
    first.end(signal.SIGKILL)
    second.wait_for("ready:")
    assert [each.log for each in switches] == written


def reload(it, tmp_path: Path, fabric: str) -> None:
    (tmp_path / "fabric.toml").write_text(fabric)
    it.reload()


def test_a_link_comes_while_the_controller_runs(switches, fabric: str, run_controller, tmp_path: Path) -> None:
    it = run_controller(fabric)
    it.wait_for("ready:")
    one_more = '[[link]]\nends = ["leaf1:9", "leaf2:9"]\nrate = "1gbit"\nbuffer = "64kB"\n'
    reload(it, tmp_path, fabric + one_more)
    assert it.ask("GET", "/status")[1]["switches"][0]["entries"]["virtual_queue"] == 5


def test_switches_come_move_and_go_while_the_controller_runs(
    switches, make_fake_switch, run_controller, tmp_path: Path
) -> None:
    addresses = [each.address for each in switches]
    it = run_controller(leafspine_text(1, addresses[:3]), job_text(hosts=(1, 2)))
    it.wait_for("ready:")
    held = [dict(each.entities) for each in switches]
    assert not held[SPINE2]

    # A spine comes: it alone is filled first, then the leaves lead over it; the other spine gets nothing that it has.
    (tmp_path / "fabric.toml").write_text(leafspine_text(2, addresses))
    planned = {each["name"]: each for each in it.ask("GET", "/plan")[1]["switches"]}
    assert planned.keys() == {"leaf1", "leaf2", "spine1", "spine2"}
    assert {each["change"] for each in planned["spine2"]["changes"] if each["table"] != "virtual_queue"} >= {"insert"}
    assert len(planned["spine2"]["changes"]) == len(held[SPINE1])
    switches[SPINE2].refuse = lambda entity: entity.table_entry.table_id == JOBS
    reload(it, tmp_path, leafspine_text(2, addresses))
    it.wait_for("refused")
    assert not routes(switches[LEAF1], 2)
    assert not routes(switches[LEAF2], 2)
    switches[SPINE2].refuse = lambda _entity: False
    it.wait_for("converged spine2")
    settled = partial(wait_until_settled, it)
    wait(lambda: routes(switches[LEAF1], 2) and routes(switches[LEAF2], 2))
    settled()
    assert len(switches[SPINE2].entities) == len(held[SPINE1])

    # It moves: the new place gets all, the old one keeps what it had.
    other = make_fake_switch()
    held = [dict(each.entities) for each in switches]
    written = [list(each.log) for each in switches]
    reload(it, tmp_path, leafspine_text(2, [*addresses[:3], other.address]))
    assert f"switch 'spine2' at {addresses[SPINE2]}: the session has ended, and the switch keeps" in said(it)
    it.wait_for("converged spine2")
    wait(lambda: other.entities == held[SPINE2])
    wait(lambda: [each.entities for each in switches] == held)
    settled()
    assert [each.log for each in (switches[SPINE1], switches[SPINE2])] == [written[SPINE1], written[SPINE2]]

    # The first spine goes: the second keeps its number, so nothing that names it changes.
    without = leafspine_text(2, [*addresses[:3], other.address])
    without = without.replace(f'[[switch]]\nname = "spine1"\naddress = "{addresses[SPINE1]}"\n', "")
    without = "[[link]]".join(part for part in without.split("[[link]]") if "spine1" not in part)
    written, before = list(switches[SPINE1].log), len(other.log)
    (tmp_path / "fabric.toml").write_text(without)
    planned = {each["name"]: each for each in it.ask("GET", "/plan")[1]["switches"]}
    assert planned["spine1"]["problem"] == "it would leave the fabric, with what it holds"
    # A leaf takes nothing from it any more only when the other one, though slow, sends it nothing any more.
    early: list[bool] = []

    def note(entity: p4r.Entity) -> bool:
        if entity.table_entry.table_id == PORTS and entity.table_entry.match[0].exact.value == b"\x05":
            early.append(routes(switches[LEAF1], 2))
        return False

    switches[LEAF1].refuse = lambda _entity: bool(time.sleep(0.2))
    switches[LEAF2].refuse = note
    reload(it, tmp_path, without)
    assert early == [False]
    assert f"switch 'spine1' at {addresses[SPINE1]}: the session has ended, and the switch keeps" in said(it)
    assert [each["name"] for each in it.ask("GET", "/status")[1]["switches"]] == ["leaf1", "leaf2", "spine2"]
    assert switches[SPINE1].log == written
    assert other.log[before:] == ["MODIFY table_entry"] * 3  # it has the whole budget, and leaves choose no more
    assert switches[SPINE1].entities == held[SPINE1]
    # ... also after a restart.
    held = [dict(each.entities) for each in (switches[LEAF1], switches[LEAF2], other)]
    assert it.end() == 0
    run_controller(without, job_text(hosts=(1, 2))).wait_for("ready:")
    assert [each.entities for each in (switches[LEAF1], switches[LEAF2], other)] == held


def routes(switch, ways: int) -> bool:
    """Whether a switch spreads over so many."""
    groups = [it.table_entry.action.action_profile_action_set for it in switch.entities.values()]
    return max(len(group.action_profile_actions) for group in groups) == ways


def wait_until_settled(it) -> None:
    """Until every switch holds the latest plan."""
    wait(lambda: all(each["ready"] and each["up_to_date"] for each in it.ask("GET", "/status")[1]["switches"]))


def said(it) -> str:
    return "\n".join(it.said)


def wait(condition) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + PATIENCE
        pause(begun)
