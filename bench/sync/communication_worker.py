# SPDX-License-Identifier: Apache-2.0
"""A worker of bench.sync.communication: it exchanges an array again and again, and says how long that took.

Requests and answers are lines of JSON: {"arm", "at", "count"}, and seconds per exchange from `at` on, a time of the
machine's monotonic clock.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence

import numpy as np

from bench.harness.worker import serve

_PORT = 29403


def _gloo(rank: int, size: int, address: str, elements: int) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("gloo", init_method=f"tcp://{address}:{_PORT}", rank=rank, world_size=size)
    tensor = torch.ones(elements)

    def all_reduce() -> None:
        dist.all_reduce(tensor)

    return all_reduce


def _gradlane(rank: int, job: str, socket: str, elements: int, scheme: str) -> Callable[[], object]:
    from gradlane import Communicator
    from gradlane.sync import Synchroniser

    communicator = Communicator(job, rank, socket)
    if scheme == "scheme":
        return Synchroniser(communicator, [np.ones(elements, np.float32)]).step
    array = communicator.gradient("w", (elements,))
    array[:] = 1
    return lambda: communicator.all_reduce(array, name="w", out=array)


def _measure(exchange: Callable[[], object], at: float, count: int) -> float:
    time.sleep(max(0.0, at - time.monotonic()))
    for _ in range(count):
        exchange()
    return (time.monotonic() - at) / count


def main(arguments: Sequence[str]) -> None:
    """Arguments: SIZE ELEMENTS ADDRESS-OF-0 RANK SOCKET, and ARM=HOW=JOB for each, HOW all-reduce or scheme."""
    size, elements, rank = int(arguments[0]), int(arguments[1]), int(arguments[3])
    address, socket = arguments[2], arguments[4]
    arms = {"gloo": _gloo(rank, size, address, elements)}
    for word in arguments[5:]:
        arm, how, job = word.split("=", 2)
        arms[arm] = _gradlane(rank, job, socket, elements, how)
    serve(lambda request: _measure(arms[request["arm"]], request["at"], request["count"]))


if __name__ == "__main__":
    main(sys.argv[1:])
