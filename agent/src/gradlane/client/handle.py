# SPDX-License-Identifier: Apache-2.0
"""Operations in flight, as a training process sees them: waiting for one, or being called when it is done."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gradlane._core import ffi, lib
from gradlane.errors import AgentError
from gradlane.ipc.memory import Memory

log = logging.getLogger("gradlane")

# A wait returns to Python this often, so that Ctrl-C and other signals are handled.
_SLICE_SECONDS = 0.1

Callback = Callable[[AgentError | None], None]


class Operation(Protocol):
    """An operation in flight: a handle, or what is as good as one."""

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until it is over. Raises AgentError, TimeoutError."""
        ...

    def done(self) -> bool:
        """Whether it is over."""
        ...

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Calls `callback` with None or the AgentError when it is over, in a thread of the client."""
        ...


def full() -> AgentError:
    """Of a channel that takes no more."""
    return AgentError(f"{lib.GL_SLOTS} operations are in flight: wait for some of them")


class Completions:
    """Which operations of a connection are done; runs callbacks in a thread of its own, once there are any."""

    def __init__(
        self,
        channel: Memory,
        kick: int,
        why: Callable[[], AgentError],
        lost: Callable[[Sequence[int]], AgentError],
        calling: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        """`channel`, `kick`: memory and pipe of the channel, this object's from now on; `why` says why it failed, and
        `lost` why an operation of these ranks is lost. `calling`: held around each callback, with the other channels of
        the connection."""
        self._channel = channel
        client = lib.gl_client_new(channel.pointer, kick)
        if client == ffi.NULL:
            raise MemoryError("a channel to the agent")
        self.client = ffi.gc(client, lib.gl_client_free)
        self.why = why
        self.lost = lost
        self.calling = calling or threading.Lock()
        self.lock = threading.RLock()  # of each handle's state and of the watched
        self._watched: set[Handle] = set()
        # Of operations that nobody waits for any more: their slots, and the arrays that the agent may still work on.
        self.abandoned: deque[tuple[int, tuple[Any, ...]]] = deque()
        self._thread: threading.Thread | None = None
        self._failed = self._closing = False

    def has_room(self) -> bool:
        """Whether it takes another operation."""
        self._tidy()
        return bool(lib.gl_client_room(self.client))

    def submit(self, command: Any, arrays: tuple[Any, ...], ranks: Sequence[int]) -> "Handle":
        """Puts a gl_command into the ring; `arrays` live until it is done. `ranks`: who takes part. Raises
        AgentError."""
        self._tidy()
        slot = lib.gl_client_submit(self.client, command)
        if slot == -1:
            raise full()
        if slot < 0:
            raise self.why()
        return Handle(self, slot, arrays, ranks)

    def _tidy(self) -> None:
        """Gives back what abandoned operations had that are done."""
        with contextlib.suppress(IndexError):  # another thread has looked through them
            for _ in range(len(self.abandoned)):
                self._give_back(*self.abandoned.popleft())

    def _give_back(self, slot: int, arrays: tuple[Any, ...]) -> None:
        """Gives the slot and the arrays of an abandoned operation back once it is done."""
        if lib.gl_client_state(self.client, slot) < lib.GL_DONE:
            self.abandoned.append((slot, arrays))
        else:
            lib.gl_client_release(self.client, slot)

    def fail(self) -> None:
        """The agent is gone, or the job over: what is in flight fails, and so does all that comes later."""
        self._failed = True
        lib.gl_client_fail(self.client)

    def watch(self, handle: "Handle") -> None:
        """Its callbacks are run when it is done."""
        with self.lock:
            self._watched.add(handle)
            if handle.done():  # it may have been before it was watched, so nothing else ends the thread's wait
                lib.gl_client_look(self.client)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="gradlane-completions", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._closing:
            # What is done after this count was taken ends the wait below.
            seen = lib.gl_client_completions(self.client, 0, 0)
            with self.lock:
                done = [handle for handle in self._watched if handle.done()]
                self._watched.difference_update(done)
                if self._failed and not done and not self._watched:  # nobody may ever close it
                    self._thread = None
                    return
            for handle in done:
                handle.call()
            if not done:
                lib.gl_client_completions(self.client, seen, int(_SLICE_SECONDS * 1e6))

    def close(self) -> None:
        """Ends the thread, when the callbacks of what is done have run. The client must have failed or be idle."""
        self._closing = True
        lib.gl_client_look(self.client)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()


class Handle:
    """An operation in flight."""

    def __init__(self, completions: Completions, slot: int, arrays: tuple[Any, ...], ranks: Sequence[int] = ()) -> None:
        self._completions = completions
        self._slot = slot
        self._arrays = arrays  # live until it is done
        self._ranks = ranks
        self._state = 0
        self._callbacks: list[Callback] = []

    def done(self) -> bool:
        """Whether it is over, well or not."""
        if self._state == 0:
            self._settle(lib.gl_client_state(self._completions.client, self._slot))
        return self._state != 0

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until it is done, without the GIL. Raises AgentError that names the culprit (PeerLost, if only this
        operation is lost), TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._state == 0:
            left = _SLICE_SECONDS if deadline is None else min(_SLICE_SECONDS, deadline - time.monotonic())
            self._settle(lib.gl_client_wait(self._completions.client, self._slot, max(0, int(left * 1e6))))
            if self._state == 0 and deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"not done within {timeout:g} s")
        if (error := self._error()) is not None:
            raise error

    def _error(self) -> AgentError | None:
        if self._state == lib.GL_LOST:
            return self._completions.lost(self._ranks)
        return self._completions.why() if self._state == lib.GL_FAILED else None

    def add_done_callback(self, callback: Callback) -> None:
        """Calls `callback(error)`, error None if all went well, in the connection's completion thread."""
        with self._completions.lock:
            self._callbacks.append(callback)
            self._completions.watch(self)

    def call(self) -> None:
        """Runs the callbacks; of the completion thread."""
        error = self._error()
        with self._completions.lock:
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                with self._completions.calling:
                    callback(error)
            except Exception:
                log.exception("a callback of an operation failed")  # the other callbacks still run

    def _settle(self, state: int) -> None:
        """Takes over the completion word. Another thread may have done so, and the slot serve another operation."""
        if state < lib.GL_DONE:
            return
        with self._completions.lock:
            if self._state == 0:
                self._state = state
                self._arrays = ()
                lib.gl_client_release(self._completions.client, self._slot)

    def __del__(self) -> None:
        # No call on the client: where both are garbage of one cycle, it may have been freed first.
        if getattr(self, "_state", 1) == 0:
            self._completions.abandoned.append((self._slot, self._arrays))


class Joint:
    """An operation in flight whose parts are of several channels."""

    def __init__(self, parts: Sequence[Handle]) -> None:
        self._parts = parts

    def done(self) -> bool:
        """Whether all parts are over."""
        return all(part.done() for part in self._parts)

    def wait(self, timeout: float | None = None) -> None:
        """Blocks until all parts are over. Raises AgentError, TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        failure: AgentError | None = None
        for part in self._parts:  # what they work on belongs to the agent as long as one goes on
            try:
                part.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except AgentError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def add_done_callback(self, callback: Callback) -> None:
        """Calls `callback(error)` when all parts are over, error None if all went well, in a completion thread."""
        waited = _Waited(len(self._parts), callback)
        for part in self._parts:
            part.add_done_callback(waited.part_over)


class _Waited:
    """A callback of several parts. It is called by the last one, as these call one at a time."""

    def __init__(self, parts: int, callback: Callback) -> None:
        self._left = parts
        self._callback = callback
        self._error: AgentError | None = None

    def part_over(self, error: AgentError | None) -> None:
        self._left -= 1
        self._error = self._error or error
        if not self._left:
            self._callback(self._error)
