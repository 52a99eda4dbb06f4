# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with Keras 3: an optimizer that averages gradients over all ranks before it applies them.

    KERAS_BACKEND=torch python examples/keras_mnist_like.py --job job.toml --rank 0

Needs examples/requirements.txt, a backend that trains, and a running agent on each host of the job
(examples/README.md, which also names the backends it was run on).
"""

import argparse

import keras
import numpy as np
from sklearn.datasets import load_digits

import gradlane.keras


def main() -> None:
    """Trains on this rank's part of scikit-learn's digits, and prints the accuracy on the test examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True, help="the job file")
    parser.add_argument("--rank", type=int, help="of this host in the job (default: the environment's RANK)")
    parser.add_argument("--socket", help="the agent's Unix socket (default: the environment's GRADLANE_SOCKET)")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    digits = load_digits()
    inputs, labels = digits.images[..., None].astype(np.float32) / 16, digits.target
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(32, 3, activation="relu", padding="same"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu", padding="same"),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )
    gradlane.keras.init(options.job, options.rank, options.socket)
    model.compile(
        optimizer=gradlane.keras.DistributedOptimizer(keras.optimizers.Adam(3e-3)),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=keras.backend.backend() == "jax",
    )
    # Every rank takes as many steps as the others: each step waits for all of them.
    share = (len(inputs) - 360) // gradlane.keras.size()
    first = 360 + gradlane.keras.rank() * share
    callbacks = [
        gradlane.keras.callbacks.BroadcastGlobalVariablesCallback(),
        gradlane.keras.callbacks.MetricAverageCallback(),
    ]
    examples = slice(first, first + share)
    model.fit(inputs[examples], labels[examples], 32, options.epochs, verbose=2, callbacks=callbacks)
    gradlane.keras.shutdown()
    accuracy = model.evaluate(inputs[:360], labels[:360], verbose=0)[1]
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
