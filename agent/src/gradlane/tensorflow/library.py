# SPDX-License-Identifier: Apache-2.0
"""TensorFlow, which has no types: all that is taken from it counts as Any."""

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

tf: Any = importlib.import_module("tensorflow")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def unconverted(function: _Function) -> _Function:
    """Called in a tf.function, it runs as it stands: AutoGraph does not try to make its ifs and loops the graph's."""
    return tf.autograph.experimental.do_not_convert(function)
