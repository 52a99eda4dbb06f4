# SPDX-License-Identifier: Apache-2.0
"""Exact operations on tensors and variables, eager and within a tf.function."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gradlane.data_parallel import world
from gradlane.tensorflow.library import tf, unconverted


@unconverted
def allreduce(tensor: Any, op: str = world.Average) -> Any:
    """The exact reduction of all processes' tensors, which all of them call in the same order.

    `op`: Average, Sum, Min, Max or Product. Raises AgentError; in a tf.function a tf.errors.OpError that quotes it.
    """

    def function(array: Any) -> list[Any]:
        return [world.all_reduce(array, op)]

    [result] = _call(function, [tf.convert_to_tensor(tensor)])
    return result


@unconverted
def broadcast_variables(variables: Iterable[Any], root_rank: int = 0) -> None:
    """Gives the variables at all processes the values that they have at `root_rank`. Raises as `allreduce`."""
    targets = list(variables)
    values = _call(
        lambda *arrays: world.broadcast(arrays, root_rank), [tf.convert_to_tensor(variable) for variable in targets]
    )
    for variable, value in zip(targets, values, strict=True):
        variable.assign(value)


def _call(function: Callable[..., list[Any]], tensors: list[Any]) -> list[Any]:
    """The function on the tensors' arrays; its results have their types and shapes."""
    if tf.executing_eagerly():
        return [tf.convert_to_tensor(array) for array in function(*(np.asarray(tensor) for tensor in tensors))]
    results = tf.numpy_function(function, tensors, [tensor.dtype for tensor in tensors])
    for tensor, result in zip(tensors, results, strict=True):
        result.set_shape(tensor.shape)
    return results
