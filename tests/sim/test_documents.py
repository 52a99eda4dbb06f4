# SPDX-License-Identifier: Apache-2.0
"""The program's input: what the agent and the controller make of a user's files, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
from gradlane._core import ffi

from gradlane.datapath import engine
from gradlane.job.agreement import Agreement
from gradlane.job.costs import Conditions
from gradlane.job.racks import Racks
from gradlane_sim import fabrics, job_files
from gradlane_sim.carriers import Gradlane, Rival
from gradlane_sim.document import document
from gradlane_sim.errors import SpecificationError
from gradlane_sim.specification import Background, HostStops, Job, LinkChanges, Specification, SwitchDies, Tensor

G = 1_000_000_000
FABRIC = fabrics.leaf_spine(2, 3, 2, 10 * G, 10 * G, 200_000, 1000)
TENSOR = Tensor(0, 400_000, 1)


def job(**changes: Any) -> Job:
    return Job(**{"id": 1, "members": tuple(range(6)), "carrier": Gradlane(push=0.03), "tensors": (TENSOR,), **changes})


@pytest.mark.parametrize("slots", [256, 4096, 65536])
@pytest.mark.parametrize("carrier", [Gradlane(), Gradlane(push=0.03, pull=0.01), Gradlane(push=0.1, priority=False)])
def test_engines_are_configured_as_the_agent_does(carrier: Gradlane, slots: int) -> None:
    of_four = tuple(range(4))  # a power of two, where one more bit would be wrong
    racks = Racks((3, 0, 3, 1), 2.0)
    parsed = job_files.parse(job(carrier=replace(carrier, slots=slots), members=of_four), FABRIC, racks)
    agreement = Agreement(1, 1, carrier.slice_bytes, Conditions(10e9, 1e-5, racks=parsed.racks))
    config, _kept = engine._configuration(parsed, 0, agreement, 0, engine.MEMORY_BYTES, ffi.NULL)
    told = job_files.carrier(parsed)
    for name in ("window", "rate", "buffer", "memory", "slice_bytes"):
        assert getattr(config, name) == told[name], name
    assert bool(config.tag) == told["tag"]
    assert list(config.racks[0:4]) == told["racks"] == [3, 0, 3, 1]
    for name, count in (("classes", config.class_count), ("precedences", config.precedence_count)):
        rows = [config.__getattribute__(name)[n] for n in range(count)]
        assert [[it.first_layer, it.last_layer, it.least, it.most, it.value] for it in rows] == told[name], name
    losses = [config.losses[n] for n in range(config.loss_count)]
    assert [[it.first_layer, it.last_layer, it.push, it.pull] for it in losses] == told["losses"]


def test_racks_are_the_controllers_where_the_core_is_thin() -> None:
    """Half of what hosts send can leave a leaf."""
    thin = fabrics.leaf_spine(2, 4, 2, 10 * G, 10 * G, 200_000, 1000)
    (found,) = document(Specification(thin, (job(members=(5, 1, 0, 6)),)))["jobs"]
    assert found["carrier"]["racks"] == [1, 0, 0, 1]
    wide = fabrics.leaf_spine(4, 2, 2, 10 * G, 20 * G, 200_000, 1000)
    (found,) = document(Specification(wide, (job(members=tuple(range(8))),)))["jobs"]
    assert found["carrier"]["racks"] == []


def test_what_may_be_dropped_is_the_part_that_was_asked_for() -> None:
    for part in (0.1, 0.5, 1.0):
        parsed = job_files.parse(job(carrier=Gradlane(push=0.03, droppable=part)), FABRIC)
        rows = sorted(it.magnitudes for it in parsed.policy.drop_precedences)
        covered = [magnitude for first, last in rows for magnitude in range(first, last + 1)]
        assert covered == list(range(round(256 * part)))


def test_the_lossless_mode_protects_everything() -> None:
    found = document(Specification(FABRIC, (job(carrier=Gradlane()),)))
    assert found["jobs"][0]["carrier"]["precedences"] == []
    assert all(not it["precedences"] for row in found["policies"] for it in row["jobs"])


def test_a_document_has_everything_and_policies_of_every_switch() -> None:
    flows = ((0, 0, 1, 1000),)
    other = Background(Rival("tcp", (("congestion", "dctcp"), ("min_rto", 1000))), flows)
    faults = (HostStops(5, 10), LinkChanges(6, 8, 20, up=False))
    found = document(Specification(FABRIC, (job(),), 3, other, faults, 10**9))
    assert [row["switch"] for row in found["policies"]] == list(range(6, 10))
    assert found["seed"] == 3
    assert found["limit"] == 10**9
    assert found["background"] == {
        "carrier": {"kind": "tcp", "congestion": "dctcp", "min_rto": 1000},
        "flows": [[0, 0, 1, 1000]],
    }
    assert [it["kind"] for it in found["faults"]] == ["host", "link"]
    assert found["jobs"][0]["members"] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"id": 0}, "its number must be 1 to 65535"),
        ({"members": (0, 0)}, "a host has one rank"),
        ({"members": (0,), "servers": 1}, "it needs a worker"),
        ({"algorithm": "tree"}, "it must be one of direct, ring, stragglar"),
        ({"algorithm": "ring", "servers": 1}, "its algorithm must be direct"),
        ({"steps": 0}, "it must have 1 or more"),
        ({"tensors": ()}, "it must have 1 or more"),
        ({"tensors": (Tensor(0, 6, 0),)}, "a multiple of 4"),
        ({"tensors": (Tensor(5, 8, 0),)}, "ready after 5 ns of 0"),
        ({"delays": ((1, 2),)}, "one for each of 6"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_with_what_would(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecificationError, match=told):
        job(**changes)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"jobs": (job(), job())}, "each must have its own"),
        ({"jobs": (job(members=(0, 6)),)}, "hosts are 0 to 5"),
        ({"jobs": ()}, "nothing to simulate"),
        ({"faults": (HostStops(6, 0),)}, "hosts are 0 to 5"),
        ({"faults": (LinkChanges(6, 7, 0, up=False),)}, "nodes 6 and 7 have no link"),
        ({"faults": (SwitchDies(5, 0),)}, "switches are nodes 6 to 9"),
        ({"limit": 0}, "the limit is 0"),
        ({"background": Background(Rival("tcp"), ((0, 1, 1, 5),))}, "two of hosts 0 to 5"),
        ({"background": Background(Rival("tcp"), ((0, 0, 1, 0),))}, "neither may be negative"),
    ],
)
def test_a_specification_that_makes_no_sense_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecificationError, match=told):
        Specification(**{"fabric": FABRIC, "jobs": (job(),), **changes})


def test_what_the_controller_refuses_is_told_in_its_words() -> None:
    jobs = (job(), replace(job(), id=2))  # of the same budget slots
    with pytest.raises(SpecificationError, match="slots"):
        document(Specification(FABRIC, jobs))
