# SPDX-License-Identifier: Apache-2.0
"""Shared memory: sealed by the agent, divided by the training process."""

import fcntl
import gc
import itertools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gradlane.ipc import memory
from tests.support.effort import tries


def test_a_process_can_not_shrink_what_its_agent_has_mapped() -> None:
    descriptor = memory.create("test", 8192)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.close(descriptor)


class Arrays(RuleBasedStateMachine):
    """Arrays never overlap, keep their values while anything refers to them, and give their memory back."""

    def __init__(self) -> None:
        super().__init__()
        self.released: list[int] = []
        self.made = 0
        self.arena = memory.Arena(self.allocate, lambda region: self.released.append(region.number))
        self.arrays: list[tuple[np.ndarray, int]] = []

    def allocate(self, nbytes: int) -> memory.Region:
        descriptor = memory.create("test", nbytes)
        try:
            region = memory.Region(self.made, memory.Memory(descriptor, nbytes))
        finally:
            os.close(descriptor)
        self.made += 1
        return region

    @rule(nbytes=st.one_of(st.integers(0, 5000), st.integers(1 << 20, 6 << 20)), value=st.integers(0, 255))
    def make(self, nbytes, value) -> None:
        array = self.arena.empty((nbytes,), np.dtype(np.uint8))
        array[:] = value
        self.arrays.append((array, value))

    @rule(data=st.data())
    def drop(self, data) -> None:
        if self.arrays:
            del self.arrays[data.draw(st.integers(0, len(self.arrays) - 1))]

    @rule(data=st.data())
    def keep_only_a_view(self, data) -> None:
        if self.arrays:
            index = data.draw(st.integers(0, len(self.arrays) - 1))
            array, value = self.arrays[index]
            self.arrays[index] = (array[array.size // 2 :].reshape(-1, 1), value)

    @invariant()
    def values_stay_and_places_are_known(self) -> None:
        held = [(array, value) for array, value in self.arrays if array.size]
        places = sorted((array.ctypes.data, array.nbytes) for array, _ in held)
        assert all(start + nbytes <= following for (start, nbytes), (following, _) in itertools.pairwise(places))
        for array, value in held:
            # What lies apart is changed by nobody but who gives pages back: a look at each of these is enough.
            assert (array[::1024] == value).all()
            assert array[-1] == value
            assert self.arena.locate(array) is not None

    def teardown(self) -> None:
        self.arrays.clear()
        gc.collect()
        # What all of them had is there again, in as much memory as the arena keeps.
        array = self.arena.empty((1,), np.dtype(np.uint8))
        assert array.size == 1
        assert self.made - len(self.released) <= 1 + (256 << 20) // (4 << 20)


TestArrays = Arrays.TestCase
TestArrays.settings = settings(max_examples=tries(10, 150), stateful_step_count=30, deadline=None)


def test_other_arrays_and_parts_with_gaps_are_not_on_shared_memory() -> None:
    machine = Arrays()
    array = machine.arena.empty((10, 10), np.dtype(np.float32))
    assert machine.arena.locate(array) == (0, 0)
    assert machine.arena.locate(array[2:]) == (0, 80)
    assert machine.arena.locate(array[:, 2:]) is None
    assert machine.arena.locate(np.zeros(5)) is None


class Steps:
    """An arena on a clock that stands, with as little kept for ever as one region."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "_MOST_UNUSED", 4 << 20)
        self.machine, self.now = Arrays(), 0.0
        self.machine.arena._clock = lambda: self.now

    def step(self, *sizes: int) -> None:
        arrays = [self.machine.arena.empty((size,), np.dtype(np.uint8)) for size in sizes]
        assert len(arrays) == len(sizes)


def test_what_each_step_takes_and_drops_is_kept_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    for seconds in range(0, 300, 30):
        steps.now = seconds
        steps.step(5 << 20, 100, 9 << 20, (5 << 20) + seconds)
    assert (steps.machine.made, steps.machine.released) == (4, [])


def test_what_was_not_used_for_long_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = Steps(monkeypatch)
    steps.step(9 << 20, 11 << 20)
    for seconds in (30, 89, 91):
        steps.now = seconds
        steps.step(100)
        assert steps.machine.released == ([1] if seconds == 91 else [])


def test_little_arrays_leave_the_places_of_large_ones_whole() -> None:
    machine = Arrays()
    for nbytes in (5 << 20, 100):
        machine.make(nbytes, 1)
    machine.arrays.clear()
    machine.make(100, 2)
    machine.make(5 << 20, 3)
    machine.values_stay_and_places_are_known()
    assert machine.made == 2


def test_more_than_the_host_has_is_not_even_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """To try would be to have the kernel end other processes for it."""
    tried: list[int] = []
    monkeypatch.setattr(memory.os, "posix_fallocate", lambda _, __, nbytes: tried.append(nbytes))
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    with pytest.raises(OSError, match="has not so much memory"):
        memory.create("test", int(fields["MemTotal"].split()[0]) * 1024 + 1)
    assert not tried
    os.close(memory.create("test", 4096))
    assert tried == [4096]
