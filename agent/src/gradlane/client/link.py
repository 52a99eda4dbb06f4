# SPDX-License-Identifier: Apache-2.0
"""The link to this host's agent: messages on its socket, commands in the ring, and why it broke."""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any

from gradlane._core import lib
from gradlane.client import agent_socket, in_process
from gradlane.client.handle import Completions, Handle, Joint, Operation, full
from gradlane.errors import AgentError, PeerLost, listed
from gradlane.ipc import memory, messages
from gradlane.job import Job

log = logging.getLogger("gradlane")

ANSWER_SECONDS = 60.0
_REASON_SECONDS = 10.0  # until the reader has taken in why the agent has hung up


class Link:
    """Thread-safe. A thread of its own reads what the agent sends."""

    def __init__(self, place: str | Path, job: Job, rank: int) -> None:
        """Connects to the agent on that socket, or starts that rank's in this process. Raises AgentError."""
        self.channels: list[Completions] = []  # one to each shard of the job
        self.farewell: Future[messages.Message] = Future()  # the agent's last message: the job is over
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._submitting = threading.Lock()  # what has parts goes to all its channels, or to none
        self._requests: dict[int, Future[tuple[messages.Message, list[int]]]] = {}
        self._next_request = 0
        self._failure: AgentError | None = None
        self._dead: dict[int, str] = {}  # hosts' ranks, and why
        self._death = threading.Condition(self._lock)
        self._agent = in_process.start(place, job, rank) if in_process.is_meant(place) else None
        self._socket = agent_socket.connect(place) if self._agent is None else self._agent.connection
        self._thread = threading.Thread(target=self._read, name="gradlane-client", daemon=True)
        self._thread.start()

    @property
    def within(self) -> bool:
        """Whether the agent is in this process."""
        return self._agent is not None

    def open_channels(self, descriptors: list[int]) -> None:
        """Makes the rings of the memory and the pipe of each that the agent has sent."""
        calling = threading.Lock()
        try:
            shared = [memory.Memory(fd, int(lib.gl_channel_bytes())) for fd in descriptors[::2]]
        finally:
            messages.close(descriptors[::2])
        with self._lock:
            for channel, kick in zip(shared, descriptors[1::2], strict=True):
                self.channels.append(Completions(channel, kick, self._why, self._lost, calling))
                if self._failure is not None:
                    self.channels[-1].fail()

    def submit(self, command: Any, arrays: tuple[Any, ...], ranks: Sequence[int] = (), shard: int = 0) -> Handle:
        """Puts a gl_command into a shard's ring; `arrays` are kept until it is done. `ranks`: the hosts that take part,
        if they are not all. Raises AgentError."""
        with self._submitting:
            return self._submit(command, arrays, ranks, shard)

    def submit_parts(self, command: Any, shards: Sequence[int]) -> Operation:
        """Puts it into the rings of all these shards, or of none. Raises AgentError."""
        with self._submitting:
            if len(shards) > 1 and not all(self.channels[shard].has_room() for shard in shards):
                raise full()
            handles = [self._submit(command, (), (), shard) for shard in shards]
        return handles[0] if len(handles) == 1 else Joint(handles)

    def _submit(self, command: Any, arrays: tuple[Any, ...], ranks: Sequence[int], shard: int) -> Handle:
        self.check()
        if not self.channels:
            raise AgentError("this rank is a server: it has nothing to contribute")
        return self.channels[shard].submit(command, arrays, ranks)

    def tell(self, message: messages.Message) -> None:
        """Sends a message that has no answer. Raises AgentError."""
        self.check()
        try:
            messages.send(self._socket, message)
        except OSError as error:
            # Why the agent went away is in what it sent last, which the reader may still be taking in.
            self._thread.join(_REASON_SECONDS)
            raise self._failure or AgentError(f"the agent of this host is gone: {error.strerror}") from error

    def request(
        self, message: messages.Message, descriptors: int = 0, timeout: float | None = ANSWER_SECONDS
    ) -> tuple[messages.Message, list[int]]:
        """Sends a message and waits for its answer, with at least so many descriptors. Raises AgentError."""
        answer: Future[tuple[messages.Message, list[int]]] = Future()
        with self._lock:
            number = self._next_request
            self._next_request += 1
            self._requests[number] = answer
        try:
            self.tell({**message, "request": number})
            content, received = answer.result(timeout)
        except FutureTimeout as error:
            raise AgentError(f"the agent has not answered {message['op']!r} for {timeout:g} s") from error
        finally:
            with self._lock:
                self._requests.pop(number, None)
        if "error" in content:
            raise AgentError(str(content["error"]))
        if len(received) < descriptors:
            raise AgentError(f"the agent answered {message['op']!r} without the memory that belongs to it")
        return content, received

    def check(self) -> None:
        """Raises AgentError if the link has failed, or belongs to another process."""
        if os.getpid() != self._owner:
            raise AgentError("this connection belongs to the parent process: make another one after a fork")
        if self._failure is not None:
            raise self._why()

    def close(self) -> None:
        """Hangs up. What is still in flight fails. In a child that was forked it does nothing."""
        if os.getpid() != self._owner:
            return
        self._fail(AgentError("the connection to the agent was closed"))
        self.hang_up()

    def hang_up(self) -> None:
        """Closes the socket and ends the threads, and the agent if it is in this process."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if self._agent is not None:
            self._agent.end()
        self._socket.close()
        for channel in self.channels:
            channel.close()

    def _why(self) -> AgentError:
        """The reason of a failure; a new exception each time, because raising adds to its traceback."""
        if self._failure is None:
            # The completion words were faster than the socket, which brings the reason.
            self._thread.join(_REASON_SECONDS)
        return AgentError(str(self._failure or "the agent of this host is gone"))

    def _lost(self, ranks: Sequence[int]) -> AgentError:
        """Why an operation of these hosts is lost."""
        with self._death:
            # The completion word was faster than the socket.
            self._death.wait_for(lambda: self._failure or self._dead.keys() & set(ranks), _REASON_SECONDS)
            found = sorted(self._dead.keys() & set(ranks))
            why = listed(list(dict.fromkeys(self._dead[rank] for rank in found)))
            why = why or "others say that a rank of it is dead"
        return self._why() if self._failure is not None else PeerLost(f"the operation is lost: {why}", found)

    def _read(self) -> None:
        try:
            while True:
                message, descriptors = messages.receive(self._socket)
                op = message["op"]
                if op == "error":
                    self._fail(AgentError(message["message"]))
                elif op == "notice":
                    if self._agent is None:  # otherwise it has written that into the same log
                        log.warning("%s", message["message"])
                elif op == "dead":
                    with self._death:
                        self._dead[int(message["rank"])] = str(message["message"])
                        self._death.notify_all()
                elif op == "closed":
                    self.farewell.set_result(message)
                else:
                    # Nobody waits for the answer to a request that was given up.
                    with self._lock:
                        waiting = self._requests.pop(int(message.get("request", 0)), None)
                    if waiting is None:
                        messages.close(descriptors)
                    else:
                        waiting.set_result((message, descriptors))
        except (EOFError, OSError, ValueError):
            self._fail(AgentError("the agent of this host is gone: it closed its socket"))

    def _fail(self, error: AgentError) -> None:
        with self._lock:
            if self._failure is not None:
                return
            self._failure = error
        if self._agent is not None:
            self._agent.end()  # it works on this process's memory to the last
        with self._lock:
            requests, self._requests = self._requests, {}
            self._death.notify_all()
            for channel in self.channels:
                channel.fail()
        for waiting in [*requests.values(), self.farewell]:
            if not waiting.done():
                waiting.set_exception(error)
