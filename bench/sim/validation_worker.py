# SPDX-License-Identifier: Apache-2.0
"""A worker of bench.sim.validation: all-reduces that all ranks begin at the same times of the machine's clock.

Arguments: RANK JOB SOCKET. Requests and answers are lines of JSON: {"bytes", "count", "start": s of CLOCK_MONOTONIC,
"period": s}, and {"seconds": [of each]}.
"""

import sys
import time
from typing import Any

import numpy as np

from bench.harness.worker import serve
from gradlane import Communicator


def main() -> None:
    rank = int(sys.argv[1])
    communicator = Communicator(sys.argv[2], rank, sys.argv[3])
    arrays: dict[int, Any] = {}

    def measure(request: dict[str, Any]) -> dict[str, list[float]]:
        size: int = request["bytes"]
        if size not in arrays:
            arrays[size] = communicator.empty(size // 4)
            arrays[size][:] = np.random.default_rng(rank).standard_normal(size // 4)
        seconds: list[float] = []
        for n in range(request["count"]):
            time.sleep(max(0.0, request["start"] + n * request["period"] - time.monotonic()))
            begin = time.perf_counter()
            communicator.all_reduce(arrays[size], f"gradient {size}", out=arrays[size])
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds}

    serve(measure)
    communicator.close()


if __name__ == "__main__":
    main()
