# SPDX-License-Identifier: Apache-2.0
"""A worker of bench.agent.stragglers: it all-reduces an array at a given time, and says when that began and ended.

Requests and answers are lines of JSON: {"arm", "at"}, times of the machine's monotonic clock, and {"begun", "done"}.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bench.harness.worker import serve

PORT = 29500


def _gloo(rank: int, size: int, address: str, elements: int) -> Callable[[], bool]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    dist.init_process_group("gloo", init_method=f"tcp://{address}:{PORT}", rank=rank, world_size=size)
    tensor = torch.empty(elements)

    def all_reduce() -> bool:
        tensor.fill_(rank)
        dist.all_reduce(tensor)
        return bool((tensor == size * (size - 1) / 2).all())

    return all_reduce


def _gradlane(rank: int, size: int, job: str, socket: str, elements: int) -> Callable[[], bool]:
    from gradlane import Communicator

    communicator = Communicator(job, rank, socket)
    array = communicator.gradient("w", (elements,), op="sum")

    def all_reduce() -> bool:
        array[:] = rank
        result = communicator.all_reduce(array, name="w", op="sum", out=array)
        return bool((np.asarray(result) == size * (size - 1) / 2).all())

    return all_reduce


def _answer(arms: dict[str, Callable[[], bool]], request: dict[str, Any]) -> dict[str, float]:
    time.sleep(max(0.0, request["at"] - time.monotonic()))
    begun = time.monotonic()
    right = arms[request["arm"]]()
    done = time.monotonic()
    if not right:
        raise SystemExit("the sum is wrong")
    return {"begun": begun, "done": done}


def main(arguments: Sequence[str]) -> None:
    """Arguments: RANK SIZE ELEMENTS, then gloo ADDRESS-OF-0, or SOCKET ARM=JOB..."""
    rank, size, elements = map(int, arguments[:3])
    if arguments[3] == "gloo":
        arms = {"gloo": _gloo(rank, size, arguments[4], elements)}
    else:
        named = (word.split("=", 1) for word in arguments[4:])
        arms = {arm: _gradlane(rank, size, job, arguments[3], elements) for arm, job in named}
    serve(lambda request: _answer(arms, request))


if __name__ == "__main__":
    main(sys.argv[1:])
