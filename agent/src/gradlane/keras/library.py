# SPDX-License-Identifier: Apache-2.0
"""Keras, which has no types: all that is taken from it counts as Any."""

import importlib
from typing import Any

keras: Any = importlib.import_module("keras")

Callback: Any = keras.callbacks.Callback
