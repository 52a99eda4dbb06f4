# SPDX-License-Identifier: Apache-2.0
"""An optimizer that averages gradients over all processes before it applies them, on the backend that Keras has."""

from collections.abc import Sequence
from typing import Any

from gradlane.data_parallel import world
from gradlane.data_parallel.model import Form
from gradlane.data_parallel.optimizer import wrap
from gradlane.keras.library import keras


def DistributedOptimizer(optimizer: Any) -> Any:
    """The same optimizer, whose `apply` averages first. Raises ValueError if it does already."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        from gradlane.tensorflow import DistributedOptimizer as OfTensorFlow

        return OfTensorFlow(optimizer)
    if backend == "jax":
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            raise ValueError(
                "on JAX a LossScaleOptimizer can't be distributed: use mixed_bfloat16, which needs none, in place of "
                "mixed_float16"
            )
        from gradlane.jax.gradients import means

        return wrap(optimizer, means)
    return wrap(optimizer, _means)


def _means(gradients: list[Any], owners: Sequence[Any]) -> list[Any]:
    """Of tensors that have their values when they are asked."""
    arrays = [None if gradient is None else keras.ops.convert_to_numpy(gradient) for gradient in gradients]
    forms = [None if array is None else Form(array.shape, array.dtype) for array in arrays]
    averaged = world.models().of(owners, forms).means_of_arrays(arrays)
    return [None if mean is None else keras.ops.convert_to_tensor(mean) for mean in averaged]
