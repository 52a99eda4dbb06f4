# SPDX-License-Identifier: Apache-2.0
"""Shared memory between an agent and its training processes.

The agent makes it and seals its size: a process that shrank it would kill the agent with SIGBUS.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import sys
import time
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane._core import ffi

ALIGNMENT = 64  # a cache line
PAGE = mmap.PAGESIZE
_MADV_POPULATE_WRITE = 23  # of Linux, not in the mmap module
_MAPPED_AT_ONCE = 32 << 20
# The least that an arena asks for, and the unit of what is larger, so that arrays of about the same size fit.
_LEAST_REGION, _UNIT = 4 << 20, 2 << 20
# Wholly unused memory is kept for later: so much of it, and what was in use within so many seconds.
_MOST_UNUSED, _KEPT_SECONDS = 256 << 20, 60.0


def aligned(nbytes: int, unit: int) -> int:
    """The least multiple of `unit` that is no less."""
    return -(-nbytes // unit) * unit


class Memory:
    """A mapping of shared memory. It is unmapped when nothing refers to it any more."""

    def __init__(self, descriptor: int, nbytes: int) -> None:
        # The pages are there (see `create`). Many are mapped at once, which costs far less than a fault for each; not
        # all, as no other thread of Python runs meanwhile.
        self.map = mmap.mmap(descriptor, nbytes)
        with contextlib.suppress(OSError):  # before Linux 5.14
            for start in range(0, nbytes, _MAPPED_AT_ONCE):
                self.map.madvise(_MADV_POPULATE_WRITE, start, min(_MAPPED_AT_ONCE, nbytes - start))
        self.nbytes = nbytes
        self.pointer = ffi.from_buffer("uint8_t[]", self.map, require_writable=True)
        self.address = int(ffi.cast("uintptr_t", self.pointer))

    def array(self, dtype: np.dtype[Any], count: int, offset: int = 0) -> npt.NDArray[Any]:
        """`count` elements from byte `offset` on, as a 1-D array on this memory."""
        return np.frombuffer(self.map, dtype, count, offset)


def create(name: str, nbytes: int) -> int:
    """A descriptor of `nbytes` of zeros, sealed. Raises OSError if memory is out."""
    if nbytes > _available():
        # The kernel would look for it by ending processes, of whomever.
        raise OSError(errno.ENOMEM, f"the host has not so much memory (MemAvailable is {_available()} bytes)")
    descriptor = os.memfd_create(f"gradlane-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, nbytes)
        os.posix_fallocate(descriptor, 0, nbytes)  # that memory is out shows now, and not as SIGBUS
        seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _available() -> int:
    """Bytes that the kernel can give without swapping."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return sys.maxsize  # before Linux 3.14


def kept(array: npt.NDArray[Any]) -> object:
    """What keeps an array's memory as it is while it is held: numpy resizes no array that is referred to, and none that
    a weak reference is to even if it is told not to count (refcheck=False)."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return array, weakref.ref(owner)


class Region:
    """Memory that a process has from its agent; `number` is how commands name it."""

    def __init__(self, number: int, memory: Memory) -> None:
        self.number = number
        self.memory = memory
        self.free = [(0, memory.nbytes)]  # (offset, bytes) of what is unused, ascending, never adjacent
        self.unused_since = 0.0  # if nothing of it is taken

    def smallest(self, nbytes: int) -> int:
        """Bytes of the smallest unused piece that holds `nbytes`; 0: there is none."""
        return min((length for _, length in self.free if length >= nbytes), default=0)

    def take(self, nbytes: int) -> int:
        """The offset of `nbytes` of the smallest unused piece that holds them; there is one."""
        smallest = self.smallest(nbytes)
        index = next(i for i, (_, length) in enumerate(self.free) if length == smallest)
        offset, length = self.free[index]
        self.free[index : index + 1] = [(offset + nbytes, length - nbytes)] if length > nbytes else []
        return offset

    def give(self, offset: int, nbytes: int, now: float) -> None:
        """Takes back what `take` gave."""
        insort(self.free, (offset, nbytes))
        merged: list[tuple[int, int]] = []
        for start, length in self.free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self.free = merged
        self.unused_since = now

    @property
    def unused(self) -> bool:
        """Whether nothing of it is taken."""
        return self.free == [(0, self.memory.nbytes)]


class _Block:
    """What an array of an arena is made on: numpy keeps it as the base of the array and of its views."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype[Any], region: Region) -> None:
        self.region = region  # keeps the mapping
        self.__array_interface__ = {"version": 3, "data": (address, False), "shape": shape, "typestr": dtype.str}


class Arena:
    """Arrays in shared memory, each given back when it and all its views are gone. Not thread-safe.

    What was given back is used again: a loop that drops what it made in the round before asks for nothing.
    """

    def __init__(
        self,
        allocate: Callable[[int], Region],
        release: Callable[[Region], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`allocate` makes a region of at least so many bytes, `release` gives it back to the agent."""
        self._allocate = allocate
        self._release = release
        self._clock = clock
        self._regions: list[Region] = []  # ascending by address
        self._returned: list[tuple[Region, int, int]] = []  # by the garbage collector, in whatever thread

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array of that shape; what it holds is not defined."""
        now = self._clock()
        while self._returned:
            region, offset, nbytes = self._returned.pop()
            region.give(offset, nbytes, now)
        nbytes = aligned(max(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, 1), ALIGNMENT)
        if nbytes >= _LEAST_REGION:
            nbytes = aligned(nbytes, _UNIT)
        region = self._find(nbytes)
        offset = region.take(nbytes)
        block = _Block(region.memory.address + offset, shape, dtype, region)
        weakref.finalize(block, self._returned.append, (region, offset, nbytes)).atexit = False
        self._trim(now)
        return np.asarray(block)

    def _find(self, nbytes: int) -> Region:
        """Where it fits best, so that little arrays leave the places of large ones whole."""
        fitting = [(length, region) for region in self._regions if (length := region.smallest(nbytes))]
        if fitting:
            return min(fitting, key=lambda found: found[0])[1]
        region = self._allocate(max(nbytes, _LEAST_REGION))
        insort(self._regions, region, key=lambda r: r.memory.address)
        return region

    def _trim(self, now: float) -> None:
        unused = [region for region in self._regions if region.unused]
        excess = sum(region.memory.nbytes for region in unused) - _MOST_UNUSED
        for region in sorted(unused, key=lambda r: r.unused_since):
            if excess <= 0 or now - region.unused_since < _KEPT_SECONDS:
                return
            excess -= region.memory.nbytes
            self._regions.remove(region)
            self._release(region)

    def locate(self, array: npt.NDArray[Any]) -> tuple[int, int] | None:
        """(region, byte offset) of a contiguous array on the arena's memory; None if it lies elsewhere."""
        address = array.ctypes.data
        index = bisect_right(self._regions, address, key=lambda r: r.memory.address) - 1
        if index < 0 or not array.flags.c_contiguous:
            return None
        region = self._regions[index]
        offset = address - region.memory.address
        return (region.number, offset) if offset + array.nbytes <= region.memory.nbytes else None
