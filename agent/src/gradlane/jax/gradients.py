# SPDX-License-Identifier: Apache-2.0
"""Means of gradients, at once and within `jit`."""

from collections.abc import Hashable, Sequence
from functools import cache
from typing import Any

from gradlane.data_parallel import world
from gradlane.data_parallel.bucket import Bucket
from gradlane.data_parallel.model import Form
from gradlane.jax.calls import call
from gradlane.jax.handler import Raw
from gradlane.jax.library import jax, shape_of


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

    def start(bucket: Bucket, own: list[Any]) -> None:
        call(f"{bucket.name} starts", bucket, lambda it, arrays, _: it.start(arrays), [], own, _start)

    def finish(_: list[Any]) -> list[Any]:
        # One by one, what left first first: what the program does with a bucket's means need not wait for the others',
        # and finds them in the cache.
        found: dict[int, Any] = {}
        for bucket in reversed(model.buckets):
            shapes = [shape_of(gradients[place]) for place in bucket.places]
            own = call(f"{bucket.name} ends", bucket, lambda it, _, filled: it.fill(filled), shapes, [], _fill)
            found.update(zip(bucket.places, own, strict=True))
        return [found[place] for place in model.places]

    return model.means(gradients, start, finish)


def _start(bucket: Bucket, operands: Raw, _: Raw) -> None:
    bucket.start_by(lambda values: operands.gather(bucket.dtype, values, bucket.wire_code))


def _fill(bucket: Bucket, _: Raw, results: Raw) -> None:
    bucket.fill_by(lambda values: results.scatter(bucket.dtype, values, bucket.wire_code))


def distributed(optimizer: Any, name: str = "model") -> Any:
    """The same transformation of optax, whose `update` averages the gradients first, see `mean`."""

    def update(updates: Any, *rest: Any, **extra: Any) -> Any:
        return optimizer.update(mean(updates, name), *rest, **extra)

    return optimizer._replace(update=update)
