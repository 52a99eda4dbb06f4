# SPDX-License-Identifier: Apache-2.0
"""Gradlane in JAX: means of gradients, and exact operations on pytrees, at once and within `jit`.

gradlane.jax.init("job.toml")
gradients = gradlane.jax.mean(gradients)                        # either
optimizer = gradlane.jax.distributed(optax.adam(0.01))          # or
"""

from gradlane.data_parallel.world import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    is_initialized,
    load_residuals,
    local_rank,
    local_size,
    rank,
    residuals,
    size,
)
from gradlane.jax.gradients import distributed, mean
from gradlane.jax.operations import allreduce, broadcast
from gradlane.jax.place import init, shutdown

__all__ = [
    "Average",
    "Max",
    "Min",
    "Product",
    "Sum",
    "allreduce",
    "broadcast",
    "distributed",
    "init",
    "is_initialized",
    "load_residuals",
    "local_rank",
    "local_size",
    "mean",
    "rank",
    "residuals",
    "shutdown",
    "size",
]
