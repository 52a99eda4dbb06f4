# SPDX-License-Identifier: Apache-2.0
"""Gradlane in TensorFlow 2, under Horovod's names.

gradlane.tensorflow.init("job.toml")
tape = gradlane.tensorflow.DistributedGradientTape(tape)              # either
optimizer = gradlane.tensorflow.DistributedOptimizer(optimizer)       # or
"""

from gradlane.data_parallel.world import (
    Average,
    Max,
    Min,
    Product,
    Sum,
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
from gradlane.tensorflow.gradients import DistributedGradientTape, DistributedOptimizer
from gradlane.tensorflow.variables import allreduce, broadcast_variables

__all__ = [
    "Average",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allreduce",
    "broadcast_variables",
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
