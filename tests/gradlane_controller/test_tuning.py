# SPDX-License-Identifier: Apache-2.0
"""What a tuning changes of what switches hold: the job's own entries alone, and never more than the bounds leave."""

import dataclasses

import pytest
from finsy import P4MeterEntry, P4TableEntry
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane import job
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.topology import whole
from gradlane_controller.policy import Entity, desired_entities
from gradlane_controller.policy.tuning import Limits, Tuning, limits_of
from gradlane_controller.policy.usage import Usage
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text, summed_text
from tests.support.effort import tries

BOUNDS = "[adaptive]\nleast_threshold = 0.05\nmost_threshold = 0.6\ndroppable = 0.125\ntolerance = 0.25\n"
LOSS = "[loss]\npush = 0.1\n"
JOB = job.parse(job_text(hosts=(1, 2)) + LOSS, "job.toml")
OTHER = job.parse(job_text("other", 2, hosts=(3, 4), base=4096) + LOSS, "other.toml")
BESIDE = job.parse(job_text("beside", 3, hosts=(2, 3), base=8192) + LOSS, "beside.toml")  # at h2, too


def fabric(bounds: str = BOUNDS, text: str = "") -> Fabric:
    return fabric_file.parse((text or fabric_text()) + bounds, "fabric.toml")


def entries(tunings: dict[str, Tuning], *jobs: job.Job, where: Fabric | None = None) -> dict[str, list[Entity]]:
    return desired_entities(where or fabric(), jobs or (JOB, OTHER), tunings=tunings)


def queues(entities: list[Entity]) -> dict[int, tuple[int, int]]:
    """Yellow and red of each port, in bytes."""
    return {
        it.index: (it.config.cburst, it.config.pburst)
        for it in entities
        if isinstance(it, P4MeterEntry) and it.meter_id == "virtual_queue" and it.config is not None
    }


def droppable(entities: list[Entity], number: int) -> dict[int, tuple[int, int]]:
    """The magnitudes of each drop precedence of a job."""
    found = (dict(it.match or {}) | it.action.args for it in entities if _is_row(it))
    return {row["drop_precedence"]: row["magnitude"] for row in found if row["job"] == number}


def _is_row(it: Entity) -> bool:
    return isinstance(it, P4TableEntry) and it.table_id == "drop_precedences"


def limits(it: job.Job, *jobs: job.Job, where: Fabric | None = None) -> Limits:
    found = where or fabric()
    return limits_of(found, Usage(found, whole(found), jobs or (it,)), it)


def test_thresholds_of_a_jobs_own_ports_are_doubled_and_halved_within_the_bounds() -> None:
    plain = (16_000, 32_000)
    for steps, wanted in (
        (1, (32_000, 64_000)),
        (2, (38_400, 64_000)),  # 0.6 of 64 kB; red is no more than the buffer
        (7, (38_400, 64_000)),
        (-1, (8_000, 16_000)),
        (-2, (4_000, 8_000)),
        (-3, (3_200, 6_400)),
        (-9, (3_200, 6_400)),
    ):
        found = queues(entries({"demo": Tuning(threshold=steps)})["s1"])
        assert found == {1: wanted, 2: wanted, 3: plain, 4: plain}, steps
    assert limits(JOB).threshold == (-3, 2)


def test_a_port_that_another_job_uses_has_the_thresholds_of_the_file() -> None:
    found = queues(entries({"demo": Tuning(threshold=1)}, JOB, BESIDE)["s1"])
    assert found == {1: (32_000, 64_000), 2: (16_000, 32_000), 3: (16_000, 32_000), 4: (16_000, 32_000)}


def test_thresholds_never_fall_below_a_frame_of_the_job() -> None:
    small = fabric_text().replace('buffer = "64kB"', 'buffer = "8kB"')
    least = "[adaptive]\nleast_threshold = 0.001\nmost_threshold = 0.6\n"
    found = queues(entries({"demo": Tuning(threshold=-9)}, JOB, where=fabric(least, small))["s1"])
    assert found[1] == (1510, 3020)  # 1432 bytes, and headers of Gradlane, UDP, IPv4 (64) and Ethernet (14)
    assert found[3] == (2000, 4000)


