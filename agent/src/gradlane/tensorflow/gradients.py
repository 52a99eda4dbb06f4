# SPDX-License-Identifier: Apache-2.0
"""Means of gradients, of eager tensors and within a tf.function."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradlane.data_parallel import world
from gradlane.data_parallel.bucket import Bucket
from gradlane.data_parallel.model import Form, Model
from gradlane.data_parallel.optimizer import wrap
from gradlane.tensorflow.library import tf, unconverted


@unconverted
def means(gradients: Sequence[Any], owners: Sequence[Any]) -> list[Any]:
    """The mean of each gradient over all processes; None stays None, and IndexedSlices become dense.

    In a tf.function each bucket leaves when the backward pass has made it. Raises AgentError; in a tf.function
    TensorFlow raises a tf.errors.OpError that quotes it.
    """
    tensors: list[Any] = [None if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
    model = world.models().of(owners, [None if tensor is None else _form(tensor) for tensor in tensors])
    if tf.executing_eagerly():
        averaged = model.means_of_arrays([None if tensor is None else tensor.numpy() for tensor in tensors])
        return [None if mean is None else tf.convert_to_tensor(mean) for mean in averaged]
    # TensorFlow runs operations with effects in the order in which they are made, each once what it needs is there.
    averaged = model.means(
        tensors,
        lambda bucket, own: tf.numpy_function(_starting(bucket), own, tf.int32),
        lambda ends: tf.numpy_function(_ending(model), ends, [tensors[place].dtype for place in model.places]),
    )
    for place in model.places:
        averaged[place].set_shape(tensors[place].shape)
    return averaged


def _starting(bucket: Bucket) -> Callable[..., Any]:
    def start(*gradients: Any) -> Any:
        bucket.start([np.asarray(gradient) for gradient in gradients])
        return np.int32(0)  # stands for its end

    return start


def _ending(model: Model) -> Callable[..., Any]:
    def end(*_: Any) -> Any:
        return model.finish()

    return end


def _form(tensor: Any) -> Form:
    if not tensor.shape.is_fully_defined():
        raise ValueError(f"the shape of gradient {tensor.name} is not known before it is computed: {tensor.shape}")
    return Form(tuple(tensor.shape), tensor.dtype.as_numpy_dtype)


class DistributedGradientTape:
    """A tf.GradientTape whose `gradient` is the mean over all processes, in the buckets of these sources."""

    def __init__(self, gradtape: Any) -> None:
        self._tape = gradtape

    @unconverted
    def gradient(self, target: Any, sources: Any, *arguments: Any, **options: Any) -> Any:
        """As the tape's; the order of the sources numbers the layers. Raises as `means`."""
        found = self._tape.gradient(target, sources, *arguments, **options)
        averaged = means(tf.nest.flatten(found), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(sources, averaged)

    def __enter__(self) -> "DistributedGradientTape":
        self._tape.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._tape.__exit__(*error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)


def DistributedOptimizer(optimizer: Any) -> Any:
    """The same optimizer of Keras, whose `apply` and `apply_gradients` average first. Raises ValueError if it does."""
    wrapped = wrap(optimizer, means)
    wrapped.apply = unconverted(wrapped.apply)
    return wrapped
