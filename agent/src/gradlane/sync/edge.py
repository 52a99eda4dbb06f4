# SPDX-License-Identifier: Apache-2.0
"""Directed edges between workers that do not wait for one another: of each, one message at most is in flight.

Callbacks run in the connection's completion thread, so a worker serves others while it computes.
"""

import contextlib
import threading
from collections.abc import Callable
from functools import partial

import numpy as np

from gradlane.client.connection import Connection
from gradlane.client.handle import Handle
from gradlane.errors import AgentError
from gradlane.job import elements

_HEADER_BYTES = 16
_OPEN, _LAST = range(2)  # of a header: whether others follow
_POLL_SECONDS = 0.1  # how often one who waits looks whether the job is over


class Message:
    """`values` of one type behind a header, in shared memory."""

    def __init__(self, connection: Connection, count: int, dtype: str) -> None:
        """Raises AgentError."""
        header = _HEADER_BYTES // elements.bytes_of(dtype)
        self.array = connection.empty(header + count, dtype)
        self.header = self.array[:header].view(np.int64)
        self.values = self.array[header:]
        self.array[:] = 0

    @property
    def number(self) -> int:
        """What the sender has put beside the values."""
        return int(self.header[1])

    @number.setter
    def number(self, number: int) -> None:
        self.header[1] = number

    @property
    def last(self) -> bool:
        """Whether no other follows."""
        return int(self.header[0]) != _OPEN

    def end(self) -> None:
        """Makes it the last one."""
        self.header[0] = _LAST


class End:
    """Whether something is over, which another thread says."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._over = threading.Event()
        self.set = self._over.set

    def wait(self) -> None:
        """Blocks until it is. Raises AgentError if the job ends before."""
        while not self._over.wait(_POLL_SECONDS):
            self._connection.link.check()
        self._connection.link.check()


class Outbox:
    """An edge to another worker. What it sends is what `message` holds when the one before has come; what it had in
    between is skipped, so that memory is bounded and the receiver gets the latest."""

    def __init__(self, connection: Connection, message: Message, to: int, tag: int, tolerance: float = 0.0) -> None:
        """`to`: a worker's rank; `tolerance`: what of a message may be lost. Several outboxes may have one message.

        With a tolerance of 1 the message may be changed at any time: every element arrives as it was at some time.
        """
        self._connection, self._message, self._to, self._tag = connection, message, to, tag
        self._tolerance = tolerance
        self._lock = threading.Lock()
        self._busy = self._newer = False
        self._handle: Handle | None = None

    def offer(self) -> None:
        """The message has something newer. Raises AgentError."""
        with self._lock:
            self._newer = True
            self._send()

    def drain(self) -> None:
        """Waits until all that was offered has come. Raises AgentError."""
        while True:
            with self._lock:
                handle = self._handle if self._busy or self._newer else None
            if handle is None:
                return
            handle.wait()
            self._next(handle)

    def close(self) -> None:
        """Sends the message once more, all of it, and returns when it has come. After `drain` and Message.end."""
        self._connection.collective("send", self._message.array, None, root=self._to, tag=self._tag).wait()

    def _send(self) -> None:
        if self._busy or not self._newer:
            return
        self._busy, self._newer = True, False
        array, tag = self._message.array, self._tag
        self._handle = self._connection.collective(
            "send", array, None, root=self._to, tag=tag, tolerance=self._tolerance
        )
        self._handle.add_done_callback(partial(self._done, self._handle))

    def _done(self, handle: Handle, error: AgentError | None) -> None:
        with contextlib.suppress(AgentError):  # the job is over, as all who wait notice
            if error is None:
                self._next(handle)

    def _next(self, handle: Handle) -> None:
        with self._lock:
            if self._handle is handle and self._busy:
                self._busy = False
                self._send()


class Inbox:
    """An edge from another worker. A receive is posted all the while, until the last message has come."""

    def __init__(
        self,
        connection: Connection,
        message: Message,
        source: int,
        tag: int,
        taken: Callable[[], None] | None = None,
        tolerance: float = 0.0,
    ) -> None:
        """`taken` is called when a message has come, and before the next one can; elements that were lost are in it as
        they were before. Raises AgentError."""
        self._connection, self._message, self._source, self._tag = connection, message, source, tag
        self._taken, self._tolerance = taken, tolerance
        self.end = End(connection)
        self._post()

    def _post(self) -> None:
        handle = self._connection.collective(
            "receive",
            None,
            self._message.array,
            root=self._source,
            tag=self._tag,
            tolerance=self._tolerance,
            standing=True,
        )
        handle.add_done_callback(self._came)

    def _came(self, error: AgentError | None) -> None:
        if error is not None or self._message.last:
            self.end.set()
            return
        try:
            if self._taken is not None:
                self._taken()
            self._post()
        except AgentError:
            self.end.set()  # the job is over, as all who wait notice


class Question:
    """Asks a worker that has `Answers` for this one: the message's values go there, the answer takes their place."""

    def __init__(self, connection: Connection, message: Message, to: int, tag: int) -> None:
        """Several may have one message: one of them is asked at a time."""
        self._connection, self._message, self._to, self._tag = connection, message, to, tag

    def ask(self) -> Handle:
        """Returns what is done when the answer is in the message. Raises AgentError."""
        array = self._message.array
        answered = self._connection.collective("receive", None, array, root=self._to, tag=self._tag)
        self._connection.collective("send", array, None, root=self._to, tag=self._tag)
        return answered

    def close(self) -> None:
        """After Message.end: there are no more questions. Raises AgentError."""
        self._connection.collective("send", self._message.array, None, root=self._to, tag=self._tag).wait()


class Answers(Inbox):
    """Answers a worker's questions."""

    def __init__(
        self, connection: Connection, message: Message, source: int, tag: int, answer: Callable[[Message], None]
    ) -> None:
        """`answer` puts the answer in the place of the question. Raises AgentError."""

        def taken() -> None:
            answer(message)
            # Its memory is the next question's, which does not come before this answer has arrived.
            self._sent = connection.collective("send", message.array, None, root=source, tag=tag)

        self._sent: Handle | None = None
        super().__init__(connection, message, source, tag, taken)
