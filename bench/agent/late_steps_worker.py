# SPDX-License-Identifier: Apache-2.0
"""A worker of bench.agent.late_steps: it takes steps, and says how long each took.

A request is a line of JSON: {"compute", "stalls"}, seconds, the stall of each step; the answer {"steps", "left_out",
"summed"}.
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

from bench.harness.worker import serve
from gradlane import Communicator

_WARM_UP = 5  # all-reduces


def main(arguments: Sequence[str]) -> None:
    """Arguments: RANK JOB SOCKET ELEMENTS."""
    rank, job, socket, elements = int(arguments[0]), arguments[1], arguments[2], int(arguments[3])
    communicator = Communicator(job, rank, socket)
    array = communicator.gradient("w", (elements,))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        array[:] = rank
        for _ in range(_WARM_UP):
            communicator.all_reduce(array, name="w")
        steps: list[float] = []
        for stall in request["stalls"]:
            begun = time.monotonic()
            time.sleep(request["compute"] + stall)
            communicator.all_reduce(array, name="w")
            steps.append(time.monotonic() - begun)
        counts = communicator.statistics()
        communicator.close()
        summed = counts["summed_bytes"] / counts["reduced_bytes"]
        return {"steps": steps, "left_out": counts["left_out"], "summed": summed}

    serve(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
