# SPDX-License-Identifier: Apache-2.0
"""A rank in MXNet: `trainer` by Gradlane, `alone`: one process with the mean of both ranks' gradients. `--die STEP`:
rank 1 does, before that step."""

import itertools
import os
import signal
import sys
from typing import Any

import mxnet as mx
from mxnet import autograd, gluon

import gradlane.mxnet
from tests.frameworks import problem


def network(offset: float) -> Any:
    net = gluon.nn.Sequential()
    pairs = list(itertools.pairwise(problem.WIDTHS))
    for k, (inputs, outputs) in enumerate(pairs):
        net.add(gluon.nn.Dense(outputs, "tanh" if k < len(pairs) - 1 else None, in_units=inputs))
    net.initialize()
    for parameter, value in zip(net.collect_params().values(), problem.start(), strict=True):
        parameter.set_data(mx.nd.array(value.T if value.ndim == 2 else value) + offset)
    return net


def gradients(net: Any, inputs: Any, labels: Any) -> float:
    with autograd.record():
        loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(mx.nd.array(inputs)), mx.nd.array(labels))
    loss.backward()
    return loss.mean().asscalar()


def main(arm: str, death: int) -> None:
    rank, lost = int(os.environ["RANK"]), 0
    communicator: Any = gradlane.mxnet.init() if arm == "trainer" else None
    net = network(rank if communicator else 0)
    parameters = net.collect_params()
    rate = {"learning_rate": problem.RATE}
    if communicator is None:
        trainer = gluon.Trainer(parameters, "sgd", rate, kvstore=None)
    else:
        gradlane.mxnet.broadcast_parameters(parameters)
        trainer = gradlane.mxnet.DistributedTrainer(parameters, "sgd", rate)
    data = [problem.examples(other) for other in ([rank] if communicator else range(problem.RANKS))]
    losses: list[float] = []
    for k in range(problem.STEPS):
        if k == death and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        losses.append(gradients(net, data[0][0][k], data[0][1][k]))
        if communicator is None:
            mine = [it.grad().asnumpy() for it in parameters.values()]
            gradients(net, data[1][0][k], data[1][1][k])
            for parameter, it in zip(parameters.values(), mine, strict=True):
                parameter.grad()[:] = (it + parameter.grad().asnumpy()) / 2
        trainer.step(problem.BATCH)
    if communicator is not None:
        lost = communicator.statistics()["slices_lost"]
        gradlane.mxnet.shutdown()
    problem.tell(losses, [it.data().asnumpy() for it in parameters.values()], lost=lost)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[3]) if len(sys.argv) > 2 else -1)
