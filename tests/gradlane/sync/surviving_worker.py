# SPDX-License-Identifier: Apache-2.0
"""A worker of a job that outlives deaths: python -m ... JOB RANK SOCKET. It takes steps until its stdin says "end"."""

import select
import sys
import time
from typing import Any

import numpy as np

import gradlane
from gradlane.sync import Synchroniser

COUNT = 50_000


def said(timeout: float) -> str:
    """A line of stdin, "" if none has come by then."""
    return sys.stdin.readline().strip() if select.select([sys.stdin], [], [], timeout)[0] else ""


def tell(*words: Any) -> None:
    print(*words, flush=True)


def main() -> None:
    file, rank, socket = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    target = np.full(COUNT, float(rank))
    weights = np.zeros(COUNT)
    comm = gradlane.Communicator(file, rank, socket)
    synchroniser = Synchroniser(comm, [weights])
    tell("joined")
    step = 0
    while (word := said(0.01)) != "end":
        if word == "hang":
            time.sleep(1000)
        weights += 0.1 * (target - weights)
        synchroniser.step()
        assert np.ptp(weights) < 1e-9, "all elements are alike: none is half of an average"
        step += 1
        tell("step", step)
    synchroniser.average()
    tell("average", weights[0], np.ptp(weights))
    synchroniser.close()
    comm.close()
    tell("closed")


if __name__ == "__main__":
    main()
