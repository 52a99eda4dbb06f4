# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a job agree on when they join, beyond the job file."""

from dataclasses import dataclass

from gradlane.job.costs import Conditions

MAX_SHARDS = 8  # GL_MAX_SHARDS of core/job/config.h


@dataclass(frozen=True)
class Agreement:
    """The same at all ranks; rank 0 decides, and sends it to the others over the control connections.

    `token` is the 64-bit secret in every datagram of this run of the job, `message_base` the number that messages count
    from, `slice_bytes` the payload of a datagram, and `conditions` what was measured between the hosts: the lowest rate
    and the longest latency. `generation`: of the sums in switches, never 0; a job that comes later has a higher one.
    `shards`: engines of the job at each host, each with tensors, or parts of them, of its own. `steered`: some host has
    several threads for what comes, so each engine sends from a port of its own.
    """

    token: int
    message_base: int
    slice_bytes: int
    conditions: Conditions
    generation: int = 1
    shards: int = 1
    steered: bool = False
