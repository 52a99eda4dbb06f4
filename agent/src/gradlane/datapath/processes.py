# SPDX-License-Identifier: Apache-2.0
"""A local process at its agent: its channels, one to each shard, and the regions of memory that it shares."""

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradlane._core import lib
from gradlane.datapath.shard import Shard
from gradlane.errors import AgentError
from gradlane.ipc import memory
from gradlane.ipc.messages import Message

Tell = Callable[[Message, tuple[int, ...]], None]


@dataclass(frozen=True)
class _Channel:
    """The memory, and both ends of the pipe: with the writing one open it never ends."""

    descriptor: int
    shared: memory.Memory
    pipe: tuple[int, int]


class Process:
    """`tell` sends it a message and descriptors."""

    def __init__(self, number: int, tell: Tell, shards: Sequence[Shard]) -> None:
        self.tell = tell
        self.regions: dict[int, memory.Memory] = {}
        self._number = number
        self._shards = shards
        self._channels: list[_Channel] = []

    def open(self) -> None:
        """Makes its channels. Raises AgentError; `close` is to be called anyway."""
        nbytes = int(lib.gl_channel_bytes())
        for shard in self._shards:
            try:
                descriptor = memory.create("channel", nbytes)
            except OSError as error:
                raise AgentError(f"{nbytes} bytes of shared memory: {error.strerror}") from error
            pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            channel = _Channel(descriptor, memory.Memory(descriptor, nbytes), pipe)
            self._channels.append(channel)
            with shard.locked() as exchange:
                refused = lib.gl_exchange_open(exchange, self._number, channel.shared.pointer, pipe[0])
            if refused:
                raise AgentError("out of memory")

    @property
    def descriptors(self) -> tuple[int, ...]:
        """For the process, of each channel two; they stay this object's."""
        return tuple(fd for channel in self._channels for fd in (channel.descriptor, channel.pipe[1]))

    def add(self, region: memory.Memory) -> int:
        """The number of the region, from now on. Raises ValueError."""
        number = next(k for k in range(len(self.regions) + 1) if k not in self.regions)
        for k, shard in enumerate(self._shards):
            with shard.locked() as exchange:
                refused = lib.gl_exchange_region(exchange, self._number, number, region.pointer, region.nbytes)
            if refused:
                for before in self._shards[:k]:
                    with before.locked() as exchange:
                        lib.gl_exchange_release_region(exchange, self._number, number)
                raise ValueError(f"a process has at most {lib.GL_MAX_REGIONS} regions, and memory may be out")
        self.regions[number] = region
        return number

    def release(self, number: int) -> int:
        """Frees a region, at all shards or at none. Returns its bytes. Raises ValueError."""
        with contextlib.ExitStack() as all_locked:
            exchanges = [all_locked.enter_context(shard.locked()) for shard in self._shards]
            for k, exchange in enumerate(exchanges):
                if lib.gl_exchange_release_region(exchange, self._number, number):
                    for before in exchanges[:k]:  # they had it
                        region = self.regions[number]
                        lib.gl_exchange_region(before, self._number, number, region.pointer, region.nbytes)
                    raise ValueError(f"it releases region {number}, which it has not or still uses")
        return self.regions.pop(number).nbytes

    def close(self) -> None:
        """Gives back its descriptors. Nothing works on its memory any more."""
        for channel in self._channels:
            for descriptor in (channel.descriptor, *channel.pipe):
                os.close(descriptor)
