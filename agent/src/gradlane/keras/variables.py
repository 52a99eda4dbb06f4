# SPDX-License-Identifier: Apache-2.0
"""Keras's variables at all processes."""

from collections.abc import Iterable
from typing import Any

from gradlane.data_parallel import world
from gradlane.keras.library import keras


def broadcast_variables(variables: Iterable[Any], root_rank: int = 0) -> None:
    """Gives the variables at all processes the values that they have at `root_rank`. Raises AgentError."""
    targets = list(variables)
    arrays = [keras.ops.convert_to_numpy(variable) for variable in targets]
    for variable, array in zip(targets, world.broadcast(arrays, root_rank), strict=True):
        variable.assign(array)
