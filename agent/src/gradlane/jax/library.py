# SPDX-License-Identifier: Apache-2.0
"""JAX, which the environment of the types does not have: all that is taken from it counts as Any."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

jax: Any = importlib.import_module("jax")
_io_callback: Any = importlib.import_module("jax.experimental").io_callback


def call(function: Callable[..., Any], results: Any, arrays: Sequence[Any]) -> Any:
    """The function on numpy arrays of the same values: at once, or each time that what is being traced is run.

    All calls of a process happen in the program's order, whichever of its jits they are in: no two ranks wait for one
    another. `results`: their shapes and types. Raises what the function does; where it was traced, JAX raises a
    JaxRuntimeError that quotes it.
    """

    def on_host(*values: Any) -> Any:
        return function(*map(np.asarray, values))

    # Where a function is traced, zeros are, too; so are calls on nothing but constants.
    if any(isinstance(array, jax.core.Tracer) for array in (jax.numpy.zeros(()), *arrays)):
        return _io_callback(on_host, results, *arrays, ordered=True)
    jax.effects_barrier()
    # Copies: what stays in shared memory counts as the agent's.
    return jax.tree.map(jax.numpy.array, on_host(*arrays))


def shape_of(array: Any) -> Any:
    """What JAX knows of an array that has no values yet."""
    return jax.ShapeDtypeStruct(array.shape, array.dtype)
