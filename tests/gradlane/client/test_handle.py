# SPDX-License-Identifier: Apache-2.0
"""Handles of operations: whoever waits for one is told, whenever it asks to be."""

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from gradlane._core import ffi, lib

from gradlane.client.handle import Callback, Completions, Handle
from gradlane.errors import AgentError
from gradlane.ipc import memory


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
