# SPDX-License-Identifier: Apache-2.0
"""This process' place in its job, which may be that in jax.distributed."""

import atexit
import os
from pathlib import Path
from typing import Any

from gradlane.client.communicator import Communicator
from gradlane.data_parallel import world
from gradlane.jax.library import jax
from gradlane.job import Job


def init(job_file: str | Path | Job | None = None, rank: int | None = None, *more: Any, **options: Any) -> Communicator:
    """Joins the job, see gradlane.data_parallel.world.init. `rank`: default RANK of the environment; where there is
    none, jax.process_index() if jax.distributed is initialized."""
    if rank is None and "RANK" not in os.environ and jax.distributed.is_initialized():
        rank = jax.process_index()
    if not world.is_initialized():
        world.init(job_file, rank, *more, **options)
        # Registered after what leaves the job, so called before it: JAX may still be running the last step.
        atexit.register(jax.effects_barrier)
    return world.communicator_here()


def shutdown() -> None:
    """Leaves the job once JAX has run what it was given. Raises AgentError if the job has failed."""
    try:
        jax.effects_barrier()
    finally:
        world.shutdown()
    jax.clear_caches()  # what is compiled calls this job's tensors
