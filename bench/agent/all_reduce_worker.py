# SPDX-License-Identifier: Apache-2.0
"""A training process of bench.agent.all_reduce: it all-reduces arrays on request, and says how long that took.

Requests on standard input and answers are lines of JSON: {"variant", "elements", "count"}, and {"begun": s of the
machine's monotonic clock, "seconds": [of each], "cpu": seconds}.
"""

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.harness.worker import serve

# Each process imports what its own side needs, and no more: no library's threads beside the other's.


class Torch:
    """torch.distributed; `variant` "gloo" is its Gloo on TCP, any other the backend "gradlane"."""

    def __init__(self, rank: int, size: int, interface: str, address: str, job: str, socket: str) -> None:
        import torch
        import torch.distributed as dist

        import gradlane.torch  # noqa: F401 - registers the backend  # pyright: ignore[reportUnusedImport]

        torch.set_num_threads(1)
        self._torch, self._dist = torch, dist
        os.environ |= {"GLOO_SOCKET_IFNAME": interface, "GRADLANE_JOB": job, "GRADLANE_SOCKET": socket}
        dist.init_process_group("gloo", init_method=f"tcp://{address}", rank=rank, world_size=size)
        self._gradlane = dist.new_group(backend="gradlane")

    def prepare(self, variant: str, elements: int) -> tuple[Any, Callable[[], Any]]:
        """The array, and what all-reduces it: always in place."""
        tensor = self._torch.empty(elements)
        array = tensor.numpy()
        group = None if variant == "gloo" else self._gradlane

        def all_reduce() -> Any:
            self._dist.all_reduce(tensor, group=group)
            return array

        return array, all_reduce

    def close(self) -> None:
        """Leaves the job."""
        self._dist.destroy_process_group(self._gradlane)


class Gradlane:
    """gradlane.Communicator; `variant` "shared" is an array of its own in place, else any other, to a new one."""

    def __init__(self, rank: int, job: str, socket: str) -> None:
        from gradlane import Communicator

        self._communicator = Communicator(job, rank, socket)

    def prepare(self, variant: str, elements: int) -> tuple[Any, Callable[[], Any]]:
        """The array, and what all-reduces it."""
        shared = variant == "shared"
        array = self._communicator.empty(elements) if shared else np.empty(elements, np.float32)
        return array, lambda: self._communicator.all_reduce(array, op="sum", out=array if shared else None)

    def close(self) -> None:
        """Leaves the job."""
        self._communicator.close()


def _measure(side: Torch | Gradlane, rank: int, size: int, request: dict[str, Any]) -> dict[str, Any]:
    array, all_reduce = side.prepare(request["variant"], request["elements"])
    array[:] = rank + 1
    result = all_reduce()
    if not (result == size * (size + 1) / 2).all():
        raise SystemExit(f"the sum is wrong: {result}")
    array[:] = 0  # or it would grow without end
    result = all_reduce()
    seconds: list[float] = []
    cpu, begun = time.process_time(), time.monotonic()
    for _ in range(request["count"]):
        begin = time.perf_counter()
        result = all_reduce()  # the one before stays until then, as in a training loop
        seconds.append(time.perf_counter() - begin)
    return {"begun": begun, "seconds": seconds, "cpu": time.process_time() - cpu}


def main() -> None:
    """Arguments: SIDE RANK SIZE JOB SOCKET; of torch's sides INTERFACE ADDRESS-OF-0:PORT before JOB."""
    kind, rank, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    side = Torch(rank, size, *sys.argv[4:8]) if "torch" in kind else Gradlane(rank, *sys.argv[4:6])
    serve(lambda request: _measure(side, rank, size, request))
    side.close()


if __name__ == "__main__":
    main()
