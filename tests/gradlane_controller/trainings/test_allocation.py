# SPDX-License-Identifier: Apache-2.0
"""What a new job gets: never what another one has, and always something where something is left."""

import random
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane import job
from gradlane.job import Job
from gradlane.job.file import Slots
from gradlane_controller.trainings import allocation
from gradlane_controller.trainings.allocation import FullError, allocate
from tests.gradlane_controller.texts import job_text

SLOTS = 65536
PLAIN = job.parse(job_text(hosts=(1, 2)), "plain")


def wanted(workers: int, multicast: str | None) -> Job:
    """A job of so many ranks."""
    members = tuple(replace(PLAIN.workers[0], rank=rank, host=f"h{rank}") for rank in range(workers))
    address = None if multicast is None else ip_address(multicast)
    return replace(PLAIN, file="wanted", workers=members, transport=replace(PLAIN.transport, multicast=address))


def placed(jobs: list[Job], it: Job) -> Job:
    """It with what it gets beside the others."""
    found = allocate(jobs, it)
    return replace(
        it,
        id=found.id,
        name=f"j{found.id}",
        slots=found.slots,
        transport=replace(it.transport, multicast=found.multicast),
    )


def check(jobs: list[Job]) -> None:
    """By counting each slot and address that any has."""
    slots = [number for it in jobs for number in range(it.slots.base, it.slots.base + it.slots.mask + 1)]
    assert len(slots) == len(set(slots))
    assert all(0 <= number < SLOTS for number in slots)
    addresses = [it.transport.multicast + k for it in jobs if it.transport.multicast for k in range(len(it.workers))]
    assert len(addresses) == len(set(addresses))
    assert all(it.is_multicast for it in addresses)
    assert len({it.id for it in jobs}) == len(jobs)
    assert all(1 <= it.id <= 65535 for it in jobs)
    for it in (each for each in jobs if each.file == "wanted"):
        assert (it.slots.mask + 1).bit_count() == 1
        assert it.slots.mask + 1 >= len(it.workers)
        if it.transport.multicast:
            assert it.slots.mask >= 2 * len(it.workers)


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_jobs_come_and_go_in_any_order_and_never_share_anything(data: st.DataObject) -> None:
    jobs: list[Job] = []
    for _ in range(data.draw(st.integers(1, 40))):
        if jobs and data.draw(st.booleans()) and data.draw(st.booleans()):
            jobs.pop(data.draw(st.integers(0, len(jobs) - 1)))
        elif data.draw(st.integers(0, 5)) == 0:  # one of a job file, wherever it is free
            base, mask = data.draw(st.integers(0, 65000)), data.draw(st.sampled_from([0, 7, 511, 4095]))
            last = base + mask
            if last < SLOTS and all(last < it.slots.base or base > it.slots.last for it in jobs):
                number = next(it for it in range(1, 999) if it not in {each.id for each in jobs})
                jobs.append(replace(PLAIN, name=f"f{number}", id=number, slots=Slots(base, mask)))
        else:
            address = data.draw(st.sampled_from([None, "239.1.0.1", "239.1.0.3", "ff18::1"]))
            it = wanted(data.draw(st.integers(1, 64)), address)
            try:
                jobs.append(placed(jobs, it))
            except FullError:
                taken = {number for each in jobs for number in range(each.slots.base, each.slots.last + 1)}
                free = "".join(".x"[number in taken] for number in range(SLOTS))
                assert max(map(len, free.split("x"))) < 256  # what 64 ranks with multicast need
        check(jobs)


@pytest.mark.parametrize(("seed", "leaving"), [(1, 0.0), (2, 0.1), (3, 0.35)])
def test_255_jobs_fit_however_they_have_come_and_gone(seed: int, leaving: float) -> None:
    draw = random.Random(seed)
    jobs: list[Job] = []
    for _ in range(700):
        if jobs and draw.random() < leaving:
            jobs.pop(draw.randrange(len(jobs)))
        elif len(jobs) < 255:
            jobs.append(placed(jobs, wanted(2, None)))
    while len(jobs) < 255:
        jobs.append(placed(jobs, wanted(4, None)))
    check(jobs)
    with pytest.raises(FullError, match="255 jobs"):
        allocate(jobs, wanted(2, None))
    jobs.pop(draw.randrange(len(jobs)))
    jobs.append(placed(jobs, wanted(4, None)))
    check(jobs)


def test_alone_a_job_gets_as_many_slots_as_a_job_file_has_by_itself() -> None:
    assert allocate([], wanted(2, None)).slots == Slots(0, 4095)


def test_an_id_that_a_job_has_is_given_to_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "MAX_ID", 3)
    jobs = [replace(PLAIN, id=1, slots=Slots(0, 15)), replace(PLAIN, id=3, slots=Slots(16, 15))]
    assert {allocate(jobs, wanted(2, None)).id for _ in range(30)} == {2}


def test_what_does_not_fit_is_named() -> None:
    full = [replace(PLAIN, id=1, slots=Slots(0, SLOTS // 2 - 1)), replace(PLAIN, id=2, slots=Slots(32768, 32767))]
    with pytest.raises(FullError, match="no 16 budget slots in a row"):
        allocate(full, wanted(2, None))
    with pytest.raises(FullError, match="no 3 multicast addresses in a row are free from 239"):
        allocate([], wanted(3, "239.255.255.254"))
    nearly = [replace(PLAIN, id=1, slots=Slots(16, SLOTS // 2 - 1))]
    assert allocate(nearly, wanted(2, None)).slots.base == SLOTS // 2 + 16
    gaps = [replace(PLAIN, id=k + 1, slots=Slots(k * 512, 255)) for k in range(128)]
    assert allocate(gaps, wanted(2, None)).slots == Slots(256, 255)
