# SPDX-License-Identifier: Apache-2.0
"""A host of bench.transport.tails: rank 0 collects from all others at once, by gradlane or by plain TCP sockets.

Requests on standard input and answers on standard output are lines of JSON: {"kind": "incast" or "reduce", "bytes",
"count"}, and {"seconds": [of each]}. TCP knows incasts only: rank 0 writes a byte to each connection and reads
`bytes` from each.
"""

import selectors
import socket
import struct
import sys
import time
from typing import Any

import numpy as np

from bench.harness.worker import serve

PORT = 29500


class Tcp:
    """One connection from every other rank to rank 0, kept open."""

    def __init__(self, control: str, rank: int, size: int, address: str) -> None:
        self._rank, self._connections = rank, list[socket.socket]()
        if rank:
            self._connections.append(socket.create_connection((address, PORT), 30))
        else:
            with socket.create_server((address, PORT), backlog=size) as server:
                print("listening", flush=True)
                self._connections += [server.accept()[0] for _ in range(size - 1)]
        for connection in self._connections:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def measure(self, request: dict[str, Any]) -> list[float]:
        """Seconds of each incast, at rank 0."""
        payload, seconds = bytes(request["bytes"]), list[float]()
        for _ in range(request["count"]):
            begin = time.perf_counter()
            if self._rank:
                (connection,) = self._connections
                if connection.recv(1) != b"g":
                    raise SystemExit("rank 0 ended")
                connection.sendall(payload)
            else:
                self._collect(len(payload))
            seconds.append(time.perf_counter() - begin)
        return seconds

    def _collect(self, size: int) -> None:
        missing = dict.fromkeys(self._connections, size)
        with selectors.DefaultSelector() as selector:
            for connection in missing:
                connection.sendall(b"g")
                selector.register(connection, selectors.EVENT_READ)
            while missing:
                for key, _ in selector.select(60):
                    connection = key.fileobj
                    assert isinstance(connection, socket.socket)
                    got = len(connection.recv(min(missing[connection], 1 << 16)))
                    if not got:
                        raise SystemExit("a sender ended")
                    missing[connection] -= got
                    if not missing[connection]:
                        selector.unregister(connection)
                        del missing[connection]

    def close(self) -> None:
        """Resets the connections: what is still in flight is of no use."""
        for connection in self._connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


class Gradlane:
    """The same by a broadcast of an element from rank 0, and a reduction to it; or all-reduces that may lose."""

    def __init__(self, rank: int, job: str, path: str) -> None:
        from gradlane import Communicator  # only here: TCP needs nothing of it

        self._rank, self._communicator = rank, Communicator(job, rank, path)

    def measure(self, request: dict[str, Any]) -> list[float]:
        """Seconds of each, at this rank."""
        array = self._communicator.empty(request["bytes"] // 4)
        array[:] = np.random.default_rng(self._rank).standard_normal(array.size)
        seconds: list[float] = []
        for _ in range(request["count"]):
            if request["kind"] == "reduce":
                self._communicator.barrier()
            begin = time.perf_counter()
            if request["kind"] == "incast":
                self._incast(array)
            else:
                self._communicator.all_reduce(array, f"gradient {array.size}")
            seconds.append(time.perf_counter() - begin)
        return seconds

    def _incast(self, array: Any) -> None:
        request = np.zeros(1, np.uint8)
        asked = self._communicator.broadcast(request, 0, asynchronous=True)
        if self._rank:
            asked.wait()
        self._communicator.reduce(array, 0)
        asked.wait()

    def close(self) -> None:
        """Leaves the job."""
        self._communicator.close()


def main() -> None:
    """Arguments: tcp:CONTROL RANK SIZE ADDRESS-OF-0, or gradlane RANK JOB SOCKET."""
    kind, _, control = sys.argv[1].partition(":")
    rank = int(sys.argv[2])
    side = Tcp(control, rank, int(sys.argv[3]), sys.argv[4]) if kind == "tcp" else Gradlane(rank, *sys.argv[3:5])
    serve(lambda request: {"seconds": side.measure(request)})
    side.close()


if __name__ == "__main__":
    main()
