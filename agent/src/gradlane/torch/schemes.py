# SPDX-License-Identifier: Apache-2.0
"""Training by a scheme of gradlane.sync in place of DistributedDataParallel.

optimizer = gradlane.torch.synchronise(model, torch.optim.SGD(model.parameters(), lr=0.1), session)
"""

import torch

from gradlane.sync.acco import Acco
from gradlane.sync.scheme import Scheme
from gradlane.sync.schemes import scheme_of
from gradlane.torch.accumulated import AccumulatedOptimizer
from gradlane.torch.session import Session
from gradlane.torch.synchronised import SynchronisedOptimizer

BUCKET_BYTES = 4 << 20


def synchronise(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    session: Session,
    scheme: Scheme | str | None = None,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    average_buffers: bool = True,
) -> SynchronisedOptimizer:
    """Takes the place of DistributedDataParallel and of the optimizer; model and training loop stay as they are.

    `scheme`: a scheme, its name, or None for that of the job file's [sync]. All workers begin with rank 0's parameters
    and buffers, and then have parameters of their own. `bucket_bytes`: neighbouring parameters travel together up to
    this size, and a layer waits for its whole bucket; of asynchronous schemes all of a type do. `average_buffers`:
    whether buffers of floats (the statistics of BatchNorm) are averaged with the parameters; others stay each worker's
    own. Raises ValueError for what can't be exchanged, gradlane.job.JobError for the scheme, gradlane.AgentError.
    """
    chosen = scheme_of(session.connection.job, scheme)
    kind = AccumulatedOptimizer if isinstance(chosen, Acco) else SynchronisedOptimizer
    return kind(model, optimizer, session, chosen, bucket_bytes, average_buffers)
