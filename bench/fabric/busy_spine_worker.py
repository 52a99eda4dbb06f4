# SPDX-License-Identifier: Apache-2.0
"""A training process of bench.fabric.busy_spine: it all-reduces a gradient on request, and says how long that took.

Requests on standard input and answers are lines of JSON: {"elements", "count"}, and {"seconds": [of each]}. Arguments:
RANK SIZE JOB SOCKET.
"""

import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.harness.worker import serve
from gradlane import Communicator


def main() -> None:
    """Serves until its input ends."""
    rank, size = int(sys.argv[1]), int(sys.argv[2])
    with Communicator(sys.argv[3], rank, sys.argv[4]) as communicator:
        arrays: dict[int, NDArray[np.float32]] = {}

        def measure(request: dict[str, Any]) -> dict[str, Any]:
            elements = request["elements"]
            array = arrays.setdefault(elements, communicator.empty(elements))
            seconds: list[float] = []
            for _ in range(request["count"]):
                array[:] = rank + 1
                begin = time.perf_counter()
                result = np.asarray(communicator.all_reduce(array, "gradient", op="sum"))
                seconds.append(time.perf_counter() - begin)
                if not np.allclose(result, size * (size + 1) / 2, rtol=1e-3):
                    raise SystemExit(f"the sum is wrong: {result}")
            return {"seconds": seconds}

        serve(measure)


if __name__ == "__main__":
    main()
