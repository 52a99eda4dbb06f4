# SPDX-License-Identifier: Apache-2.0
"""The parameter server of the TCP baseline, on loopback: exact means, and errors that name the culprit."""

import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from numpy.typing import NDArray

from lab.training.config import Config, Node
from lab.training.ps_client import Client
from lab.training.ps_server import Server
from lab.training.ps_wire import HEADER_BYTES, Connection, Header, Kind, PeerError
from tests.support.ports import free_ports

Array = NDArray[np.generic]
WAIT = 60.0


def make(arm: str, workers: int, servers: int) -> Config:
    return Config(
        arm,
        seed=1,
        model="cnn",
        width=8,
        batch=1,
        steps=1,
        workers=tuple(Node(rank, f"w{rank}", f"127.0.1.{rank + 1}", "lo") for rank in range(workers)),
        servers=tuple(Node(workers + k, f"s{k}", f"127.0.2.{k + 1}", "lo") for k in range(servers)),
        server_port=free_ports(1)[0],
        chunk_bytes=1024,
        timeout=4,
        join_timeout=60,
    )


class Running:
    """Servers in threads, with what each raised at its end."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.errors: list[PeerError] = []
        self._threads: list[threading.Thread] = []
        for node in config.servers:
            thread = threading.Thread(target=self._serve, args=(Server(config, node.rank),), daemon=True)
            thread.start()
            self._threads.append(thread)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(WAIT)
            assert not thread.is_alive()

    def _serve(self, server: Server) -> None:
        try:
            server.serve()
        except PeerError as problem:
            self.errors.append(problem)


@contextmanager
def clients(config: Config) -> Iterator[list[Client]]:
    """A client for each worker, connected at the same time, as the server waits for all."""
    found: dict[int, Client] = {}

    def connect(rank: int) -> None:
        found[rank] = Client(config, rank)

    in_parallel([lambda rank=rank: connect(rank) for rank in range(len(config.workers))])
    ordered = [found[rank] for rank in range(len(config.workers))]
    try:
        yield ordered
    finally:
        in_parallel([client.close for client in ordered])


def in_parallel(calls: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
        assert not thread.is_alive()


def start(client: Client, arrays: Sequence[Array]) -> list["Outcome"]:
    outcomes = [Outcome() for _ in arrays]
    for array, outcome in zip(arrays, outcomes, strict=True):
        client.reduce(array, outcome)
    return outcomes


class Outcome:
    """Takes the end of one reduction."""

    def __init__(self) -> None:
        self.error: PeerError | None = None
        self._done = threading.Event()

    def __call__(self, error: PeerError | None) -> None:
        assert not self._done.is_set(), "done was called twice"
        self.error = error
        self._done.set()

    def wait(self) -> PeerError | None:
        assert self._done.wait(WAIT)
        return self.error


@pytest.mark.parametrize(("arm", "dtype"), [("ps-tcp", np.float32), ("ps-tcp-fp16", np.float16)])
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 1), (3, 2), (5, 3)])
def test_the_mean_is_exact_in_rank_order(arm: str, dtype: type[np.floating], workers: int, servers: int) -> None:
    config = make(arm, workers, servers)
    rng = np.random.default_rng(workers * 10 + servers)
    sizes = [1, 2, 255, 256, 257, 70_000, 3, 0, 256]  # fewer than servers, chunks' edges, none
    steps = 3
    inputs = [[rng.standard_normal(n).astype(dtype) for n in sizes * steps] for _ in range(workers)]
    expected: list[Array] = []
    for parts in zip(*inputs, strict=True):
        total = parts[0].astype(np.float32)
        for part in parts[1:]:
            total = total + part
        expected.append((total / workers).astype(dtype))
    servers_running = Running(config)
    with clients(config) as connected:
        for step in range(steps):
            now = slice(step * len(sizes), (step + 1) * len(sizes))
            outcomes = [start(client, inputs[rank][now]) for rank, client in enumerate(connected)]
            assert all(outcome.wait() is None for of_rank in outcomes for outcome in of_rank)
    servers_running.join()
    assert servers_running.errors == []
    for of_rank in inputs:
        for array, mean in zip(of_rank, expected, strict=True):
            assert array.tobytes() == mean.tobytes()


def test_a_lost_worker_is_named_to_the_others() -> None:
    config = make("ps-tcp", 3, 2)
    running = Running(config)
    with clients(config) as connected:
        outcomes = [start(client, [np.ones(5000, np.float32)]) for client in connected[:2]]
        for connection in connected[2]._connections:
            connection.socket.shutdown(socket.SHUT_RDWR)
        for (outcome,) in outcomes:
            assert "rank 2 (w2, 127.0.1.3)" in str(outcome.wait())
        assert connected[0]._error is not None
        late = start(connected[0], [np.ones(5, np.float32)])
        assert "rank 2" in str(late[0].wait())
    running.join()
    assert all("rank 2 (w2, 127.0.1.3)" in str(error) for error in running.errors)
    assert running.errors


def test_a_worker_that_still_sends_is_not_cut_off_before_it_has_heard_who_is_lost() -> None:
    config = make("ps-tcp", 2, 1)
    running = Running(config)
    server = config.servers[0]
    workers: list[Connection] = []
    for worker in config.workers:
        sock = socket.create_connection((server.address, config.server_port), WAIT, (worker.address, 0))
        workers.append(Connection(sock, f"server {server}"))
        workers[-1].send([(Header(Kind.HELLO, sequence=worker.rank), memoryview(b""))])
    still, lost = workers
    lost.socket.close()
    header = still.receive_header()
    assert header is not None
    assert header.kind == Kind.ERROR
    assert "rank 1 (w1, 127.0.1.2)" in still.receive_text(header)
    for offset in range(0, 8 * 1024, 1024):
        still.send([(Header(Kind.PUSH, 0, offset, 1024, 64 * 1024), memoryview(bytes(1024)))])
        time.sleep(0.01)
    still.send([(Header(Kind.ERROR), memoryview(b""))])
    running.join()
    assert still.receive_header() is None
    still.socket.close()


def test_a_silent_worker_is_named_before_the_others_give_up() -> None:
    config = make("ps-tcp", 3, 1)
    running = Running(config)
    with clients(config) as connected:
        outcomes = [start(client, [np.ones(5000, np.float32)]) for client in (connected[0], connected[2])]
        for (outcome,) in outcomes:
            error = outcome.wait()
            assert "no gradient for 3 s from worker rank 1 (w1, 127.0.1.2)" in str(error)
    running.join()


def test_a_lost_server_is_named() -> None:
    config = make("ps-tcp", 1, 1)
    listener = socket.create_server((config.servers[0].address, config.server_port))
    client = Client(config, 0)
    accepted, _ = listener.accept()
    (outcome,) = start(client, [np.ones(5000, np.float32)])
    accepted.recv(HEADER_BYTES)
    accepted.close()
    listener.close()
    assert "parameter server rank 1 (s0, 127.0.2.1)" in str(outcome.wait())
    client.close()


def test_a_server_that_is_not_there_is_named() -> None:
    config = dataclasses.replace(make("ps-tcp", 1, 1), join_timeout=1)
    with pytest.raises(PeerError, match=r"parameter server rank 1 \(s0, 127\.0\.2\.1\) port \d+: Connection refused"):
        Client(config, 0)


def test_a_worker_that_never_comes_is_named() -> None:
    config = dataclasses.replace(make("ps-tcp", 2, 1), join_timeout=3)
    running = Running(config)
    client = Client(config, 0)
    running.join()
    client.close()
    assert [str(error) for error in running.errors] == ["never joined within 3 s: rank 1 (w1, 127.0.1.2)"]


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "sent what is no frame"),
        (Header(Kind.PUSH, 0, 0, 2**30, 2**31).encode(), "sent"),  # a shard beyond the limit
        (Header(Kind.PUSH, 0, 1024, 1024, 4096).encode(), "sent"),  # not the first chunk
        (Header(Kind.PUSH, 0, 0, 512, 4096).encode(), "sent"),  # not a whole chunk
        (Header(Kind.PUSH, 0, 0, 3, 3).encode(), "sent"),  # not whole elements
        (Header(Kind.MEAN, 0, 0, 1024, 4096).encode(), "sent"),
    ],
)
def test_nonsense_ends_the_run_with_the_name_of_who_sent_it(frame: bytes, complaint: str) -> None:
    config = make("ps-tcp", 1, 1)
    running = Running(config)
    with socket.create_connection((config.servers[0].address, config.server_port), timeout=WAIT) as sock:
        sock.sendall(Header(Kind.HELLO, sequence=0).encode() + frame)
        running.join()
    (error,) = running.errors
    assert "rank 0 (w0, 127.0.1.1) " + complaint in str(error)


def test_workers_that_disagree_on_a_size_are_refused() -> None:
    config = make("ps-tcp", 2, 1)
    running = Running(config)
    with clients(config) as connected:
        outcomes = [start(client, [np.ones(100 + rank, np.float32)]) for rank, client in enumerate(connected)]
        assert all("bytes as reduction 0, others" in str(outcome.wait()) for (outcome,) in outcomes)
    running.join()
