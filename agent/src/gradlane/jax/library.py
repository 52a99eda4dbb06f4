# SPDX-License-Identifier: Apache-2.0
"""JAX, which the environment of the types does not have: all that is taken from it counts as Any."""

import importlib
from typing import Any

jax: Any = importlib.import_module("jax")
mlir: Any = importlib.import_module("jax.interpreters.mlir")
Primitive: Any = importlib.import_module("jax.extend.core").Primitive
io_callback: Any = importlib.import_module("jax.experimental").io_callback
importlib.import_module("jax.ffi")


def shape_of(array: Any) -> Any:
    """What JAX knows of an array that has no values yet."""
    return jax.ShapeDtypeStruct(array.shape, array.dtype)
