# SPDX-License-Identifier: Apache-2.0
"""The upgrade guide, command by command, on a leaf-spine that carries slices all the while: none is lost."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.guide import Machines, section, until
from tests.gradlane_controller.leafspine_lab import Lab, decided, stream, wait_until_whole
from tests.gradlane_controller.texts import job_text


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    lab = Lab(tmp_path)
    it = Machines(tmp_path, lab, job_text(hosts=(1, 3)))
    try:
        lab.start()
        yield it
    finally:
        it.close()
        lab.close()


def number(it: Machines) -> int:
    """Of who leads."""
    until(it.leader)
    leader = it.leader()
    assert leader is not None
    return leader.ask("GET", "/status")[1]["controller"]["number"]


def whole(it: Machines) -> None:
    """Every switch is ready, and every link works, as who leads has it."""
    until(it.leader)
    leader = it.leader()
    assert leader is not None
    wait_until_whole(leader)


def over(it: Machines, name: str) -> int:
    """Slices that have gone through a switch."""
    leader = it.leader()
    assert leader is not None
    return decided(leader, "demo")[name, "forwarded"]


def test_the_guide_is_followed_word_for_word_and_no_slice_is_lost(machines: Machines) -> None:
    it = machines
    it.start("c1")
    it.controllers["c1"].wait_for("ready:", 120)
    it.start("c2")
    whole(it)
    first = number(it)
    took: dict[str, float] = {}
    with stream(it.lab) as slices:
        until(lambda: over(it, "spine1") > 20 and over(it, "spine2") > 20)
        for title in ("Prepare", "Controllers", "Switches", "Go back"):
            commands = section(title)
            assert commands
            for command, comment in commands:
                began, sent = time.monotonic(), slices.sent
                if command.startswith("gradlane-controller status"):
                    whole(it)
                if command.startswith("gradlane-controller undrain"):
                    assert over(it, "spine1") == 0  # it was restarted, and has been led around since
                said = it.follow(command, comment)
                took[f"{command} {comment}"] = time.monotonic() - began
                if command.startswith(("gradlane-controller drain", "gradlane-controller undrain")):
                    assert said.strip() == comment
                until(lambda before=sent: slices.sent > before + 100)
            if title == "Controllers":
                assert number(it) > first
        assert number(it) > 1024 * (time.time() - 600)  # of the restored store
        until(lambda: over(it, "spine1") > 20)
    print("\n".join(f"{seconds:6.2f} s  {what}" for what, seconds in took.items()), f"\n{slices.sent} slices sent")
    assert slices.lost == []