def test_thresholds_that_are_derived_are_tuned_too_and_bounds_include_them() -> None:
    deep = leafspine_text().replace('buffer = "64kB"', 'buffer = "1MB"')  # yellow after 2.5 ms: 31,250 bytes
    where = fabric("[adaptive]\nleast_threshold = 0.1\nmost_threshold = 0.2\n", deep)
    across = job.parse(job_text(hosts=(1, 3)), "job.toml")
    for steps, yellow in ((0, 31_250), (-1, 31_250), (1, 62_500), (2, 125_000), (3, 200_000), (4, 200_000)):
        found = entries({"demo": Tuning(threshold=steps)}, across, where=where)
        assert {queues(found[name])[5][0] for name in ("leaf1", "leaf2")} == {yellow}, steps
        assert queues(found["leaf1"])[2] == (31_250, 62_500)
    assert limits(across, where=where).threshold == (0, 3)


def test_protection_takes_the_largest_magnitudes_first() -> None:
    for steps, wanted in (
        (0, {3: (0, 63), 2: (64, 127)}),
        (1, {3: (0, 63), 2: (64, 95)}),
        (2, {3: (0, 63)}),
        (3, {3: (0, 31)}),
        (4, {3: (0, 31)}),  # an eighth of 256 stays droppable
        (-3, {3: (0, 63), 2: (64, 127)}),  # never what the file protects
    ):
        found = entries({"demo": Tuning(protection=steps)})["s1"]
        assert droppable(found, 1) == wanted, steps
        assert droppable(found, 2) == {3: (0, 63), 2: (64, 127)}


def test_protection_is_counted_from_what_a_file_lists_to_what_must_stay_droppable() -> None:
    assert limits(JOB).protection == (0, 3)  # 127 to 31
    without = job.parse(job_text().replace("[0, 63]", "[0, 20]").replace("[64, 127]", "[21, 40]"), "job.toml")
    assert limits(without).protection == (0, 0)  # less than a step


def test_a_tolerance_is_halved_as_the_bounds_say_and_only_where_there_is_one() -> None:
    assert limits(JOB).tolerance == (0, 2)
    assert limits(job.parse(job_text(), "job.toml")).tolerance == (0, 0)
    of_classes = job.parse(job_text() + "[[loss.classes]]\nlayers = [0, 3]\npush = 0.1\n", "job.toml")
    assert limits(of_classes).tolerance == (0, 2)
    where = fabric_file.parse(fabric_text(aggregation=True) + BOUNDS, "f")
    assert limits(job.parse(summed_text(1) + LOSS, "job.toml"), where=where).tolerance == (0, 0)


@pytest.mark.parametrize(
    ("bounds", "tuned"),
    [
        ("", ()),
        ("[adaptive]\ntolerance = 0.5\n", ("tolerance",)),
        ("[adaptive]\ndroppable = 0.0\n", ("protection",)),
        ("[adaptive]\nleast_threshold = 0.01\nmost_threshold = 0.99\n", ("threshold",)),
    ],
)
def test_only_what_has_bounds_is_tuned(bounds: str, tuned: tuple[str, ...]) -> None:
    where = fabric(bounds)
    found = limits(JOB, where=where)
    assert tuple(it.name for it in dataclasses.fields(found) if getattr(found, it.name) != (0, 0)) == tuned
    far = {"demo": Tuning(threshold=5, protection=5, tolerance=5)}
    if tuned in ((), ("tolerance",)):
        assert entries(far, where=where) == entries({}, where=where)


@settings(max_examples=tries(60), deadline=None)
@given(st.builds(Tuning, *3 * [st.integers(-40, 40)]), st.booleans())
def test_whatever_the_tuning_no_other_job_is_touched_and_nothing_more_may_be_dropped(it: Tuning, shared: bool) -> None:
    jobs = (JOB, BESIDE if shared else OTHER)
    plain, found = entries({}, *jobs)["s1"], entries({"demo": it}, *jobs)["s1"]
    changed = [entity for entity in [*plain, *found] if entity not in plain or entity not in found]
    for entity in changed:
        if isinstance(entity, P4MeterEntry):
            assert entity.meter_id == "virtual_queue"
            assert entity.index in ((1,) if shared else (1, 2))
        else:
            assert _is_row(entity)
            assert dict(entity.match or {})["job"] == JOB.id  # type: ignore[union-attr]
    before, after = droppable(plain, 1), droppable(found, 1)
    assert all(before[n][0] <= low <= high <= before[n][1] for n, (low, high) in after.items())
    assert after[3][1] >= 31
    for yellow, red in queues(found).values():
        assert 3_200 <= yellow <= 38_400
        assert yellow <= red <= 64_000


def test_tunings_of_jobs_that_are_not_there_change_nothing() -> None:
    assert entries({"gone": Tuning(threshold=1, protection=1)}) == entries({})
