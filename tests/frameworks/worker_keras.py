# SPDX-License-Identifier: Apache-2.0
"""A rank in Keras, on the backend that KERAS_BACKEND names: `fit` by Gradlane, `alone`: one process that trains on both
ranks' examples. `--die STEP`: rank 1 does, before that step."""

import os
import signal
import sys
from typing import Any

import keras
import numpy as np

import gradlane.keras
from tests.frameworks import problem


class Watch(keras.callbacks.Callback):
    """Keeps each step's loss."""

    def __init__(self, rank: int, death: int) -> None:
        super().__init__()
        self.losses: list[float] = []
        self._doomed = death if rank == 1 else -1

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == self._doomed:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.losses.append(logs["loss"])


def main(arm: str, death: int) -> None:
    rank = int(os.environ["RANK"])
    keras.utils.set_random_seed(rank)
    layers = [keras.layers.Dense(width, activation="tanh") for width in problem.WIDTHS[1:-1]]
    model = keras.Sequential([keras.Input(problem.WIDTHS[:1]), *layers, keras.layers.Dense(problem.WIDTHS[-1])])
    begin, lost = problem.start(), 0
    communicator: Any = None
    optimizer = keras.optimizers.Adam(0.01)
    callbacks: list[Any] = []
    watch = Watch(rank, death)
    data = [problem.examples(other) for other in (range(problem.RANKS) if arm == "alone" else [rank])]
    if arm == "fit":
        communicator = gradlane.keras.init(bucket_bytes=4096)  # several buckets
        optimizer = gradlane.keras.DistributedOptimizer(optimizer)
        callbacks = [
            gradlane.keras.callbacks.BroadcastGlobalVariablesCallback(),
            gradlane.keras.callbacks.MetricAverageCallback(),
        ]
        begin = [value + rank for value in begin]  # which the broadcast makes good
    model.set_weights(begin)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=keras.backend.backend() == "jax")
    inputs, labels = (np.concatenate(parts, axis=1) for parts in zip(*data, strict=True))
    inputs, labels = inputs.reshape(-1, problem.WIDTHS[0]), labels.reshape(-1)
    batch = problem.BATCH * len(data)
    model.fit(inputs, labels, batch, 3, verbose=0, shuffle=False, callbacks=[*callbacks, watch])
    if communicator is not None:
        lost = communicator.statistics()["slices_lost"]
        gradlane.keras.shutdown()
    problem.tell(watch.losses, model.get_weights(), lost=lost)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 2 else -1)
