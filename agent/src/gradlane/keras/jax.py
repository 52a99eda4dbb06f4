# SPDX-License-Identifier: Apache-2.0
"""Means of gradients on Keras's JAX backend, where the optimizer is compiled."""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradlane.data_parallel import world
from gradlane.data_parallel.model import Form

jax: Any = importlib.import_module("jax")
io_callback: Any = importlib.import_module("jax.experimental").io_callback


def means(gradients: list[Any], owners: Sequence[Any]) -> list[Any]:
    """The mean of each gradient over all processes, also of traced ones. JAX's own error quotes the AgentError."""
    forms = [None if gradient is None else Form(gradient.shape, gradient.dtype) for gradient in gradients]
    model = world.models().of(owners, forms)
    shapes = [jax.ShapeDtypeStruct(gradients[place].shape, gradients[place].dtype) for place in model.places]
    return model.means(
        gradients,
        lambda function, bucket: io_callback(function, jax.ShapeDtypeStruct((), np.int32), *bucket),
        lambda function, ends: io_callback(function, shapes, *ends),
    )
