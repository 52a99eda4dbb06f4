# SPDX-License-Identifier: Apache-2.0
"""What a soak of the fabric sends."""

from bench.fabric.attacks import attacks
from gradlane.wire import Header, Kind
from lab.model.plan import HostPlan

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
