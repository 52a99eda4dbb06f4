# SPDX-License-Identifier: Apache-2.0
"""A training process for bench/agent.py: it all-reduces what it is told to, and says how long it took.

Requests on standard input and answers are lines of JSON: {"variant", "elements", "count"}, and {"seconds": [of each],
"cpu": seconds}.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PORT = 29400


class Gloo:
    """torch.distributed on TCP."""

    def __init__(self, rank: int, size: int, address: str) -> None:
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        self._torch, self._all_reduce = torch, dist.all_reduce
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        dist.init_process_group("gloo", init_method=f"tcp://{address}:{PORT}", rank=rank, world_size=size)

    def prepare(self, variant: str, elements: int) -> tuple[Any, Callable[[], Any]]:
        """The array, and what all-reduces it in place."""
        del variant
        tensor = self._torch.empty(elements)

        def all_reduce() -> None:
            self._all_reduce(tensor)

        return tensor.numpy(), all_reduce

    def close(self) -> None:
        """Leaves."""


class Gradlane:
    """gradlane.Communicator; `variant` "shared" is an array of its own, "plain" any other."""

    def __init__(self, rank: int, job: str, socket: str) -> None:
        from gradlane import Communicator

        self._communicator = Communicator(job, rank, socket)

    def prepare(self, variant: str, elements: int) -> tuple[Any, Callable[[], Any]]:
        """The array, and what all-reduces it in place."""
        array = self._communicator.empty(elements) if variant == "shared" else np.empty(elements, np.float32)
        return array, lambda: self._communicator.all_reduce(array, op="sum", out=array)

    def close(self) -> None:
        """Leaves the job."""
        self._communicator.close()


def _measure(side: Gloo | Gradlane, rank: int, size: int, request: dict[str, Any]) -> dict[str, Any]:
    array, all_reduce = side.prepare(request["variant"], request["elements"])
    array[:] = rank + 1
    all_reduce()
    if not (array == size * (size + 1) / 2).all():
        raise SystemExit(f"the sum is wrong: {array}")
    array[:] = 0  # or it would grow without end
    all_reduce()
    seconds: list[float] = []
    cpu = time.process_time()
    for _ in range(request["count"]):
        begin = time.perf_counter()
        all_reduce()
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds, "cpu": time.process_time() - cpu}


def main() -> None:
    """Arguments: gloo RANK SIZE ADDRESS-OF-0, or gradlane RANK SIZE JOB SOCKET."""
    kind, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    side = Gloo(rank, size, sys.argv[4]) if kind == "gloo" else Gradlane(rank, *sys.argv[4:6])
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(_measure(side, rank, size, json.loads(line))), flush=True)
    side.close()


if __name__ == "__main__":
    main()
