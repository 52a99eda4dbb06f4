# SPDX-License-Identifier: Apache-2.0
"""A training process of the soak: all-reduces without end, and looks at every result by itself.

Every rank contributes 1 to each element, and 2 more the higher its rank is, so the exact mean is known, and an element
that is anything else is of a slice that some contribution is missing of. Arguments: RANK RANKS JOB SOCKET TOLERANCE.
"""

import json
import sys
import time

import numpy as np

from gradlane import Communicator

_ELEMENTS = 1 << 16
_SLICE = 256  # elements; transport.slice_bytes of the job is 1024
_SAY_SECONDS = 1.0


def main() -> None:
    """A line of JSON every second: steps so far, slices that lack something, and messages that lack too much."""
    rank, size, path, agent, tolerance = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5], float(sys.argv[5])
    with Communicator(path, rank, agent) as communicator:
        array = communicator.empty(_ELEMENTS)
        exact = np.float32(sum(1 + 2 * k for k in range(size))) / np.float32(size)
        # Each rank owns a part, to which every other rank sends a message.
        parts = np.array_split(np.arange(_ELEMENTS // _SLICE), size)
        steps = lacking = violations = 0
        said = time.monotonic()
        print("ready", flush=True)
        while True:
            array[:] = 1 + 2 * rank
            result = communicator.all_reduce(array, "gradient")
            wrong = (np.asarray(result).reshape(-1, _SLICE) != exact).any(axis=1)
            for part in parts:
                lacking += int(wrong[part].sum())
                # Of size - 1 messages, each may lack so many slices.
                violations += int(wrong[part].sum()) > (size - 1) * int(tolerance * len(part))
            steps += 1
            if time.monotonic() - said > _SAY_SECONDS:
                said = time.monotonic()
                print(json.dumps({"steps": steps, "lacking": lacking, "violations": violations}), flush=True)


if __name__ == "__main__":
    main()
