# SPDX-License-Identifier: Apache-2.0
"""An optimizer of Keras whose gradients become means before it uses them."""

from collections.abc import Callable, Sequence
from typing import Any

Means = Callable[[list[Any], Sequence[Any]], list[Any]]
"""From gradients and their owners (see Models.of) to their means over all processes."""


def is_wrapped(optimizer: Any) -> bool:
    """Whether `wrap` was called on it."""
    return "apply" in vars(optimizer)


def wrap(optimizer: Any, means: Means) -> Any:
    """Gives that very optimizer an `apply` that averages first, and returns it; so its class, configuration and state
    stay what they are. Raises ValueError if it has one already."""
    if is_wrapped(optimizer):
        raise ValueError("the optimizer is distributed already")
    inner = optimizer.apply

    def apply(grads: Any, trainable_variables: Any = None) -> Any:
        owners = [optimizer] if trainable_variables is None else list(trainable_variables)
        return inner(means(list(grads), owners), None if trainable_variables is None else owners)

    optimizer.apply = apply
    return optimizer
