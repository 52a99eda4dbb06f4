# SPDX-License-Identifier: Apache-2.0
"""A parameter server of the TCP baseline: sums the chunks of its shard as they arrive and returns the mean.

A chunk goes back to all workers as soon as the last of them has sent it, while later chunks still arrive. Sums are in
rank order, so that the result does not depend on timing.
"""

import socket
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from lab.training.config import Config
from lab.training.ps_wire import WIRE_TYPES, Connection, Header, Kind, PeerError
from lab.training.sockets import set_timeouts, tune

MAX_SHARD_BYTES = 2**30
_FAREWELL_SECONDS = 1.0
Outgoing = SimpleQueue[tuple[Header, memoryview] | None]


class Reduction:
    """The sum of one shard over `world` workers.

    Worker r's chunks are received straight into `buffers[r]`; the sum grows in rank order, in `buffers[0]` for
    float32, so that no byte is copied but by the kernel.
    """

    def __init__(self, sequence: int, total: int, world: int, chunk: int, wire: np.dtype[np.floating[Any]]) -> None:
        count = total // wire.itemsize
        self.total = total
        self.buffers = [np.empty(count, wire) for _ in range(world)]
        self.views = [buffer.data.cast("B") for buffer in self.buffers]
        self._sum = self.buffers[0] if wire == np.float32 else np.empty(count, np.float32)
        self._chunk = chunk
        self._chunks = -(-total // chunk)
        self.reset(sequence)

    def reset(self, sequence: int) -> None:
        """Makes the buffers serve another reduction of the same size."""
        self.sequence = sequence
        self.lock = threading.Lock()
        self.last_arrival = time.monotonic()
        self.unsent = self._chunks * len(self.buffers)
        self.arrived = [0] * len(self.buffers)  # bytes of each worker's shard so far; streams keep order
        self._summed = [0] * self._chunks  # how many ranks are in the sum of each chunk

    def add(self, rank: int, offset: int, length: int) -> bool:
        """Counts worker `rank`'s chunk as arrived; returns whether the mean of this chunk is ready, in `views[0]`."""
        with self.lock:
            self.arrived[rank] = offset + length
            self.last_arrival = time.monotonic()
            return self._advance(offset, length)

    def sent(self, frames: int) -> bool:
        """Counts frames of the result as sent; returns whether all are, to all workers."""
        with self.lock:
            self.unsent -= frames
            return self.unsent == 0

    def behind(self) -> list[int]:
        """The ranks that the others wait for: of whose shard the least has arrived; empty if all is here.

        The others may have more to send, but not before the means of what they have sent.
        """
        least = min(self.arrived)
        return [rank for rank, arrived in enumerate(self.arrived) if arrived == least < self.total]

    def _advance(self, offset: int, length: int) -> bool:
        index = offset // self._chunk
        world = len(self.buffers)
        itemsize = self.buffers[0].itemsize
        part = slice(offset // itemsize, (offset + length) // itemsize)
        total = self._sum[part]
        summed = self._summed[index]
        while summed < world and self.arrived[summed] >= offset + length:
            if summed:
                np.add(total, self.buffers[summed][part], out=total)
            elif total.dtype != self.buffers[0].dtype:
                total[...] = self.buffers[0][part]
            summed += 1
        self._summed[index] = summed
        if summed < world:
            return False
        np.divide(total, world, out=self.buffers[0][part], casting="same_kind")
        return True


class Server:
    """Serves one run: accepts every worker, reduces until all have said goodbye."""

    def __init__(self, config: Config, rank: int) -> None:
        """Listens at once. Raises OSError if the address or port can't be had, ValueError if `rank` is no server's."""
        self._config = config
        self._node = config.server(rank)
        self._arm = config.effective_arm
        self._wire = WIRE_TYPES[self._arm.wire]
        self._lock = threading.Lock()
        self._open: dict[int, Reduction] = {}
        self._spare: dict[int, list[Reduction]] = {}  # by size: fresh memory would cost page faults in every step
        self._connections: dict[int, Connection] = {}
        self._outgoing: list[Outgoing] = [SimpleQueue() for _ in config.workers]
        self._goodbyes = 0
        self._problem: PeerError | None = None
        self._ended = threading.Event()
        self._listener = socket.create_server((self._node.address, config.server_port), backlog=64)

    def serve(self) -> None:
        """Runs until every worker is done. Raises PeerError that names the worker that is lost, late or wrong."""
        try:
            self._accept()
            senders = [self._start(self._send, rank) for rank in self._connections]
            receivers = [self._start(self._receive, rank) for rank in self._connections]
            while not self._ended.wait(0.25):
                self._check_progress()
            for queue in self._outgoing:
                queue.put(None)
            deadline = time.monotonic() + _FAREWELL_SECONDS
            # What is queued: the last means, or the error. Then what comes until a worker has heard of that: a socket
            # that is closed before resets its connection, and the worker takes this server for what is lost.
            for thread in (*senders, *receivers):
                thread.join(max(0.0, deadline - time.monotonic()))
            if self._problem is not None:
                raise self._problem
        finally:
            for connection in self._connections.values():
                connection.socket.close()
            self._listener.close()

    def _accept(self) -> None:
        deadline = time.monotonic() + self._config.join_timeout
        while len(self._connections) < len(self._config.workers):
            self._listener.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                sock, address = self._listener.accept()
            except TimeoutError:
                late = [str(worker) for worker in self._config.workers if worker.rank not in self._connections]
                raise PeerError(f"never joined within {self._config.join_timeout} s: {', '.join(late)}") from None
            tune(sock, self._arm)
            set_timeouts(sock, receive=self._config.timeout, send=self._config.timeout)
            hello = Connection(sock, f"client at {address[0]}").receive_header()
            if hello is None or hello.kind != Kind.HELLO or hello.sequence >= len(self._config.workers):
                raise PeerError(f"client at {address[0]} did not introduce itself as a worker: {hello}")
            rank = hello.sequence
            if rank in self._connections:
                raise PeerError(f"client at {address[0]} claims rank {rank}, which has connected already")
            set_timeouts(sock, receive=0, send=self._config.timeout)
            self._connections[rank] = Connection(sock, f"worker {self._config.worker(rank)}")

    def _start(self, target: Callable[[int], None], rank: int) -> threading.Thread:
        thread = threading.Thread(target=target, args=(rank,), name=f"{target.__name__}-{rank}", daemon=True)
        thread.start()
        return thread

    def _receive(self, rank: int) -> None:
        connection = self._connections[rank]
        last = Header(Kind.HELLO)
        try:
            while True:
                header = connection.receive_header()
                if header is None:
                    raise PeerError(f"{connection.peer} is lost: it closed the connection before its last step")
                if header.kind == Kind.BYE:
                    break
                if header.kind == Kind.ERROR:
                    raise PeerError(connection.receive_text(header))
                self._check(connection, header, last)
                reduction = self._reduction(header, connection)
                offset, length = header.offset, header.length
                connection.receive_into(reduction.views[rank][offset : offset + length])
                if reduction.add(rank, offset, length):
                    self._publish(reduction, offset, length)
                last = header
        except PeerError as problem:
            self._fail(problem)
            return
        with self._lock:
            self._goodbyes += 1
            finished = self._goodbyes == len(self._connections)
        if finished:
            self._ended.set()

    def _check(self, connection: Connection, header: Header, last: Header) -> None:
        continues = (
            header.sequence == last.sequence and last.kind == Kind.PUSH and last.offset + last.length < last.total
        )
        starts = last.offset + last.length == last.total and (
            last.kind == Kind.HELLO or header.sequence > last.sequence
        )
        offset = last.offset + last.length if continues else 0
        chunk = self._config.chunk_bytes
        sane = 0 < header.total <= MAX_SHARD_BYTES and header.total % self._wire.itemsize == 0
        fits = header.offset == offset and header.length == min(chunk, header.total - offset)
        if header.kind != Kind.PUSH or not (continues or starts) or not sane or not fits:
            raise PeerError(f"{connection.peer} sent {header} after {last}, in chunks of {chunk} bytes")

    def _reduction(self, header: Header, connection: Connection) -> Reduction:
        with self._lock:
            reduction = self._open.get(header.sequence)
            if reduction is None:
                spare = self._spare.get(header.total)
                if spare:
                    reduction = spare.pop()
                    reduction.reset(header.sequence)
                else:
                    reduction = Reduction(
                        header.sequence, header.total, len(self._connections), self._config.chunk_bytes, self._wire
                    )
                self._open[header.sequence] = reduction
        if reduction.total != header.total:
            raise PeerError(
                f"{connection.peer} pushes {header.total} bytes as reduction {header.sequence}, "
                f"others {reduction.total}"
            )
        return reduction

    def _publish(self, reduction: Reduction, offset: int, length: int) -> None:
        header = Header(Kind.MEAN, reduction.sequence, offset, length, reduction.total)
        frame = (header, reduction.views[0][offset : offset + length])
        for queue in self._outgoing:
            queue.put(frame)

    def _send(self, rank: int) -> None:
        connection, queue = self._connections[rank], self._outgoing[rank]
        try:
            more = True
            while more:
                frames, more = _take_all(queue)
                connection.send(frames)
                for header, _ in frames:
                    self._release(header)
        except PeerError as problem:
            self._fail(problem)

    def _release(self, header: Header) -> None:
        if header.kind != Kind.MEAN:
            return
        reduction = self._open[header.sequence]
        if reduction.sent(1):
            with self._lock:
                del self._open[header.sequence]
                self._spare.setdefault(reduction.total, []).append(reduction)

    def _check_progress(self) -> None:
        # Earlier than the workers' own timeout, because only here it is known who keeps the others waiting.
        limit = self._config.timeout * 0.75
        now = time.monotonic()
        with self._lock:
            stalled = [r for r in self._open.values() if now - r.last_arrival > limit and r.behind()]
        if stalled:
            ranks = min(stalled, key=lambda reduction: reduction.sequence).behind()
            late = ", ".join(str(self._config.worker(rank)) for rank in ranks)
            self._fail(PeerError(f"no gradient for {limit:g} s from worker {late}"))

    def _fail(self, problem: PeerError) -> None:
        with self._lock:
            if self._problem is not None:
                return
            self._problem = problem
        text = str(problem).encode()
        for queue in self._outgoing:
            queue.put((Header(Kind.ERROR, length=len(text)), memoryview(text)))
        self._ended.set()


def _take_all(queue: Outgoing) -> tuple[list[tuple[Header, memoryview]], bool]:
    """What is queued, at least one item; False once the queue has ended."""
    frames: list[tuple[Header, memoryview]] = []
    item = queue.get()
    while item is not None:
        frames.append(item)
        try:
            item = queue.get_nowait()
        except Empty:
            return frames, True
    return frames, False
