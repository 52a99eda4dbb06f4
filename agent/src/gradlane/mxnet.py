# SPDX-License-Identifier: Apache-2.0
"""Gradlane in MXNet 1.9, under Horovod's names. MXNet is retired (September 2023); DLCP ran on it.

gradlane.mxnet.init("job.toml")
gradlane.mxnet.broadcast_parameters(net.collect_params())
trainer = gradlane.mxnet.DistributedTrainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
"""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from gradlane.data_parallel import world
from gradlane.data_parallel.model import Form
from gradlane.data_parallel.world import init, local_rank, local_size, rank, shutdown, size

__all__ = [
    "DistributedTrainer",
    "broadcast_parameters",
    "init",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]

# MXNet has no types: what is taken from it counts as Any.
_gluon: Any = importlib.import_module("mxnet.gluon")


class DistributedTrainer(_gluon.Trainer):
    """A gluon.Trainer that updates with the mean of each gradient over all processes.

    `step(batch_size)` takes the size of this process's batch. The order of the parameters numbers the layers, from the
    model's input on. Each process trains on one device. `step` raises AgentError, and ValueError for a parameter on
    several.
    """

    def __init__(self, params: Any, optimizer: Any, optimizer_params: Mapping[str, Any] | None = None) -> None:
        """As the base class takes it; there is no kvstore."""
        super().__init__(params, optimizer, optimizer_params, kvstore=None)

    def _allreduce_grads(self) -> None:
        """What MXNet calls before it updates."""
        trained = [it for it in self._params if it.grad_req != "null"]
        gradients = [it.list_grad() for it in trained]
        for parameter, of_devices in zip(trained, gradients, strict=True):
            if len(of_devices) > 1:
                raise ValueError(f"{parameter.name} is on {len(of_devices)} devices: train each by its own process")
        arrays = [of_device.asnumpy() for [of_device] in gradients]  # waits until they are there
        model = world.models().of(trained, [Form(array.shape, array.dtype) for array in arrays])
        for [gradient], mean in zip(gradients, model.means_of_arrays(arrays), strict=True):
            gradient[:] = mean


def broadcast_parameters(params: Any, root_rank: int = 0) -> None:
    """Gives all processes the values that the parameters have at `root_rank`; `params` is a ParameterDict, or a
    dictionary of parameters or arrays. Raises AgentError, and MXNet's DeferredInitializationError where a parameter has
    no shape yet: run the model once before."""
    names = sorted(params.keys())
    targets = [params[name] for name in names]
    targets = [it.data() if isinstance(it, _gluon.Parameter) else it for it in targets]
    values = world.broadcast([np.ascontiguousarray(it.asnumpy()) for it in targets], root_rank)
    for target, value in zip(targets, values, strict=True):
        target[:] = value
