# SPDX-License-Identifier: Apache-2.0
"""Exact operations on pytrees, at once and within `jit`."""

from collections.abc import Callable
from typing import Any

from gradlane.data_parallel import world
from gradlane.jax.library import call, jax, shape_of


def allreduce(tree: Any, op: str = world.Average) -> Any:
    """The exact reduction of each array of all processes' trees, which all of them call in the same order.

    `op`: Average, Sum, Min, Max or Product. Raises ValueError, AgentError; within `jit` a JaxRuntimeError that quotes
    it.
    """

    def function(*arrays: Any) -> list[Any]:
        communicator = world.communicator_here()
        pending = [communicator.all_reduce(array, op=op, asynchronous=True) for array in arrays]
        return [reduction.wait() for reduction in pending]

    return _call(function, tree)


def broadcast(tree: Any, root: int = 0) -> Any:
    """The tree of the process `root`, whose arrays have the shapes and types of this one's. Raises as `allreduce`."""
    return _call(lambda *arrays: world.broadcast(arrays, root), tree)


def _call(function: Callable[..., list[Any]], tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    arrays = [jax.numpy.asarray(leaf) for leaf in leaves]
    return jax.tree.unflatten(structure, call(function, [shape_of(array) for array in arrays], arrays))
