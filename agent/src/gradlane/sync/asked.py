# SPDX-License-Identifier: Apache-2.0
"""Groups that average parameters, as a generator at rank 0 decides while the training runs."""

import math
import threading
import zlib
from collections.abc import Sequence

from gradlane._core import lib
from gradlane.client.connection import Connection
from gradlane.client.handle import Handle
from gradlane.errors import AgentError
from gradlane.sync.averaging import InGroups
from gradlane.sync.block import Array, Block
from gradlane.sync.generator import Generator
from gradlane.sync.schedule import Places
from gradlane.sync.scheme import Exchange

_ASK, _PAUSE, _LEAVE = range(3)


class Asked(InGroups):
    """Groups of a generator in the process of rank 0, which the others ask with messages."""

    def __init__(self, connection: Connection, name: str, members: int, slack: int) -> None:
        """`members`, `slack`: see Generator. Raises ValueError if the job has several processes on a host, or too many
        hosts; AgentError."""
        if connection.processes > 1:
            raise ValueError("ripples needs jobs with one process on each host (worker.processes)")
        super().__init__(connection)
        self._members = min(members, self._size)
        groups = sum(math.comb(self._size, members) for members in range(2, self._members + 1))
        others = 2 * self._size + 1  # a pair to and from rank 0, and all
        if groups + others > int(lib.GL_MAX_GROUPS):
            raise ValueError(
                f"ripples may need {groups} groups of {self._size} hosts, and a job has {lib.GL_MAX_GROUPS - others} "
                f"for it: choose fewer members than {self._members}"
            )
        self._tag = zlib.crc32(name.encode())
        self._lock = threading.Lock()
        self._left = threading.Semaphore(0)
        self._replies: dict[int, Handle] = {}
        self._generator = Generator(self._size, self._members, slack) if self._place == 0 else None
        if self._generator is not None:
            for worker in range(1, self._size):
                self._listen(worker, connection.empty(2, "int64"))

    def next(self, step: int, blocks: Sequence[Block]) -> list[Exchange]:
        """See Plan."""
        return self.among(self._ask(_ASK, step), blocks)

    def pause(self, blocks: Sequence[Block]) -> list[Exchange]:
        """See Plan: groups that have been decided already."""
        return self.among(self._ask(_PAUSE, 0), blocks)

    def close(self, blocks: Sequence[Block]) -> None:
        """At rank 0 it returns when all have called it."""
        super().close(blocks)
        if self._generator is None:
            self._send([_LEAVE, 0], 0).wait()
            return
        for _ in range(1, self._size):
            self._left.acquire()
            self._connection.link.check()

    def _ask(self, what: int, step: int) -> Places | None:
        if self._generator is not None:
            return self._decide(0, what, step)
        reply = self._connection.empty(1 + self._members, "int64")
        answered = self._connection.collective("receive", None, reply, root=0, tag=self._tag)
        self._send([what, step], 0).wait()
        answered.wait()
        return tuple(reply[1 : 1 + reply[0]].tolist()) or None

    def _decide(self, worker: int, what: int, step: int) -> Places | None:
        assert self._generator is not None
        with self._lock:
            return self._generator.ask(worker, step) if what == _ASK else self._generator.pause(worker)

    def _send(self, values: list[int], to: int) -> Handle:
        message = self._connection.empty(len(values), "int64")
        message[:] = values
        return self._connection.collective("send", message, None, root=to, tag=self._tag)

    def _listen(self, worker: int, question: Array) -> None:
        """At rank 0: answers a worker's next question, in a thread of the client."""

        def answer(error: AgentError | None) -> None:
            if error is not None or question[0] == _LEAVE:
                self._left.release()
                return
            group = self._decide(worker, int(question[0]), int(question[1])) or ()
            padding = [0] * (self._members - len(group))
            try:
                self._listen(worker, question)
                self._replies[worker] = self._send([len(group), *group, *padding], worker)
            except AgentError:
                self._left.release()  # the job is over, as all will notice

        handle = self._connection.collective("receive", None, question, root=worker, tag=self._tag)
        handle.add_done_callback(answer)
