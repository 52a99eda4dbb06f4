# SPDX-License-Identifier: Apache-2.0
"""A rank in JAX: `eager`, `jit`, `callback` (the same without the handler in C) or `optax` by Gradlane, `alone`: one
process with the mean of both ranks' gradients.
`--die STEP`: rank 1 does, before that step. With COORDINATOR of the environment jax.distributed says who is who."""

import os
import signal
import sys
from typing import Any

import jax
import jax.numpy as jnp

import gradlane.jax
from gradlane.jax import calls
from tests.frameworks import problem


def loss(parameters: list[Any], inputs: Any, labels: Any) -> Any:
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2], strict=True):
        inputs = jnp.tanh(inputs @ weight + bias)
    logits = inputs @ parameters[-2] + parameters[-1]
    return -jnp.mean(jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels])


gradient = jax.jit(jax.value_and_grad(loss))


@jax.jit
def update(parameters: list[Any], means: list[Any]) -> list[Any]:
    return [parameter - problem.RATE * mean for parameter, mean in zip(parameters, means, strict=True)]


def eager(parameters: list[Any], inputs: Any, labels: Any) -> tuple[Any, list[Any]]:
    value, gradients = gradient(parameters, inputs, labels)
    return value, update(parameters, gradlane.jax.mean(gradients))


def optax(parameters: list[Any], inputs: Any, labels: Any) -> tuple[Any, list[Any]]:
    import optax

    optimizer = optax.chain(gradlane.jax.distributed(optax.sgd(problem.RATE)), optax.identity())
    value, gradients = gradient(parameters, inputs, labels)
    updates, _ = optimizer.update(gradients, optimizer.init(parameters), parameters)
    return value, optax.apply_updates(parameters, updates)


def alone(parameters: list[Any], inputs: Any, labels: Any) -> tuple[Any, list[Any]]:
    (value, first), (_, second) = (gradient(parameters, *of) for of in zip(inputs, labels, strict=True))
    return value, update(parameters, [(mine + theirs) / 2 for mine, theirs in zip(first, second, strict=True)])


def main(arm: str, death: int) -> None:
    rank = int(os.environ["RANK"])
    begin, lost = problem.start(), 0
    communicator: Any = None
    if "COORDINATOR" in os.environ:
        del os.environ["RANK"]
        jax.distributed.initialize(os.environ["COORDINATOR"], problem.RANKS, rank)
    if arm != "alone":
        communicator = gradlane.jax.init(bucket_bytes=4096)  # several buckets
        assert (gradlane.jax.rank(), gradlane.jax.size()) == (rank, problem.RANKS)
        begin = gradlane.jax.broadcast([value + rank for value in begin])
    if arm == "callback":
        calls.refusal = lambda: "it is not wanted"
    compiled = jax.jit(eager)
    step = {"eager": eager, "jit": compiled, "callback": compiled, "optax": jax.jit(optax), "alone": alone}[arm]
    inputs, labels = problem.examples(rank)
    if arm == "alone":
        inputs, labels = (list(zip(*both, strict=True)) for both in zip(*map(problem.examples, range(2)), strict=True))
    parameters = [jnp.asarray(value) for value in begin]
    losses: list[float] = []
    for k in range(problem.STEPS):
        if k == death and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        value, parameters = step(parameters, inputs[k], labels[k])
        losses.append(float(value))
    if communicator is not None:
        lost = communicator.statistics()["slices_lost"]
        gradlane.jax.shutdown()
    problem.tell(losses, parameters, lost=lost)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 2 else -1)
