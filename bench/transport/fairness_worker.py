# SPDX-License-Identifier: Apache-2.0
"""An end of a flow of bench.transport.fairness, until it is killed: a bulk TCP connection, or a job's all-reduces.

The end that receives says that it is ready, and from then on a line of JSON for every CHUNK that arrives: [seconds of
the monotonic clock, bytes].
"""

import json
import socket
import sys
import time

CHUNK = 1 << 17
_PORT = 29600
_IN_FLIGHT = 4  # all-reduces at a time, as a training's buckets


def _say(octets: int) -> None:
    print(json.dumps([time.monotonic(), octets]), flush=True)


def tcp_receive(address: str) -> None:
    """Takes a connection at a host's address, and what comes in."""
    with socket.create_server((address, _PORT)) as server:
        print("listening", flush=True)
        connection = server.accept()[0]
    print("ready", flush=True)
    got = 0
    while part := connection.recv(CHUNK):
        got += len(part)
        if got >= CHUNK:
            _say(got)
            got = 0


def tcp_send(address: str, control: str) -> None:
    """Sends as fast as congestion control lets it."""
    with socket.create_connection((address, _PORT), 10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        while True:
            connection.sendall(bytes(CHUNK))


def job(rank: int, path: str, agent: str) -> None:
    """All-reduces between two hosts: each sends as many bytes as the array has. Rank 1 counts."""
    from gradlane import Communicator  # only here: TCP needs nothing of it

    with Communicator(path, rank, agent) as communicator:
        arrays = [communicator.empty(CHUNK // 4) for _ in range(_IN_FLIGHT)]
        for array in arrays:
            array[:] = 1

        def start(number: int):
            return communicator.all_reduce(arrays[number], f"gradient {number}", asynchronous=True)

        in_flight = [start(number) for number in range(_IN_FLIGHT)]
        print("ready", flush=True)
        while True:
            for number in range(_IN_FLIGHT):
                in_flight[number].wait(60)
                if rank:
                    _say(CHUNK)
                in_flight[number] = start(number)


def main() -> None:
    """Arguments: tcp_receive ADDRESS, tcp_send ADDRESS CONTROL, or job RANK JOB SOCKET."""
    kind, *rest = sys.argv[1:]
    if kind == "job":
        job(int(rest[0]), *rest[1:])
    else:
        {"tcp_receive": tcp_receive, "tcp_send": tcp_send}[kind](*rest)


if __name__ == "__main__":
    main()
