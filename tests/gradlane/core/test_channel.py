# SPDX-License-Identifier: Apache-2.0
"""The command ring and the completion words, both ends in one process."""

import mmap
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from gradlane._core import ffi, lib


class Channel:
    """Both ends of a channel."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, lib.gl_channel_bytes())
        self.pointer = ffi.from_buffer("uint8_t[]", self.memory, require_writable=True)
        self.kicks, kick = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.agent = lib.gl_channel_new(self.pointer, self.kicks)
        self.client = ffi.gc(lib.gl_client_new(self.pointer, kick), lib.gl_client_free)
        self.command = ffi.new("gl_command *")

    def submit(self, target: int = 0) -> int:
        return lib.gl_client_submit(self.client, ffi.new("gl_command *", {"kind": 1, "target": target}))

    def take(self) -> int:
        return lib.gl_channel_take(self.agent, self.command)

    def kicked(self) -> int:
        try:
            return len(os.read(self.kicks, 100))
        except BlockingIOError:
            return 0


@pytest.fixture
def channel() -> Iterator[Channel]:
    opened = Channel()
    yield opened
    lib.gl_channel_free(opened.agent)
    os.close(opened.kicks)


def test_commands_come_in_order_and_their_completions_are_seen(channel: Channel) -> None:
    for round_ in range(3):
        slots = [channel.submit(target) for target in range(lib.GL_SLOTS)]
        assert sorted(slots) == list(range(lib.GL_SLOTS))
        assert channel.submit() == -1, "only so many are in flight"
        for target, slot in enumerate(slots):
            assert channel.take() == 1
            assert (channel.command.target, channel.command.slot) == (target, slot)
            assert lib.gl_client_state(channel.client, slot) == lib.GL_PENDING
            lib.gl_channel_complete(channel.agent, slot, lib.GL_FAILED if round_ == 1 else lib.GL_DONE)
            assert lib.gl_client_state(channel.client, slot) == (lib.GL_FAILED if round_ == 1 else lib.GL_DONE)
            lib.gl_client_release(channel.client, slot)
        assert channel.take() == 0


def test_only_a_command_that_finds_the_agent_asleep_kicks(channel: Channel) -> None:
    channel.submit()
    assert channel.kicked() == 1
    channel.submit()
    assert channel.kicked() == 0, "it has not yet looked"
    assert (channel.take(), channel.take()) == (1, 1)
    channel.submit()
    assert channel.kicked() == 0, "it has not yet found the ring empty"
    assert (channel.take(), channel.take()) == (1, 0)
    channel.submit()
    assert channel.kicked() == 1


def test_a_wait_ends_with_the_completion_or_after_its_time(channel: Channel) -> None:
    slot = channel.submit()
    began = time.monotonic()
    assert lib.gl_client_wait(channel.client, slot, 20_000) < lib.GL_DONE
    assert time.monotonic() - began >= 0.015
    with ThreadPoolExecutor(2) as pool:
        waits = [pool.submit(lib.gl_client_wait, channel.client, slot, 10_000_000) for _ in range(2)]
        assert channel.take() == 1
        lib.gl_channel_complete(channel.agent, slot, lib.GL_DONE)
        assert [wait.result(60) for wait in waits] == [lib.GL_DONE] * 2


def test_of_as_many_commands_as_there_are_slots_one_has_to_be_done_before_the_next(channel: Channel) -> None:
    slots = [channel.submit() for _ in range(lib.GL_SLOTS)]
    assert channel.submit() == -1
    lib.gl_channel_complete(channel.agent, slots[7], lib.GL_DONE)
    lib.gl_client_release(channel.client, slots[7])
    assert channel.submit() == slots[7]


def test_when_the_agent_is_gone_all_that_waits_fails_and_nothing_begins(channel: Channel) -> None:
    slot = channel.submit()
    seen = lib.gl_client_completions(channel.client, 0, 0)
    with ThreadPoolExecutor(2) as pool:
        wait = pool.submit(lib.gl_client_wait, channel.client, slot, 30_000_000)
        listen = pool.submit(lib.gl_client_completions, channel.client, seen, 30_000_000)
        lib.gl_client_fail(channel.client)
        assert wait.result(60) == lib.GL_FAILED
        assert listen.result(60) != seen
    assert channel.submit() == -2


def test_a_listener_hears_of_every_completion(channel: Channel) -> None:
    rounds = 500
    heard = threading.Event()

    def listen() -> None:
        seen = 0
        while seen < rounds:
            seen = lib.gl_client_completions(channel.client, seen, 10_000_000)
        heard.set()

    thread = threading.Thread(target=listen)
    thread.start()
    for _ in range(rounds):
        slot = channel.submit()
        assert channel.take() == 1
        lib.gl_channel_complete(channel.agent, slot, lib.GL_DONE)
        lib.gl_client_release(channel.client, slot)
    assert heard.wait(60)
    thread.join()


def test_a_ring_that_makes_no_sense_is_refused(channel: Channel) -> None:
    channel.submit()
    head = ffi.cast("uint32_t *", channel.pointer)
    assert head[0] == 1
    head[0] = lib.GL_SLOTS + 5
    assert channel.take() == -1
    head[0] = 1
    assert channel.take() == 1
    # A slot that there is none of: the client's memory says so, whatever the client's library does.
    commands = lib.gl_channel_bytes() - lib.GL_SLOTS * ffi.sizeof("gl_command")
    second = ffi.cast("gl_command *", channel.pointer + commands) + 1
    second.slot = lib.GL_SLOTS
    lib.gl_channel_complete(channel.agent, 0, lib.GL_DONE)
    head[0] = 2
    assert channel.take() == -1


def test_a_slot_that_is_in_flight_is_refused(channel: Channel) -> None:
    """A client that takes no notice of completions would have ever more in flight."""
    slot = channel.submit()
    assert channel.take() == 1
    lib.gl_client_release(channel.client, slot)
    assert channel.submit() == slot
    assert channel.take() == -1
