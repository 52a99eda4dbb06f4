# SPDX-License-Identifier: Apache-2.0
"""A rank in TensorFlow: `eager` or `function` by Gradlane, `strategy` by TensorFlow's own MultiWorkerMirroredStrategy,
`alone`: one process with the mean of both ranks' gradients. `--die STEP`: rank 1 does, before that step."""

import json
import os
import signal
import sys
from typing import Any

import tensorflow as tf

import gradlane.tensorflow
from tests.frameworks import problem


def gradients(variables: list[Any], inputs: Any, labels: Any, distributed: bool) -> tuple[Any, list[Any]]:
    tape: Any = tf.GradientTape()
    with tape:
        values = inputs
        for weight, bias in zip(variables[:-2:2], variables[1:-2:2], strict=True):
            values = tf.tanh(values @ weight + bias)
        logits = values @ variables[-2] + variables[-1]
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
    if distributed:
        tape = gradlane.tensorflow.DistributedGradientTape(tape)
    return loss, tape.gradient(loss, variables)


def update(variables: list[Any], means: list[Any]) -> None:
    for variable, mean in zip(variables, means, strict=True):
        variable.assign_sub(problem.RATE * mean)


def own_strategy(rank: int) -> Any:
    cluster = {"cluster": {"worker": json.loads(os.environ["WORKERS"])}, "task": {"type": "worker", "index": rank}}
    os.environ["TF_CONFIG"] = json.dumps(cluster)
    return tf.distribute.MultiWorkerMirroredStrategy()


def main(arm: str, death: int) -> None:
    tf.config.experimental.enable_op_determinism()
    rank = int(os.environ["RANK"])
    strategy = own_strategy(rank) if arm == "strategy" else None
    begin, lost = problem.start(), 0
    communicator: Any = None
    if arm in ("eager", "function"):
        communicator = gradlane.tensorflow.init(bucket_bytes=4096)  # several buckets
        assert (gradlane.tensorflow.rank(), gradlane.tensorflow.size()) == (rank, problem.RANKS)
        begin = [value + rank for value in begin]  # which the broadcast makes good
    variables = [tf.Variable(value) for value in begin]
    if arm in ("eager", "function"):
        gradlane.tensorflow.broadcast_variables(variables)

    def step(inputs: Any, labels: Any) -> Any:
        loss, means = gradients(variables, inputs[0], labels[0], arm in ("eager", "function"))
        if arm == "alone":
            _, others = gradients(variables, inputs[1], labels[1], False)
            means = [(mine + theirs) / 2 for mine, theirs in zip(means, others, strict=True)]
        elif strategy is not None:
            context = tf.distribute.get_replica_context()
            means = context.all_reduce(tf.distribute.ReduceOp.MEAN, means)
        update(variables, means)
        return loss

    compiled = step if arm == "eager" else tf.function(step)
    data = [problem.examples(other) for other in (range(problem.RANKS) if arm == "alone" else [rank])]
    losses: list[float] = []
    for k in range(problem.STEPS):
        if k == death and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        batch = [tf.constant(inputs[k]) for inputs, _ in data], [tf.constant(labels[k]) for _, labels in data]
        losses.append(float(compiled(*batch) if strategy is None else strategy.run(compiled, args=batch)))
    if communicator is not None:
        lost = communicator.statistics()["slices_lost"]
        gradlane.tensorflow.shutdown()
    problem.tell(losses, [variable.numpy() for variable in variables], lost=lost)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 2 else -1)
