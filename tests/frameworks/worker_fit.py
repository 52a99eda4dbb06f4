# SPDX-License-Identifier: Apache-2.0
"""A rank in Keras on TensorFlow, whose model is not fit for several ranks until it is; with mixed precision."""

import keras
import numpy as np

import gradlane.keras as gl
from tests.frameworks import problem


def refused(model: keras.Model, words: str) -> None:
    try:
        model.fit(
            np.zeros((4, 3)), np.zeros((4, 1)), verbose=0, callbacks=[gl.callbacks.BroadcastGlobalVariablesCallback()]
        )
    except ValueError as error:
        assert words in str(error), error  # noqa: PT017
    else:
        raise AssertionError("it was not refused")


def main() -> None:
    gl.init()
    rank = gl.rank()
    model = keras.Sequential([keras.layers.Dense(1)])  # not built before its first batch
    model.compile(keras.optimizers.SGD(), "mse", jit_compile=False)
    refused(model, "compile the model with gradlane.keras.DistributedOptimizer(optimizer)")
    model.compile(gl.DistributedOptimizer(keras.optimizers.SGD()), "mse", jit_compile=True)
    refused(model, "jit_compile=False")
    keras.mixed_precision.set_global_policy("mixed_float16")
    keras.utils.set_random_seed(rank)
    model = keras.Sequential([keras.layers.Dense(4), keras.layers.Dense(1, dtype="float32")])
    model.compile(gl.DistributedOptimizer(keras.optimizers.SGD()), "mse", jit_compile=False)
    refused(model, "DistributedOptimizer(LossScaleOptimizer(optimizer))")
    inner = keras.optimizers.SGD(0.01)
    scaled = gl.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**40))
    model.compile(scaled, "mse", jit_compile=False)
    inputs = np.random.default_rng(rank).standard_normal((64, 3)).astype(np.float32)
    callbacks = [gl.callbacks.BroadcastGlobalVariablesCallback(), gl.callbacks.MetricAverageCallback()]
    history = model.fit(inputs, inputs.sum(1), 4, 5, verbose=0, callbacks=callbacks).history
    # It begins with a scale that overflows, at each rank in other steps, and all skip the same ones.
    assert 0 < int(inner.iterations.numpy()) < 80
    problem.tell(history["loss"], model.get_weights(), steps=int(inner.iterations.numpy()))
    gl.shutdown()


if __name__ == "__main__":
    main()
