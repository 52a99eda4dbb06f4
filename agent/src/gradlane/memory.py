# SPDX-License-Identifier: Apache-2.0
"""Shared memory between an agent and its training processes.

The agent makes it and seals its size: a process that shrank it would kill the agent with SIGBUS.
"""

import fcntl
import mmap
import os
import weakref
from bisect import bisect_right, insort
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gradlane._core import ffi

ALIGNMENT = 64  # a cache line
PAGE = mmap.PAGESIZE
# The least that an arena asks for, and how much of wholly unused memory it keeps for later.
_LEAST_REGION = 4 << 20
_MOST_UNUSED = 256 << 20


def aligned(nbytes: int, unit: int) -> int:
    """The least multiple of `unit` that is no less."""
    return -(-nbytes // unit) * unit


class Memory:
    """A mapping of shared memory. It is unmapped when nothing refers to it any more."""

    def __init__(self, descriptor: int, nbytes: int) -> None:
        self.map = mmap.mmap(descriptor, nbytes)
        self.nbytes = nbytes
        self.pointer = ffi.from_buffer("uint8_t[]", self.map, require_writable=True)
        self.address = int(ffi.cast("uintptr_t", self.pointer))

    def array(self, dtype: np.dtype[Any], count: int, offset: int = 0) -> npt.NDArray[Any]:
        """`count` elements from byte `offset` on, as a 1-D array on this memory."""
        return np.frombuffer(self.map, dtype, count, offset)


def create(name: str, nbytes: int) -> int:
    """A descriptor of `nbytes` of zeros, sealed. Raises OSError if memory is out."""
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


class Region:
    """Memory that a process has from its agent; `number` is how commands name it."""

    def __init__(self, number: int, memory: Memory) -> None:
        self.number = number
        self.memory = memory
        self.free = [(0, memory.nbytes)]  # (offset, bytes) of what is unused, ascending, never adjacent

    def take(self, nbytes: int) -> int | None:
        """The offset of `nbytes` that were unused, or None."""
        for index, (offset, length) in enumerate(self.free):
            if length >= nbytes:
                self.free[index : index + 1] = [(offset + nbytes, length - nbytes)] if length > nbytes else []
                return offset
        return None

    def give(self, offset: int, nbytes: int) -> None:
        """Takes back what `take` gave."""
        insort(self.free, (offset, nbytes))
        merged: list[tuple[int, int]] = []
        for start, length in self.free:
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + length)
            else:
                merged.append((start, length))
        self.free = merged

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
    """Arrays in shared memory, each given back when it and all its views are gone. Not thread-safe."""

    def __init__(self, allocate: Callable[[int], Region], release: Callable[[Region], None]) -> None:
        """`allocate` makes a region of at least so many bytes, `release` gives it back to the agent."""
        self._allocate = allocate
        self._release = release
        self._regions: list[Region] = []  # ascending by address
        self._returned: list[tuple[Region, int, int]] = []  # by the garbage collector, in whatever thread

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """An array of that shape; what it holds is not defined."""
        self._settle()
        nbytes = aligned(max(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, 1), ALIGNMENT)
        if nbytes >= _LEAST_REGION:
            nbytes = aligned(nbytes, PAGE)
        region, offset = self._find(nbytes)
        block = _Block(region.memory.address + offset, shape, dtype, region)
        weakref.finalize(block, self._returned.append, (region, offset, nbytes)).atexit = False
        return np.asarray(block)

    def _find(self, nbytes: int) -> tuple[Region, int]:
        for region in self._regions:
            offset = region.take(nbytes)
            if offset is not None:
                return region, offset
        region = self._allocate(max(nbytes, _LEAST_REGION))
        insort(self._regions, region, key=lambda r: r.memory.address)
        offset = region.take(nbytes)
        assert offset is not None
        return region, offset

    def _settle(self) -> None:
        while self._returned:
            region, offset, nbytes = self._returned.pop()
            region.give(offset, nbytes)
        unused = [region for region in self._regions if region.unused]
        while sum(region.memory.nbytes for region in unused) > _MOST_UNUSED:
            region = unused.pop()
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
