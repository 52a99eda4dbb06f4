# SPDX-License-Identifier: Apache-2.0
"""A rank that says which part of its steps lies between the departure of its first bucket and that of its last."""

import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import gradlane.keras
from gradlane.data_parallel.bucket import Bucket
from tests.frameworks import problem

LAYERS, WIDTH, BATCH, STEPS = 12, 512, 512, 8


LEFT: list[tuple[float, int]] = []  # when a bucket left, and its first variable


def note(start: Callable[[Bucket, Any], None]) -> Callable[[Bucket, Any], None]:
    def noted(bucket: Bucket, take: Any) -> None:
        LEFT.append((time.monotonic(), bucket.places[0]))
        start(bucket, take)

    return noted


def main() -> None:
    gradlane.keras.init()
    Bucket.start_by = note(Bucket.start_by)
    model = keras.Sequential([keras.Input((WIDTH,)), *[keras.layers.Dense(WIDTH, "tanh") for _ in range(LAYERS)]])
    optimizer = gradlane.keras.DistributedOptimizer(keras.optimizers.SGD(0.01))
    model.compile(optimizer, "mse", jit_compile=keras.backend.backend() == "jax")
    inputs = np.ones((BATCH * STEPS, WIDTH), np.float32)
    model.fit(inputs, inputs, BATCH, verbose=0)
    gradlane.keras.shutdown()
    steps = [LEFT[k : k + LAYERS] for k in range(0, len(LEFT), LAYERS)]
    assert len(steps) == STEPS
    for step in steps:
        assert [place for _, place in step] == list(range(2 * LAYERS - 2, -1, -2))
    spread = sum(step[-1][0] - step[0][0] for step in steps[1:])
    problem.tell([], [], part=spread / (steps[-1][-1][0] - steps[0][-1][0]))


if __name__ == "__main__":
    main()
