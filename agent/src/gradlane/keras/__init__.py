# SPDX-License-Identifier: Apache-2.0
"""Gradlane in Keras 3, on each of its backends, under Horovod's names.

gradlane.keras.init("job.toml")
model.compile(gradlane.keras.DistributedOptimizer(optimizer), loss, jit_compile=False)
model.fit(inputs, labels, callbacks=[gradlane.keras.callbacks.BroadcastGlobalVariablesCallback()])
"""

from gradlane.data_parallel.world import (
    init,
    is_initialized,
    load_residuals,
    local_rank,
    local_size,
    rank,
    residuals,
    shutdown,
    size,
)
from gradlane.keras import callbacks
from gradlane.keras.optimizer import DistributedOptimizer
from gradlane.keras.variables import broadcast_variables

__all__ = [
    "DistributedOptimizer",
    "broadcast_variables",
    "callbacks",
    "init",
    "is_initialized",
    "load_residuals",
    "local_rank",
    "local_size",
    "rank",
    "residuals",
    "shutdown",
    "size",
]
