# SPDX-License-Identifier: Apache-2.0
"""A training process of the soak: all-reduces without end, and looks at every result by itself.

Every rank contributes 1 to each element, and 2 more the higher its rank is, and up to 8 times as much, by the step. So
the exact mean is known, and an element that is anything else is of a slice that some contribution is missing of, or of
another step. Arguments: RANK RANKS JOB SOCKET TOLERANCE.
"""

import json
import sys
import time

import numpy as np
from numpy.typing import NDArray

from gradlane import Communicator

_ELEMENTS = 1 << 16
BYTES = 4 * _ELEMENTS  # of the gradient of a step
_SLICE = 256  # elements; transport.slice_bytes of the job is 1024
_SAY_SECONDS = 1.0


def missing(result: NDArray[np.float32], size: int, times: int = 1) -> NDArray[np.bool_]:
    """By slice: whether some element is not the exact mean of `size` contributions, in a step of so many `times`."""
    exact = np.float32(times * sum(1 + 2 * rank for rank in range(size))) / np.float32(size)
    return (result.reshape(-1, _SLICE) != exact).any(axis=1)


def violations(wrong: NDArray[np.bool_], size: int, tolerance: float) -> int:
    """Owners' parts that lack more than the `size` - 1 messages to them may, by slice."""
    parts = np.array_split(wrong, size)
    return sum(int(part.sum()) > (size - 1) * int(tolerance * len(part)) for part in parts)


def main() -> None:
    """A line of JSON every second: steps so far, slices that lack something, and parts that lack too much."""
    rank, size, path, agent, tolerance = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5], float(sys.argv[5])
    with Communicator(path, rank, agent) as communicator:
        array = communicator.empty(_ELEMENTS)
        steps = lacking = exceeded = 0
        said = time.monotonic()
        print("ready", flush=True)
        while True:
            times = 1 + steps % 8
            array[:] = times * (1 + 2 * rank)
            wrong = missing(np.asarray(communicator.all_reduce(array, "gradient")), size, times)
            lacking += int(wrong.sum())
            exceeded += violations(wrong, size, tolerance)
            steps += 1
            if time.monotonic() - said > _SAY_SECONDS:
                said = time.monotonic()
                print(json.dumps({"steps": steps, "lacking": lacking, "violations": exceeded}), flush=True)


if __name__ == "__main__":
    main()
