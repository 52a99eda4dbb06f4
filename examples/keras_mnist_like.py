# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with Keras 3: an optimizer that averages gradients over all ranks before it applies them.

    KERAS_BACKEND=torch python examples/keras_mnist_like.py --job job.toml --rank 0

Needs examples/requirements.txt, a backend that trains, and a running agent on each host of the job
(examples/README.md, which also names the backends it was run on).
"""

import argparse
from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits

import gradlane


class MeanOfRanks(keras.optimizers.Adam):
    """Adam on the gradients' means over all ranks."""

    def __init__(self, communicator: gradlane.Communicator, **options: Any) -> None:
        super().__init__(**options)
        self._communicator = communicator

    def apply(self, grads: list[Any], trainable_variables: Any = None) -> None:
        """Sends the last layers' gradients first, since the backward pass has them first; waits for all."""
        handles = [
            self._communicator.all_reduce(
                np.asarray(keras.ops.convert_to_numpy(gradient)),
                name=f"gradient {index}",  # the same on all ranks and in all steps
                layers=index,
                asynchronous=True,
            )
            for index, gradient in reversed(list(enumerate(grads)))
        ]
        means = [keras.ops.convert_to_tensor(handle.wait()) for handle in reversed(handles)]
        super().apply(means, trainable_variables)


def main() -> None:
    """Trains on this rank's part of scikit-learn's digits, and prints the accuracy on the test examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True, help="the job file")
    parser.add_argument("--rank", type=int, help="of this host in the job (default: the environment's RANK)")
    parser.add_argument("--socket", help="the agent's Unix socket (default: the environment's GRADLANE_SOCKET)")
    parser.add_argument("--epochs", type=int, default=5)
    options = parser.parse_args()

    keras.utils.set_random_seed(0)  # the same on every rank, so all start with the same parameters
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
    with gradlane.Communicator(options.job, rank=options.rank, socket=options.socket) as communicator:
        # Every rank takes as many steps as the others: each step waits for all of them.
        share = (len(inputs) - 360) // communicator.size
        first = 360 + communicator.rank * share
        model.compile(
            optimizer=MeanOfRanks(communicator, learning_rate=3e-3),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            run_eagerly=True,  # so that gradients are numbers when the optimizer gets them
        )
        model.fit(inputs[first : first + share], labels[first : first + share], 32, options.epochs, verbose=2)
    accuracy = model.evaluate(inputs[:360], labels[:360], verbose=0)[1]
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
