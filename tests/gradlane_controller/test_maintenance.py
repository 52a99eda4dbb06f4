# SPDX-License-Identifier: Apache-2.0
"""A leaf-spine of gradlane-switch processes whose switches are drained, come and go: no packet of hosts is lost."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gradlane_controller.controller_process import PATIENCE, Running
from tests.gradlane_controller.leafspine_lab import Lab, decided, stream
from tests.gradlane_controller.texts import job_text, leafspine_text
from tests.support.agents import pause

pytestmark = pytest.mark.long


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    it = Lab(tmp_path)
    try:
        it.start()
        yield it
    finally:
        it.close()


def until(condition: Callable[[], object]) -> None:
    begun = time.monotonic()
    while not condition():
        assert time.monotonic() < begun + 2 * PATIENCE
        pause(begun)


def switch(it: Running, name: str) -> dict:
    return next(each for each in it.ask("GET", "/status")[1]["switches"] if each["name"] == name)


def links_up(it: Running) -> list[bool]:
    return [link["up"] for link in it.ask("GET", "/links")[1]["links"]]


def over(it: Running, name: str) -> int:
    """Slices that have gone through a switch."""
    return decided(it, "demo")[name, "forwarded"]


def test_a_drained_spine_is_killed_and_comes_back_and_no_packet_is_lost(lab: Lab, run_controller) -> None:
    job = job_text(hosts=(1, 3))
    it = run_controller(lab.fabric, job)
    it.wait_for("ready:", 120)
    with stream(lab) as slices:
        until(lambda: over(it, "spine1") > 20)
        status, answer = it.ask("POST", "/switches/spine1/drain")
        assert (status, answer["may_go"], answer["waits_for"], answer["hosts"]) == (200, True, [], [])
        before = over(it, "spine1")
        sent = slices.sent
        until(lambda: slices.sent > sent + 200)
        assert over(it, "spine1") == before
        # It stays so when the controller comes back, and when the switch does.
        it.end(signal.SIGKILL)
        it = run_controller(lab.fabric, job)
        it.wait_for("ready:", 120)
        assert switch(it, "spine1")["drained"]
        lab.switches["spine1"].stop()
        until(lambda: links_up(it) == [False, False, True, True])
        assert it.ask("POST", "/switches/spine1/undrain")[0] == 503
        lab.switches["spine1"].start()
        until(lambda: switch(it, "spine1")["ready"])
        until(lambda: all(links_up(it)))
        sent = slices.sent
        until(lambda: slices.sent > sent + 200)
        assert over(it, "spine1") == 0
        assert it.ask("POST", "/switches/spine1/undrain") == (200, {"switch": "spine1", "waits_for": []})
        until(lambda: over(it, "spine1") > 20)
    assert not slices.lost
    assert not switch(it, "spine1")["drained"]


def test_spines_come_and_go_with_the_fabric_file_and_no_packet_is_lost(
    lab: Lab, run_controller, tmp_path: Path
) -> None:
    addresses = [each.address for each in lab.switches.values()]

    def reload(fabric: str) -> None:
        (tmp_path / "fabric.toml").write_text(fabric)
        it.reload()

    it = run_controller(leafspine_text(1, addresses[:3]), job_text(hosts=(1, 3)))
    it.wait_for("ready:", 120)
    with stream(lab) as slices:
        until(lambda: over(it, "spine1") > 20)
        reload(lab.fabric)
        until(lambda: over(it, "spine2") > 20)
        only_second = lab.fabric.replace(f'[[switch]]\nname = "spine1"\naddress = "{addresses[2]}"\n', "")
        parts = only_second.split("[[link]]")
        reload("[[link]]".join(part for part in parts if "spine1" not in part))
        lab.switches["spine1"].stop()
        before, sent = over(it, "spine2"), slices.sent
        until(lambda: slices.sent > sent + 200)
        assert over(it, "spine2") >= before + 190
        reload(lab.fabric)
        lab.switches["spine1"].start()
        until(lambda: over(it, "spine1") > 20)
    assert not slices.lost


def test_a_switch_that_can_not_be_led_around_says_why(lab: Lab, run_controller) -> None:
    it = run_controller(lab.fabric, job_text(hosts=(1, 3)), job_text("other", 2, hosts=(3, 4), base=4096))
    it.wait_for("ready:", 120)
    assert it.ask("POST", "/switches/spine1/drain")[0] == 200
    status, answer = it.ask("POST", "/switches/spine2/drain")
    assert status == 409
    assert "there is no other way now between 'leaf1' and 'leaf2'" in answer["error"]
    status, answer = it.ask("POST", "/switches/leaf1/drain")
    assert (status, answer["may_go"]) == (200, False)
    assert (answer["hosts"], answer["jobs"]) == (["h1", "h2"], ["demo"])
    status, answer = it.ask("POST", "/switches/leaf9/drain")
    assert status == 404
    assert "no switch 'leaf9'; there are: leaf1, leaf2, spine1, spine2" in answer["error"]
    with stream(lab) as slices:
        until(lambda: slices.sent > 200)
    assert not slices.lost
