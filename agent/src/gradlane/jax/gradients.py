# SPDX-License-Identifier: Apache-2.0
"""Means of gradients, at once and within `jit`."""

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

import numpy as np

from gradlane.data_parallel import world
from gradlane.data_parallel.model import Form
from gradlane.jax.library import call, jax, shape_of


class _Owner:
    """Stands for a model whose arrays are others in each step."""


@cache
def _owner(*_: Hashable) -> _Owner:
    """The same one for the same name, structure and forms: a function that is traced again has the same buckets."""
    return _Owner()


def mean(gradients: Any, name: str = "model") -> Any:
    """The mean of each gradient over all processes, within the job's tolerance. The order of the leaves numbers the
    layers. Models of one structure need names of their own. Raises ValueError, AgentError; within `jit` a
    JaxRuntimeError that quotes it."""
    leaves, structure = jax.tree.flatten(gradients)
    arrays = [jax.numpy.asarray(leaf) for leaf in leaves]
    owner = _owner(name, structure, *(Form(array.shape, array.dtype) for array in arrays))
    return jax.tree.unflatten(structure, means(arrays, [owner]))


def means(gradients: Sequence[Any], owners: Sequence[Any]) -> list[Any]:
    """The same of a list in which some may be None, of a model that is known by its `owners` (see Models.of)."""
    forms = [None if gradient is None else Form(gradient.shape, gradient.dtype) for gradient in gradients]
    model = world.models().of(owners, forms)
    shapes = [shape_of(gradients[place]) for place in model.places]
    end = jax.ShapeDtypeStruct((), np.int32)
    return model.means(
        gradients,
        lambda function, bucket: call(function, end, bucket),
        lambda function, ends: call(function, shapes, ends),
    )


def distributed(optimizer: Any, name: str = "model") -> Any:
    """The same transformation of optax, whose `update` averages the gradients first, see `mean`."""

    def update(updates: Any, *rest: Any, **extra: Any) -> Any:
        return optimizer.update(mean(updates, name), *rest, **extra)

    return optimizer._replace(update=update)
