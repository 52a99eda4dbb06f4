# SPDX-License-Identifier: Apache-2.0
"""A host whose processes are late has several tensors, or one that follows another."""

import numpy as np
from gradlane._core import ffi, lib

from gradlane.wire import ElementType
from tests.gradlane.core.sums.hosts import SummedHost, job
from tests.gradlane.core.sums.late_trial import STEPS, WINDOW, left_out
from tests.gradlane.core.sums.test_summed_exchange import PARTS
from tests.support.agents import until


def test_what_follows_a_tensor_goes_on_with_it() -> None:
    with job(2, late=(STEPS, WINDOW)) as its:
        flags = [np.zeros(1, np.uint8) for _ in its.hosts]
        for host, flag in zip(its.hosts, flags, strict=True):
            host.tensor(0, PARTS)
            follow(host, flag)

        def step(*ranks: int) -> list[tuple[SummedHost, list[int]]]:
            values = [[np.ones(sum(PARTS), np.float32)]] * 2
            for rank in ranks:
                flags[rank][0] = rank
            return [
                (its.hosts[rank], slots)
                for rank in ranks
                for slots in (its.hosts[rank].submit(0, values[rank]), command(its.hosts[rank], 9))
            ]

        for number in (1, 2, 3):
            late = number == 3
            begun = step(0) if late else step(0, 1)
            if late:
                with its.hosts[1].locked() as exchange:
                    lib.gl_exchange_go_on(exchange, 0, 3)
            for host, slots in begun:
                host.wait(slots)
            assert flags[0][0] == (0 if late else 1)
        for host, slots in step(1):
            host.wait(slots)
        assert flags[1][0] == 0  # as at the others
        until(lambda: its.hosts[1].counts()[0].memory_used == 0)


def test_of_what_follows_a_tensor_its_own_step_is_awaited() -> None:
    """A process may be behind with it, or ahead."""
    with job(2, late=(STEPS, WINDOW)) as its:
        early, late = its.hosts
        for host in its.hosts:
            host.tensor(0, PARTS)
            follow(host, np.zeros(1, np.uint8))
        values = [np.ones(sum(PARTS), np.float32)]

        def go_on(step: int) -> None:
            with late.locked() as exchange:
                lib.gl_exchange_go_on(exchange, 0, step)

        step, follower = early.submit(0, values), command(early, 9)
        late.wait(late.submit(0, values))
        early.wait(step)
        step = early.submit(0, values)
        go_on(2)
        assert late.counts()[1].left_out == 0
        late.wait(command(late, 9))  # and now both go on
        early.wait(follower)
        early.wait(step)
        early.wait(command(early, 9))
        assert late.counts()[1].left_out == 1
        late.wait(late.submit(0, values))
        late.wait(command(late, 9))

        ahead = command(late, 9)
        until(lambda: late.counts()[1].submitted == 5)
        go_on(3)
        step, follower = early.submit(0, values), command(early, 9)
        late.wait(ahead)
        assert late.counts()[1].left_out == 1
        late.wait(late.submit(0, values))
        early.wait(step)
        early.wait(follower)


def test_a_step_of_several_tensors_without_the_processes_counts_once() -> None:
    with job(2, late=(STEPS, WINDOW)) as its:
        early, late = its.hosts
        values = [np.ones(sum(PARTS), np.float32)]
        for host in its.hosts:
            for number in (0, 1):
                host.tensor(number, PARTS)
        for number in (0, 1):
            its.step(number, [values, values])
        for number in (0, 1):
            slots = early.submit(number, values)
            with late.locked() as exchange:
                lib.gl_exchange_go_on(exchange, number, 2)
            early.wait(slots)
        assert late.counts()[1].left_out == 1
        assert left_out(late) == (1, 1)
        for number in (0, 1):
            late.wait(late.submit(number, values))
        for number in (*[0] * WINDOW, 1):  # one that is behind makes nothing recent again
            its.step(number, [values, values])
        assert left_out(late) == (1, 0)


def test_what_is_not_summed_or_waits_for_all_begins_with_the_processes_whatever_others_say() -> None:
    with job(2, late=(STEPS, WINDOW)) as its:
        late = its.hosts[1]
        for host in its.hosts:
            host.tensor(0, PARTS, summed=False)
            host.tensor(1, PARTS, late=False)
        for number in (0, 1):
            with late.locked() as exchange:
                lib.gl_exchange_go_on(exchange, number, 1)
            assert late.counts()[1].left_out == 0
            its.step(number, [[np.full(sum(PARTS), value, np.float32)] for value in (1, 3)])
            for host in its.hosts:
                np.testing.assert_array_equal(host.results[number], 2)


def follow(host: SummedHost, flag: np.ndarray) -> None:
    """Registers tensor 9: one byte, the greatest of all; it follows tensor 0."""
    memory = ffi.from_buffer("uint8_t[]", flag, require_writable=True)
    fields = {
        "id": 9, "element_type": ElementType.UINT8, "reduction": lib.GL_MAX, "elements": 1, "partition_count": 1,
        "partitions": ffi.new("gl_partition[]", [(0, 1, 0, 0, lib.GL_DIRECT, 0)]), "follows": 1, "followed": 0,
        "contributions": ffi.new("uint8_t *[]", [memory]), "result": memory, "layers": ffi.new("uint16_t[]", 1),
    }  # fmt: skip
    host.kept += [fields, memory]
    with host.locked() as exchange:
        assert lib.gl_exchange_tensor(exchange, ffi.new("gl_tensor *", fields)) == 0


def command(host: SummedHost, number: int) -> list[int]:
    described = ffi.new("gl_command *", {"kind": lib.GL_COMMAND_TENSOR, "target": number})
    return [lib.gl_client_submit(client, described) for client in host.clients]
