# SPDX-License-Identifier: Apache-2.0
"""Hosts with several processes each, on sockets, and a thread that sums as a switch does."""

import contextlib
import mmap
import os
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from gradlane._core import ffi, lib

from gradlane.wire import ElementType, Flag, Header, Lanes
from tests.gradlane.core.protocol.network import TOKEN
from tests.gradlane.core.test_exchange import PATIENCE, address_of
from tests.support.fixed_point import FixedPoint
from tests.support.sum_switch import Contributor, SumSwitch

SLICE, WINDOW, SLOTS, GENERATION = 272, 4, 32, 7


class SwitchThread:
    """Sums what comes to its socket; results go to all `hosts`, or to who asked again. `loses`: what does not come.
    What is for no switch goes to rank 0."""

    def __init__(self, workers: int) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.hosts: list[tuple[str, int]] = []
        self.taken: list[Header] = []
        self.loses: Callable[[Header], bool] = lambda header: False
        self._rows = [Contributor(1 << rank, (1 << workers) - 1, 0, SLOTS - 1, epoch=1) for rank in range(workers)]
        self._thread = threading.Thread(target=self._serve)

    def start(self) -> None:
        self._thread.start()

    def _serve(self) -> None:
        switch = SumSwitch()
        while datagram := self.socket.recv(65536):
            header = Header.unpack(datagram)
            self.taken.append(header)
            if self.loses(header):
                continue
            if not header.flags & Flag.SUM:
                self.socket.sendto(datagram, self.hosts[0])
                continue
            outcome = switch.take(self._rows[header.source], datagram)
            if outcome.datagram is not None:
                for host in self.hosts if outcome.to_all else [self.hosts[header.source]]:
                    self.socket.sendto(outcome.datagram, host)

    def close(self) -> None:
        self.socket.sendto(b"", self.socket.getsockname())
        self._thread.join()
        self.socket.close()


