# SPDX-License-Identifier: Apache-2.0
"""A host whose processes are late has several tensors, or one that follows another."""

import numpy as np
from gradlane._core import ffi, lib

from gradlane.wire import ElementType
from tests.gradlane.core.sums.hosts import SummedHost, job
from tests.gradlane.core.sums.late_trial import STEPS, WINDOW
from tests.gradlane.core.sums.test_summed_exchange import PARTS


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
