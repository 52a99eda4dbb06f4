# SPDX-License-Identifier: Apache-2.0
"""A host's exchange on a runner: turns that end, tensors that come again, the phase that its datagrams tell."""

import contextlib
import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane.wire import HEADER_BYTES, Flag, Header, Kind
from tests.gradlane.core.protocol.network import TOKEN
from tests.support.agents import until

SLICE = 64
PATIENCE = 30.0


def address_of(sock: socket.socket) -> bytes:
    host, port = sock.getsockname()
    return struct.pack("=H", socket.AF_INET) + struct.pack(">H4s", port, socket.inet_aton(host))


class Host:
    """Rank 0 with one process, and a socket in place of rank 1, if there is one."""

    def __init__(
        self,
        workers: int = 1,
        servers: int = 0,
        loss: tuple[int, int] = (0, 0),
        window: int = 0,
        late: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        self.own, self.other = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
        for sock in (self.own, self.other):
            sock.bind(("127.0.0.1", 0))
        self.other.settimeout(PATIENCE)
        self.runner = lib.gl_runner_new()
        self.rows = ffi.new("gl_loss[]", [(0, 65535, *loss)])
        config = ffi.new(
            "gl_config *",
            {
                "job": 3, "rank": 0, "workers": workers, "servers": servers, "slice_bytes": SLICE, "token": TOKEN,
                "window": 64, "rate": 10**9, "buffer": 64_000, "loss_count": 1, "losses": self.rows, "memory": 1 << 20,
                "critical": 500_000, "late_after": late[0], "late_steps": late[1], "late_window": late[2],
            },
        )  # fmt: skip
        self.engine = lib.gl_engine_new(config)
        peers = ffi.new("struct sockaddr_storage[2]")
        for k, sock in enumerate((self.own, self.other)):
            packed = address_of(sock)
            ffi.memmove(ffi.addressof(peers, k), packed, len(packed))
        assert lib.gl_runner_socket(self.runner, self.own.fileno()) == 0
        assert lib.gl_runner_add(self.runner, self.engine, self.own.fileno(), peers, 2, ffi.NULL, ffi.NULL) == 0
        self.notify = os.eventfd(0, os.EFD_NONBLOCK)
        settings = {"host": 0, "hosts": workers, "servers": servers, "processes": 1, "slice_bytes": SLICE,
                    "critical": 0.5, "threshold": 0.5, "window": window, "late_steps": late[1]}  # fmt: skip
        config = ffi.new("gl_exchange_config *", settings)
        self.exchange = lib.gl_exchange_new(self.runner, self.engine, config, self.notify)
        self.channel = mmap.mmap(-1, lib.gl_channel_bytes())
        pointer = ffi.from_buffer("uint8_t[]", self.channel, require_writable=True)
        self.kicks, kick = os.pipe2(os.O_NONBLOCK)
        assert lib.gl_exchange_open(self.exchange, 0, pointer, self.kicks) == 0
        self.client = ffi.gc(lib.gl_client_new(pointer, kick), lib.gl_client_free)
        self.kept: list[object] = []
        self.thread = threading.Thread(target=lib.gl_runner_run, args=(self.runner,))

    def close(self) -> None:
        lib.gl_runner_stop(self.runner)
        self.thread.join()
        lib.gl_exchange_stop(self.exchange)
        lib.gl_runner_remove(self.runner, self.engine)
        lib.gl_engine_free(self.engine)
        lib.gl_exchange_free(self.exchange)
        lib.gl_runner_free(self.runner)
        for fd in (self.notify, self.kicks):
            os.close(fd)
        self.own.close(), self.other.close()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        lib.gl_runner_lock(self.runner)
        try:
            yield
        finally:
            lib.gl_runner_unlock(self.runner)

    def failure(self) -> str:
        with self.locked():
            return ffi.string(lib.gl_exchange_failure(self.exchange).text).decode()

    def tensor(
        self, values: np.ndarray, loss: tuple[int, int] = (0, 0), algorithm: int = lib.GL_DIRECT, late: bool = False
    ) -> np.ndarray:
        """Registers tensor 0, the sum of `values`, or their mean that may be without who is late; returns where its
        result comes."""
        reduction = lib.GL_MEAN_OF_ARRIVED if late else lib.GL_SUM
        result = np.zeros_like(values)
        slices = -(-values.nbytes // SLICE)
        fields = {
            "id": 0, "element_type": 1, "reduction": reduction, "feedback": 1, "elements": values.size,
            "contributions": ffi.new("uint8_t *[]", [ffi.from_buffer("uint8_t[]", values)]),
            "result": ffi.from_buffer("uint8_t[]", result), "partition_count": 1,
            "partitions": ffi.new("gl_partition[]", [(0, values.size, *loss, algorithm, late)]),
            "layers": ffi.new("uint16_t[]", slices),
        }  # fmt: skip
        self.kept.append(fields)
        with self.locked():
            assert lib.gl_exchange_tensor(self.exchange, ffi.new("gl_tensor *", fields)) == 0
        return result

    def release(self) -> None:
        with self.locked():
            released = lib.gl_exchange_release_tensor(self.exchange, 0)
        assert released != ffi.NULL
        lib.gl_tensor_free(released)

    def submit(self, **command: int) -> int:
        return lib.gl_client_submit(self.client, ffi.new("gl_command *", command))

    def wait(self, slot: int) -> None:
        """Until a command is done."""
        for _ in range(int(PATIENCE * 10)):
            if lib.gl_client_wait(self.client, slot, 100_000) == lib.GL_DONE:
                lib.gl_client_release(self.client, slot)
                return
            assert not self.failure(), self.failure()
        raise AssertionError(f"command {slot} is not done")

    def receive(self, kind: Kind, pull: bool = False) -> tuple[Header, bytes]:
        """The next datagram of that kind that comes to rank 1."""
        while True:
            data = self.other.recv(65536)
            assert not self.failure(), self.failure()  # PROBEs come on and on
            header = Header.unpack(data)
            if header.kind == kind and bool(header.flags & Flag.PULL) == pull:
                return header, data[HEADER_BYTES:]

    def send(self, header: Header, payload: bytes = b"") -> None:
        self.other.sendto(replace(header, source=1, length=len(payload)).pack() + payload, self.own.getsockname())


@contextlib.contextmanager
def host(**settings: object) -> Iterator[Host]:
    made = Host(**settings)
    try:
        yield made
    finally:
        made.close()


def play_rank_1(rank_0: Host, number: int, values: Sequence[float]) -> int:
    """One all-reduce of two slices, the second is rank 1's; rank 0's result is never stopped. Returns its step."""
    push, theirs = rank_0.receive(Kind.DATA)
    stop = replace(push, kind=Kind.STOP, flags=0)
    rank_0.send(stop, b"\x01")
    mine = np.array(values, np.float32)
    base = Header(kind=Kind.DATA, job=3, source=1, message=2 * number * 2 + 1, token=TOKEN, step=push.step,
                  element_type=push.element_type, flags=Flag.END)  # fmt: skip
    rank_0.send(base, mine[: SLICE // 4].tobytes())
    total = np.frombuffer(theirs, np.float32) + mine[SLICE // 4 :]
    rank_0.send(replace(base, message=base.message + 2, flags=Flag.END | Flag.PULL, magnitude=255), total.tobytes())
    return push.step


def test_a_tensor_that_is_registered_anew_does_not_meet_its_predecessor() -> None:
    """Rank 1 has not told yet that it has rank 0's result of the first step: it may ask for a repair."""
    ones = np.ones(SLICE // 2, np.float32)
    with host(workers=2) as rank_0:
        rank_0.thread.start()
        steps = []
        for number in range(3):
            result = rank_0.tensor(ones)
            slot = rank_0.submit(kind=lib.GL_COMMAND_TENSOR, target=0)
            steps.append(play_rank_1(rank_0, number, [number] * ones.size))
            rank_0.wait(slot)
            np.testing.assert_array_equal(result, ones + number)
            rank_0.release()
        assert steps == [1, 2, 3]


@pytest.mark.parametrize("window", [0, 5])
def test_servers_are_told_of_critical_phases(window: int) -> None:
    values = np.ones(100 * SLICE // 4, np.float32)
    with host(servers=1, loss=(200_000, 100_000), window=window) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(values, (200_000, 100_000))
        rank_0.submit(kind=lib.GL_COMMAND_TENSOR, target=0)
        header, _ = rank_0.receive(Kind.DATA)
        assert bool(header.flags & Flag.CRITICAL) == (window > 0)
        assert header.budget == (10 if window else 20)


@pytest.mark.parametrize(("part", "budget"), [(None, 8), (500_000, 4), (30_000, 0), (0, 0), (10**6, 8), (3 * 10**6, 8)])
def test_what_a_controller_leaves_of_a_tolerance_is_the_budget_of_messages(part: int | None, budget: int) -> None:
    with host(workers=2, loss=(500_000, 0)) as rank_0:
        rank_0.thread.start()
        rank_0.tensor(np.ones(2 * SLICE // 4 * 16, np.float32), (500_000, 0))  # 16 slices are rank 1's
        if part is not None:
            with rank_0.locked():
                lib.gl_exchange_grant(rank_0.exchange, part)
        rank_0.submit(kind=lib.GL_COMMAND_TENSOR, target=0)
        push, _ = rank_0.receive(Kind.DATA)
        assert (push.slices, push.budget) == (16, budget)


def test_what_is_in_flight_is_neither_released_nor_read_nor_begun_again() -> None:
    ones = np.ones(SLICE, np.float32)
    with host(workers=2, loss=(300_000, 0)) as rank_0:
        rank_0.thread.start()
        with rank_0.locked():
            region = ffi.from_buffer("uint8_t[]", ones)
            assert lib.gl_exchange_region(rank_0.exchange, 0, 0, region, ones.nbytes) == 0
            hosts, members = ffi.new("uint16_t[]", [0, 1]), ffi.new("uint16_t[]", [0])
            group = {"id": 0, "host_count": 2, "member_count": 1, "hosts": hosts, "members": members,
                     "algorithms": [lib.GL_DIRECT] * lib.GL_SIZE_CLASSES}  # fmt: skip
            assert lib.gl_exchange_group(rank_0.exchange, ffi.new("gl_group *", group)) == 0
        rank_0.tensor(np.ones(SLICE, np.float32), (300_000, 0))
        rank_0.submit(kind=lib.GL_COMMAND_TENSOR, target=0)
        rank_0.submit(
            kind=lib.GL_COMMAND_COLLECTIVE, target=0, collective=lib.GL_ALL_REDUCE, element_type=1,
            reduction=lib.GL_SUM, elements=SLICE,
        )  # fmt: skip
        until(lambda: lib.gl_exchange_under_way(rank_0.exchange) == 2)
        with rank_0.locked():
            assert lib.gl_exchange_release_region(rank_0.exchange, 0, 0) == -1
            assert lib.gl_exchange_release_tensor(rank_0.exchange, 0) == ffi.NULL
            assert lib.gl_exchange_residual(rank_0.exchange, 0, 0, ffi.new("uint8_t[]", ones.nbytes), False) == -1
        rank_0.submit(kind=lib.GL_COMMAND_TENSOR, target=0)
        until(rank_0.failure)
        assert rank_0.failure() == "submitted while it is in flight"


def test_what_is_called_of_a_group_that_was_closed_before_it_was_registered_is_lost() -> None:
    ones = np.ones(SLICE, np.float32)
    with host(workers=2) as rank_0:
        rank_0.thread.start()
        hosts, members = ffi.new("uint16_t[]", [0, 1]), ffi.new("uint16_t[]", [0])
        with rank_0.locked():
            lib.gl_exchange_close(rank_0.exchange, 3)
            region = ffi.from_buffer("uint8_t[]", ones)
            assert lib.gl_exchange_region(rank_0.exchange, 0, 0, region, ones.nbytes) == 0
            group = {"id": 3, "host_count": 2, "member_count": 1, "hosts": hosts, "members": members,
                     "algorithms": [lib.GL_DIRECT] * lib.GL_SIZE_CLASSES}  # fmt: skip
            assert lib.gl_exchange_group(rank_0.exchange, ffi.new("gl_group *", group)) == 0
        slot = rank_0.submit(
            kind=lib.GL_COMMAND_COLLECTIVE, target=3, collective=lib.GL_ALL_REDUCE, element_type=1,
            reduction=lib.GL_SUM, elements=SLICE,
        )  # fmt: skip
        until(lambda: lib.gl_client_state(rank_0.client, slot) != 0)
        assert lib.gl_client_state(rank_0.client, slot) == lib.GL_LOST
        assert not rank_0.failure()


def test_a_neighbour_has_its_turn_after_a_few_mebibytes() -> None:
    """Between two turns of another descriptor of the runner, no more than one of these operations is completed."""
    size, count = 8 << 20, 24
    with host() as one:
        memory = np.ones(2 * size, np.uint8)
        region = ffi.from_buffer("uint8_t[]", memory)
        with one.locked():
            assert lib.gl_exchange_region(one.exchange, 0, 0, region, memory.nbytes) == 0
            zero = ffi.new("uint16_t[]", [0])
            group = {"id": 0, "host_count": 1, "member_count": 1, "hosts": zero, "members": zero}
            assert lib.gl_exchange_group(one.exchange, ffi.new("gl_group *", group)) == 0
        command = {
            "kind": lib.GL_COMMAND_COLLECTIVE, "target": 0, "collective": lib.GL_ALL_REDUCE, "element_type": 5,
            "reduction": lib.GL_SUM, "elements": size, "in": 0, "out": size,
        }  # fmt: skip
        slots = [one.submit(**command) for _ in range(count)]
        seen: list[int] = []
        always = os.eventfd(1, os.EFD_NONBLOCK)  # readable, as nobody reads it

        @ffi.callback("gl_ready")
        def neighbour(_context: object, _now: int) -> None:
            seen.append(sum(lib.gl_client_state(one.client, slot) == lib.GL_DONE for slot in slots))
            if seen[-1] == count:
                lib.gl_runner_stop(one.runner)

        assert lib.gl_runner_watch(one.runner, always, neighbour, ffi.NULL) == 0
        lib.gl_runner_run(one.runner)
        lib.gl_runner_unwatch(one.runner, always)
        os.close(always)
        one.thread = threading.Thread(target=lambda: None)
        one.thread.start()
        assert max(np.diff(seen)) <= 1
        assert seen[-1] == count
