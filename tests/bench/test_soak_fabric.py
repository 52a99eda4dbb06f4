# SPDX-License-Identifier: Apache-2.0
"""What a soak of the fabric sends, what it would find, and a short one."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.fabric import growth, soak, soak_worker
from bench.fabric.attacks import attacks
from gradlane.wire import Header, Kind
from lab.model.plan import HostPlan
from tests.support.effort import only_thorough
from tests.support.needs import needs_root

TENANT, VICTIM = HostPlan(7, "worker", "leaf1", 4), HostPlan(1, "worker", "leaf1", 1)


def test_each_attack_is_a_frame_of_its_own_that_a_port_takes() -> None:
    frames = attacks(TENANT, VICTIM, 1)
    assert len(set(frames.values())) == len(frames)
    assert all(14 + 28 <= len(frame) <= 1518 for frame in frames.values())


def test_what_claims_to_be_a_gradient_is_one_but_for_who_sends_it() -> None:
    frame = attacks(TENANT, VICTIM, 1)["gradients with a rank's address"]
    header = Header.unpack(frame[14 + 28 :])
    assert (header.kind, header.job, header.length) == (Kind.DATA, 1, len(frame) - 14 - 28 - 36)
    assert frame[26:30] == bytes([10, 0, 1, 2])


@pytest.mark.parametrize(("lost", "tolerance", "exceeded"), [((), 0.0, 0), ((0,), 0.0, 1), (range(25), 0.1, 1)])
def test_a_part_that_lacks_more_than_its_messages_may_is_found(
    lost: tuple[int, ...], tolerance: float, exceeded: int
) -> None:
    result = np.full((256, 256), 2, np.float32)  # the mean of 1 and 3
    result[list(lost), 7] = 3
    wrong = soak_worker.missing(result.reshape(-1), 2)
    assert (int(wrong.sum()), soak_worker.violations(wrong, 2, tolerance)) == (len(lost), exceeded)


def test_losses_within_the_budget_of_a_part_are_none() -> None:
    wrong = np.zeros(256, bool)
    wrong[:12] = wrong[128:140] = True
    assert soak_worker.violations(wrong, 2, 0.1) == 0


def test_a_process_that_grows_is_found() -> None:
    usage: list[growth.Usage] = [{"a": (100 << 20, 10), "b": (1 << 30, 10), "c": (1 << 20, 1)} for _ in range(9)]
    usage[0]["a"] = (1, 1)  # at first everything grows
    usage[7]["a"] = (200 << 20, 10)
    usage[8]["b"] = (1 << 30, 2000)
    found = growth.grown(growth.held(usage))
    assert [text.split(",")[0] for text in found] == ["a holds 209", "b holds 2"]
    assert growth.held(usage[:2]) == {}


@only_thorough("starts a fabric and its jobs for one attack")
@needs_root
@pytest.mark.alone
def test_an_attack_ends_no_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soak, "_WINDOW_SECONDS", 4.0)
    assert soak.main(["--seconds", "1", "--json", "--out", str(tmp_path)]) == 0
    [report] = json.loads(capsys.readouterr().out)["runs"]
    assert report["failures"] == []
    assert all(steps > 0 for window in report["windows"] for steps in window["steps"].values())
