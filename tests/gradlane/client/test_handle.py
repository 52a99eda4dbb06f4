# SPDX-License-Identifier: Apache-2.0
"""Handles of operations: whoever waits for one is told, whenever it asks to be."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from gradlane._core import ffi, lib

from gradlane.client import handle as handles
from gradlane.client.handle import Callback, Completions, Handle
from gradlane.errors import AgentError
from gradlane.ipc import memory
from tests.support.agents import PATIENCE


def lost(ranks: Sequence[int]) -> AgentError:
    return AgentError(f"ranks {ranks} are dead")


@pytest.fixture
def completions() -> Completions:
    descriptor = memory.create("channel", lib.gl_channel_bytes())
    kicks, kick = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    opened = Completions(memory.Memory(descriptor, lib.gl_channel_bytes()), kick, lambda: AgentError("the end"), lost)
    os.close(descriptor)
    os.close(kicks)
    return opened


class _SlowList(list[Callback]):
    """Of callbacks: before one is added, another thread has time to run those that are there."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self._run = run

    def append(self, callback: Callback, /) -> None:
        thread = threading.Thread(target=self._run)
        thread.start()
        thread.join(0.1)
        super().append(callback)


def test_a_callback_that_is_added_while_others_run_is_run_too(completions: Completions) -> None:
    handle = completions.submit(ffi.new("gl_command *", {"kind": lib.GL_COMMAND_COLLECTIVE}), (), ())
    told: list[AgentError | None] = []
    heard = threading.Event()

    def callback(error: AgentError | None) -> None:
        told.append(error)
        heard.set()

    def run() -> None:
        if handle.done():
            handle.call()

    completions.fail()
    handle._callbacks = _SlowList(run)
    handle.add_done_callback(callback)
    assert heard.wait(10)
    completions.close()
    assert [str(error) for error in told] == ["the end"]


def test_a_callback_of_what_is_done_already_is_run_at_once(
    completions: Completions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that runs it waits for the next completion by then, and there may be none."""
    monkeypatch.setattr(handles, "_SLICE_SECONDS", 1000.0)
    agent = ffi.gc(lib.gl_channel_new(completions._channel.pointer, -1), lib.gl_channel_free)
    command = ffi.new("gl_command *", {"kind": lib.GL_COMMAND_COLLECTIVE})
    other, handle = (completions.submit(command, (), ()) for _ in range(2))
    heard = threading.Event()
    other.add_done_callback(lambda _: None)
    while lib.gl_channel_take(agent, command):
        pass
    lib.gl_channel_complete(agent, handle._slot, lib.GL_DONE)
    time.sleep(0.2)  # the thread has looked, and waits again
    handle.add_done_callback(lambda _: heard.set())
    assert heard.wait(PATIENCE)
    completions.fail()
    completions.close()


_GARBAGE = """
import gc, os
from gradlane._core import ffi, lib
from gradlane.client.handle import Completions
from gradlane.ipc import memory

gc.disable()
for _ in range(20):
    descriptor = memory.create("channel", lib.gl_channel_bytes())
    kicks, kick = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    opened = Completions(memory.Memory(descriptor, lib.gl_channel_bytes()), kick, RuntimeError, RuntimeError)
    handle = opened.submit(ffi.new("gl_command *", {"kind": lib.GL_COMMAND_COLLECTIVE}), (), ())
    opened.circle = handle  # as a traceback's frames make one, of a job that failed
    del opened, handle
    os.close(descriptor), os.close(kicks)
assert gc.collect() > 20
"""


def test_handles_may_be_garbage_together_with_their_connection() -> None:
    """Python frees the parts of a circle in any order; a crash there would be the training's."""
    freed = {**os.environ, "MALLOC_PERTURB_": "85"}  # no pointer in freed memory stays good
    subprocess.run([sys.executable, "-c", _GARBAGE], env=freed, check=True, timeout=60)


class _Played(Handle):
    """A handle that ends when the test says so."""

    def __init__(self) -> None:
        self.over, self.error, self.told = False, None, list[Callback]()

    def wait(self, timeout: float | None = None) -> None:
        if not self.over:
            raise TimeoutError
        if self.error is not None:
            raise self.error

    def done(self) -> bool:
        return self.over

    def add_done_callback(self, callback: Callback) -> None:
        self.told.append(callback)

    def end(self, error: AgentError | None = None) -> None:
        self.over, self.error = True, error
        for callback in self.told:
            callback(error)

    def __del__(self) -> None: ...


class _Part:
    """A part of an operation, that ends when it is told to."""

    def __init__(self) -> None:
        self.over = False
        self.error: AgentError | None = None
        self.callbacks: list[Callback] = []

    def done(self) -> bool:
        return self.over

    def wait(self, timeout: float | None = None) -> None:
        del timeout
        if not self.over:
            raise TimeoutError
        if self.error:
            raise self.error

    def add_done_callback(self, callback: Callback) -> None:
        self.callbacks.append(callback)

    def end(self, error: AgentError | None = None) -> None:
        self.over, self.error = True, error
        for callback in self.callbacks:
            callback(error)


@pytest.mark.parametrize("error", [None, AgentError("why")])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_an_operation_is_over_when_its_parts_are(order: Sequence[int], error: AgentError | None) -> None:
    parts = [_Part() for _ in order]
    called: list[AgentError | None] = []
    joint = handles.Joint(parts)  # pyright: ignore[reportArgumentType]
    joint.add_done_callback(called.append)
    for number in order:
        assert not joint.done()
        assert not called
        with pytest.raises(TimeoutError):
            joint.wait(0)
        parts[number].end(error if number == 1 else None)
    assert joint.done()
    assert called == [error]
    if error is None:
        joint.wait(0)
    else:
        with pytest.raises(AgentError, match="why"):
            joint.wait(0)
