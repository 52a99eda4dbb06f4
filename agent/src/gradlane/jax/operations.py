# SPDX-License-Identifier: Apache-2.0
"""Exact operations on pytrees, at once and within `jit`."""

from typing import Any

from gradlane.data_parallel import world
from gradlane.jax.calls import call
from gradlane.jax.handler import Function
from gradlane.jax.library import jax, shape_of


def allreduce(tree: Any, op: str = world.Average) -> Any:
    """The exact reduction of each array of all processes' trees, which all of them call in the same order.

    `op`: Average, Sum, Min, Max or Product. Raises ValueError, AgentError; within `jit` a JaxRuntimeError that quotes
    it.
    """
    return _call(f"all-reduce, {op}", lambda here, arrays, filled: here.all_reduce_into(arrays, filled, op), tree)


def broadcast(tree: Any, root: int = 0) -> Any:
    """The tree of the process `root`, whose arrays have the shapes and types of this one's. Raises as `allreduce`."""
    return _call(f"broadcast, {root}", lambda _, arrays, filled: world.broadcast_into(arrays, filled, root), tree)


def _call(name: str, function: Function, tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    arrays = [jax.numpy.asarray(leaf) for leaf in leaves]
    shapes = [shape_of(array) for array in arrays]
    return jax.tree.unflatten(structure, call(name, world.communicator_here(), function, shapes, arrays))
