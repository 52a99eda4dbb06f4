# SPDX-License-Identifier: Apache-2.0
"""What concerns several shards of a job at a host happens at all of them, or at none."""

import contextlib
import os
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.client.handle import Completions
from gradlane.client.link import Link
from gradlane.datapath.processes import Process
from gradlane.datapath.tensors import Tensors
from gradlane.errors import AgentError
from gradlane.ipc import memory
from tests.gradlane.core.test_exchange import SLICE, Host, host


class Shard:
    """As Process and Tensors have it."""

    def __init__(self, at: Host) -> None:
        self.at = at

    @contextlib.contextmanager
    def locked(self) -> Iterator[Any]:
        with self.at.locked():
            yield self.at.exchange


def test_a_tensor_of_which_a_part_is_in_flight_stays_whole() -> None:
    release: Any = Tensors._release
    with host(workers=2) as idle, host(workers=2) as busy:
        for at in (idle, busy):
            at.thread.start()
            at.tensor(np.ones(SLICE // 2, np.float32))
        tensor = SimpleNamespace(number=0, parts=[(Shard(idle), 0), (Shard(busy), 0)])
        busy.submit(kind=lib.GL_COMMAND_TENSOR, target=0)
        busy.other.recv(65536)  # it has begun
        assert not release(tensor)
        with idle.locked():
            assert lib.gl_exchange_idle(idle.exchange, 0)
        assert release(SimpleNamespace(number=0, parts=tensor.parts[:1]))
        assert not release(SimpleNamespace(number=0, parts=tensor.parts[:1]))


def test_a_region_that_a_shard_does_not_let_go_stays_at_all() -> None:
    with host() as first, host() as second:
        for at in (first, second):
            at.thread.start()
        process = Process(0, lambda message, descriptors: None, [Shard(first), Shard(second)])  # pyright: ignore[reportArgumentType]
        descriptor = memory.create("region", memory.PAGE)
        try:
            number = process.add(memory.Memory(descriptor, memory.PAGE))
        finally:
            os.close(descriptor)
        with second.locked():
            assert lib.gl_exchange_release_region(second.exchange, 0, number) == 0
        with pytest.raises(ValueError, match=f"region {number}"):
            process.release(number)
        with first.locked():
            assert lib.gl_exchange_release_region(first.exchange, 0, number) == 0, "the first shard has it no more"


def test_what_has_parts_is_submitted_to_all_channels_or_to_none() -> None:
    link: Any = object.__new__(Link)
    link._submitting, link.check = threading.Lock(), lambda: None
    link.channels = []
    for _ in range(2):
        descriptor = memory.create("channel", lib.gl_channel_bytes())
        kicks, kick = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        shared = memory.Memory(descriptor, lib.gl_channel_bytes())
        link.channels.append(Completions(shared, kick, lambda: AgentError("the end"), lambda _: AgentError("lost")))
        os.close(descriptor)
        os.close(kicks)
    command = ffi.new("gl_command *", {"kind": lib.GL_COMMAND_COLLECTIVE})
    kept = [link.submit(command, (), shard=1) for _ in range(lib.GL_SLOTS)]
    with pytest.raises(AgentError, match="operations are in flight"):
        link.submit_parts(command, [0, 1])
    assert lib.gl_client_room(link.channels[0].client) == lib.GL_SLOTS
    assert len(kept) == lib.GL_SLOTS
    for channel in link.channels:
        channel.fail()
