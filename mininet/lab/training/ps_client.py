# SPDX-License-Identifier: Apache-2.0
"""A worker's side of the parameter server: pushes shards to every server and takes the mean back, both at once."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from lab.training.config import Config, Node
from lab.training.ps_wire import Connection, Header, Kind, PeerError, chunks, shard
from lab.training.sockets import set_timeouts, tune

_FAREWELL_SECONDS = 0.5

Done = Callable[[PeerError | None], None]


@dataclass(eq=False)
class _Reduction:
    """One array in flight; `remaining` servers still owe their shard."""

    done: Done
    remaining: int


@dataclass(frozen=True)
class _Shard:
    """One server's part of a reduction."""

    reduction: _Reduction
    sequence: int
    data: memoryview


class Client:
    """Reduces flat arrays to their mean over all workers, in place.

    Each server has a thread that sends and one that receives: the system calls block in the kernel without the GIL, so
    that pushing a later chunk, or a later array, overlaps with taking an earlier one back.
    """

    def __init__(self, config: Config, rank: int) -> None:
        """Connects to every server. Raises PeerError if one does not listen within the run's join_timeout."""
        arm = config.effective_arm
        self._chunk = config.chunk_bytes
        self._sequence = 0
        self._lock = threading.Lock()
        self._error: PeerError | None = None
        self._pending: set[_Reduction] = set()
        self._sends: list[SimpleQueue[_Shard | None]] = []
        self._receives: list[SimpleQueue[_Shard | None]] = []
        self._credits: list[threading.Semaphore] = []
        self._connections: list[Connection] = []
        self._senders: list[threading.Thread] = []
        self._receivers: list[threading.Thread] = []
        source = config.worker(rank).address
        deadline = time.monotonic() + config.join_timeout
        for server in config.servers:
            connection = _connect(server, source, config.server_port, deadline)
            tune(connection.socket, arm)
            # The server notices a late worker at three quarters of the timeout, and names it; this is the backstop.
            set_timeouts(connection.socket, receive=config.timeout, send=config.timeout)
            self._connections.append(connection)
            connection.send([(Header(Kind.HELLO, sequence=rank), memoryview(b""))])
        for index in range(len(self._connections)):
            self._sends.append(SimpleQueue())
            self._receives.append(SimpleQueue())
            self._credits.append(threading.Semaphore(config.chunk_credits))
            self._senders.append(threading.Thread(target=self._send, args=(index,), daemon=True))
            self._receivers.append(threading.Thread(target=self._receive, args=(index,), daemon=True))
        for thread in (*self._senders, *self._receivers):
            thread.start()

    def reduce(self, array: NDArray[np.generic], done: Done) -> None:
        """Replaces a flat float32 or float16 array by its mean over the workers; `done` is called at the end.

        Every worker must call it with arrays of the same sizes and type in the same order. `done` runs on another
        thread, with None or the error that names the culprit.
        """
        count = len(self._connections)
        parts = [(k, shard(array, k, count)) for k in range(count)]
        parts = [(k, part) for k, part in parts if len(part)]
        reduction = _Reduction(done, len(parts))
        with self._lock:
            error = self._error
            if error is None and parts:
                self._pending.add(reduction)
        if error is not None or not parts:
            done(error)
            return
        for k, part in parts:
            item = _Shard(reduction, self._sequence, part.data.cast("B"))
            self._receives[k].put(item)
            self._sends[k].put(item)
        self._sequence += 1

    def close(self) -> None:
        """Tells the servers that this worker is done, or why it failed, and ends the connections."""
        for queue in (*self._sends, *self._receives):
            queue.put(None)
        for thread in self._senders:
            thread.join()
        if self._error is not None:  # the receivers may still wait for what never comes
            for connection in self._connections:
                with contextlib.suppress(OSError):  # the peer was faster
                    connection.socket.shutdown(socket.SHUT_RDWR)
        for thread in self._receivers:
            thread.join()
        for connection in self._connections:
            connection.socket.close()

    def _send(self, index: int) -> None:
        connection, queue = self._connections[index], self._sends[index]
        try:
            while (item := queue.get()) is not None and self._error is None:
                self._push(index, item)
            error = self._error
            if error is None:
                connection.send([(Header(Kind.BYE), memoryview(b""))])
            else:  # the servers that still live learn of the origin, instead of taking this worker for it
                text = str(error).encode()
                connection.send([(Header(Kind.ERROR, length=len(text)), memoryview(text))])
        except PeerError as problem:
            self._fail(problem)

    def _push(self, index: int, item: _Shard) -> None:
        data, total = item.data, len(item.data)
        for offset, length in chunks(total, self._chunk):
            self._credits[index].acquire()
            if self._error is not None:
                return
            header = Header(Kind.PUSH, item.sequence, offset, length, total)
            self._connections[index].send([(header, data[offset : offset + length])])

    def _receive(self, index: int) -> None:
        connection, queue = self._connections[index], self._receives[index]
        try:
            while (item := queue.get()) is not None:
                received = 0
                while received < len(item.data):
                    received += self._receive_chunk(connection, item, received)
                    self._credits[index].release()
                self._shard_done(item.reduction)
        except PeerError as problem:
            self._fail(problem)

    def _receive_chunk(self, connection: Connection, item: _Shard, offset: int) -> int:
        header = connection.receive_header()
        if header is None:
            raise PeerError(f"{connection.peer} is lost: it closed the connection")
        if header.kind == Kind.ERROR:
            raise PeerError(connection.receive_text(header))
        # A TCP stream keeps order, and the servers reduce chunks in it: anything else is a peer that counts otherwise.
        expected = Header(Kind.MEAN, item.sequence, offset, min(self._chunk, len(item.data) - offset), len(item.data))
        if header != expected:
            raise PeerError(f"{connection.peer} sent {header}, expected {expected}")
        connection.receive_into(item.data[offset : offset + header.length])
        return header.length

    def _shard_done(self, reduction: _Reduction) -> None:
        with self._lock:
            reduction.remaining -= 1
            finished = reduction.remaining == 0 and reduction in self._pending
            if finished:
                self._pending.remove(reduction)
        if finished:
            reduction.done(None)

    def _fail(self, problem: PeerError) -> None:
        with self._lock:
            if self._error is not None:
                return
            self._error = problem
            pending, self._pending = self._pending, set()
        for queue, credits in zip(self._sends, self._credits, strict=True):
            queue.put(None)
            credits.release()
        # The process may end as soon as it hears of the error, so first let the senders pass it on.
        deadline = time.monotonic() + _FAREWELL_SECONDS
        for sender in self._senders:
            if sender is not threading.current_thread():
                sender.join(max(0.0, deadline - time.monotonic()))
        for reduction in pending:
            reduction.done(problem)


def _connect(server: Node, source: str, port: int, deadline: float) -> Connection:
    wait = 0.05
    while True:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.settimeout(max(0.1, deadline - time.monotonic()))
        try:
            sock.bind((source, 0))
            sock.connect((server.address, port))
        except OSError as problem:
            sock.close()
            if time.monotonic() + wait >= deadline:
                reason = problem.strerror or str(problem)
                raise PeerError(f"parameter server {server} port {port}: {reason}") from None
            time.sleep(wait)  # it may not listen yet
            continue
        return Connection(sock, f"parameter server {server}")