class SummedHost:
    """A host of a job with sums, and its processes."""

    def __init__(
        self,
        rank: int,
        workers: int,
        processes: int,
        lanes: Lanes,
        loss: int,
        late: tuple[int, int],
        memory: int,
        after: int,
    ) -> None:
        """`loss`: of a push, parts per million. `late`: of how many of how many steps a late host is left out; `after`:
        one that is so late (us) where hosts reduce."""
        self.rank, self.workers, self.processes, self.loss, self.late = rank, workers, processes, loss, late
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.runner = lib.gl_runner_new()
        config = {
            "job": 3, "rank": rank, "workers": workers, "slice_bytes": SLICE, "token": TOKEN, "window": 64,
            "rate": 10**9, "buffer": 64_000, "memory": memory, "critical": 10**6,
            "sums": (lanes, SLOTS, WINDOW, GENERATION),
            "late_after": after, "late_steps": late[0], "late_window": late[1],
            "loss_count": 1, "losses": (losses := ffi.new("gl_loss[]", [(0, 65535, loss, 0)])),
        }  # fmt: skip
        self.engine = lib.gl_engine_new(ffi.new("gl_config *", config))
        self.notify = os.eventfd(0, os.EFD_NONBLOCK)
        settings = {"host": rank, "hosts": workers, "processes": processes, "slice_bytes": SLICE, "critical": 1.0,
                    "late_steps": late[0], "generation": GENERATION}  # fmt: skip
        self.kept: list[object] = [losses]
        self.results: dict[int, np.ndarray] = {}
        self.contributions: dict[int, list[np.ndarray]] = {}
        self._settings = settings

    def start(self, addresses: Sequence[bytes]) -> None:
        """`addresses`: of all ranks, nothing, and the switch."""
        peers = ffi.new("struct sockaddr_storage[]", len(addresses))
        for k, packed in enumerate(addresses):
            ffi.memmove(ffi.addressof(peers, k), packed, len(packed))
        assert lib.gl_runner_socket(self.runner, self.socket.fileno()) == 0
        code = lib.gl_runner_add(
            self.runner, self.engine, self.socket.fileno(), peers, len(addresses), ffi.NULL, ffi.NULL
        )
        assert code == 0
        config = ffi.new("gl_exchange_config *", self._settings)
        self.exchange = lib.gl_exchange_new(self.runner, self.engine, config, self.notify)
        self.kicks, self.clients = list[int](), []
        for k in range(self.processes):
            kicks, kick = os.pipe2(os.O_NONBLOCK)
            self.kicks.append(kicks)
            channel = mmap.mmap(-1, lib.gl_channel_bytes())
            pointer = ffi.from_buffer("uint8_t[]", channel, require_writable=True)
            self.kept.append(channel)
            assert lib.gl_exchange_open(self.exchange, k, pointer, kicks) == 0
            self.clients.append(ffi.gc(lib.gl_client_new(pointer, kick), lib.gl_client_free))
        self.thread = threading.Thread(target=lib.gl_runner_run, args=(self.runner,))
        self.thread.start()

    def close(self) -> None:
        lib.gl_runner_stop(self.runner)
        self.thread.join()
        lib.gl_exchange_stop(self.exchange)
        lib.gl_runner_remove(self.runner, self.engine)
        lib.gl_engine_free(self.engine)
        lib.gl_exchange_free(self.exchange)
        lib.gl_runner_free(self.runner)
        for fd in (self.notify, *self.kicks):  # the other end of each pipe is the client's
            os.close(fd)
        self.socket.close()

    @contextlib.contextmanager
    def locked(self) -> Generator[Any]:
        """Around calls on the exchange, which it gives."""
        lib.gl_runner_lock(self.runner)
        try:
            yield self.exchange
        finally:
            lib.gl_runner_unlock(self.runner)

    def tensor(
        self, number: int, parts: Sequence[int], *, mean: bool = True, summed: bool = True, late: bool = True
    ) -> None:
        """Registers a tensor of so many elements in each partition. `late`: if late hosts are left out at all."""
        total = sum(parts)
        self.contributions[number] = [np.zeros(total, np.float32) for _ in range(self.processes)]
        self.results[number] = np.zeros(total, np.float32)
        starts = np.cumsum([0, *parts])
        late &= self.late[0] > 0
        rows = [(int(starts[k]), count, self.loss, 0, lib.GL_DIRECT, late) for k, count in enumerate(parts)]
        slices = sum(-(-count * 4 // SLICE) for count in parts)
        fields = {
            "id": number, "element_type": ElementType.FLOAT32,
            "reduction": lib.GL_MEAN_OF_ARRIVED if mean else lib.GL_SUM, "feedback": 1, "summed": summed,
            "elements": total, "partition_count": len(parts), "partitions": ffi.new("gl_partition[]", rows),
            "contributions": ffi.new(
                "uint8_t *[]", [ffi.from_buffer("uint8_t[]", c) for c in self.contributions[number]]
            ),
            "result": ffi.from_buffer("uint8_t[]", self.results[number]), "layers": ffi.new("uint16_t[]", slices),
        }  # fmt: skip
        self.kept.append(fields)
        with self.locked() as exchange:
            assert lib.gl_exchange_tensor(exchange, ffi.new("gl_tensor *", fields)) == 0

    def release(self, number: int) -> None:
        with self.locked() as exchange:
            released = lib.gl_exchange_release_tensor(exchange, number)
        assert released != ffi.NULL
        lib.gl_tensor_free(released)

    def submit(self, number: int, values: Sequence[np.ndarray]) -> list[int]:
        """Each process its own; returns what `wait` takes."""
        command = ffi.new("gl_command *", {"kind": lib.GL_COMMAND_TENSOR, "target": number})
        for contribution, its in zip(self.contributions[number], values, strict=True):
            contribution[:] = its
        return [lib.gl_client_submit(client, command) for client in self.clients]

    def wait(self, slots: Sequence[int]) -> None:
        """Until these are done."""
        for client, slot in zip(self.clients, slots, strict=True):
            for _ in range(int(PATIENCE * 10)):
                if lib.gl_client_wait(client, slot, 100_000) == lib.GL_DONE:
                    break
                with self.locked() as exchange:
                    assert not lib.gl_exchange_failure(exchange).kind
            else:
                raise AssertionError(f"command {slot} is not done")
            lib.gl_client_release(client, slot)

    def owed(self, number: int, parts: int) -> np.ndarray:
        """What the network owes to a tensor."""
        values = np.zeros_like(self.results[number])
        for k in range(parts):
            with self.locked() as exchange:
                left = lib.gl_exchange_residual(exchange, number, k, ffi.from_buffer("uint8_t[]", values), False)
            assert left == parts - 1 - k
        return values

    def counts(self) -> Any:
        """Its gl_statistics and gl_exchange_statistics."""
        of_exchange = ffi.new("gl_exchange_statistics *")
        with self.locked() as exchange:
            lib.gl_exchange_counts(exchange, of_exchange)
            return ffi.new("gl_statistics *", lib.gl_engine_statistics(self.engine)[0]), of_exchange

    def plan(self, first: int, generation: int) -> None:
        """From that step on sums are of this generation; 0: the switch has none."""
        weights = ffi.new("uint32_t[]", [1] * self.workers)
        plan = ffi.new("gl_step_plan *", {"algorithm": lib.GL_DIRECT, "weights": weights, "generation": generation})
        with self.locked() as exchange:
            assert lib.gl_exchange_plan(exchange, first, plan) == 0


class Job:
    """All hosts of a job and its switch. `numbers`, `per_slice`, `workers`: for an Oracle."""

    def __init__(self, workers: int, processes: int, lanes: Lanes = Lanes.INT16_LANES, loss: int = 0,
                 late: tuple[int, int] = (0, 0), memory: int = 1 << 20, after: int = 5_000_000,
                 relayed: int = -1) -> None:  # fmt: skip
        self.workers, self.processes = workers, processes
        self.numbers = FixedPoint(lanes, workers)
        self.per_slice = (SLICE - 12) // 128 * self.numbers.lanes_of_word
        self.switch = SwitchThread(workers)
        self.hosts = [SummedHost(rank, workers, processes, lanes, loss, late, memory, after) for rank in range(workers)]
        self.switch.hosts = [host.socket.getsockname() for host in self.hosts]
        addresses = [address_of(host.socket) for host in self.hosts]
        self.switch.start()
        for host in self.hosts:
            first = address_of(self.switch.socket) if host.rank == relayed else addresses[0]
            host.start([first, *addresses[1:], b"", address_of(self.switch.socket)])

    def close(self) -> None:
        for host in self.hosts:
            host.close()
        self.switch.close()

    def step(self, number: int, values: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        """A step of all: by host and process what it contributes. Returns the results."""
        slots = [host.submit(number, its) for host, its in zip(self.hosts, values, strict=True)]
        for host, its in zip(self.hosts, slots, strict=True):
            host.wait(its)
        return [host.results[number].copy() for host in self.hosts]


@contextlib.contextmanager
def job(
    workers: int = 2,
    processes: int = 1,
    lanes: Lanes = Lanes.INT16_LANES,
    loss: int = 0,
    late: tuple[int, int] = (0, 0),
    memory: int = 1 << 20,
    after: int = 5_000_000,
    relayed: int = -1,
) -> Generator[Job]:
    """`relayed`: what this rank sends to rank 0 goes by the switch."""
    made = Job(workers, processes, lanes, loss, late, memory, after, relayed)
    try:
        yield made
    finally:
        made.close()
