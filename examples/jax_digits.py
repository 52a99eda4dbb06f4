# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training with JAX: each rank computes gradients of its own examples, Gradlane averages them.

    python examples/jax_digits.py --job job.toml --rank 0

Needs examples/requirements.txt, and a running agent on each host of the job (examples/README.md).
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import gradlane.jax

Parameters = list[tuple[jax.Array, jax.Array]]


def logits(parameters: Parameters, inputs: jax.Array) -> jax.Array:
    """A network of fully connected layers; (n, 64) -> (n, 10)."""
    *hidden, (weight, bias) = parameters
    for w, b in hidden:
        inputs = jax.nn.relu(inputs @ w + b)
    return inputs @ weight + bias


def loss(parameters: Parameters, inputs: jax.Array, labels: jax.Array) -> jax.Array:
    """Mean cross-entropy, in nats."""
    return -jnp.mean(jax.nn.log_softmax(logits(parameters, inputs))[jnp.arange(len(labels)), labels])


def main() -> None:
    """Trains, and prints the loss of every tenth step and the accuracy on the test examples."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--job", required=True, help="the job file")
    parser.add_argument("--rank", type=int, help="of this host in the job (default: the environment's RANK)")
    parser.add_argument("--socket", help="the agent's Unix socket (default: the environment's GRADLANE_SOCKET)")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()

    digits = load_digits()
    inputs, labels = digits.data.astype(np.float32) / 16, digits.target
    train_inputs, train_labels, test_inputs, test_labels = inputs[360:], labels[360:], inputs[:360], labels[:360]
    random = np.random.default_rng(0)  # the same on every rank, so all start with the same parameters
    parameters = [
        (jnp.asarray(random.normal(0, (2 / m) ** 0.5, (m, n)), jnp.float32), jnp.zeros(n, jnp.float32))
        for m, n in ((64, 256), (256, 256), (256, 10))
    ]

    @jax.jit
    def train(parameters: Parameters, inputs: jax.Array, labels: jax.Array) -> tuple[Parameters, jax.Array]:
        value, gradients = jax.value_and_grad(loss)(parameters, inputs, labels)
        means = gradlane.jax.mean(gradients)  # over all ranks
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, means), value

    gradlane.jax.init(options.job, options.rank, options.socket)
    rank, size = gradlane.jax.rank(), gradlane.jax.size()
    for step in range(options.steps):
        mine = random.permutation(len(train_inputs))[: 32 * size][rank::size]
        parameters, value = train(parameters, train_inputs[mine], train_labels[mine])
        if step % 10 == 9:
            print(f"step {step + 1}: loss {value:.3f}", flush=True)
    accuracy = jnp.mean(jnp.argmax(logits(parameters, test_inputs), 1) == test_labels)
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
