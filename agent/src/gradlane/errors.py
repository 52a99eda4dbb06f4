# SPDX-License-Identifier: Apache-2.0
"""The errors that users of the agent see."""

import errno
from collections.abc import Sequence

_LISTED = 8


def listed(items: Sequence[str], between: str = ", ") -> str:
    """Those items, or the first few of them and how many more there are: a job may have hundreds of ranks."""
    if len(items) <= _LISTED + 1:
        return between.join(items)
    return f"{between.join(items[:_LISTED])} and {len(items) - _LISTED} more"


class GradlaneError(Exception):
    """Base of every error that this package raises on purpose."""


class AgentError(GradlaneError):
    """The agent refused or lost something; the message names the culprit (rank, address, file or key)."""


class PeerLost(AgentError):
    """Ranks that take part in an operation are dead, and it can't be done; the connection can be used as before.

    `ranks`: those of them, ascending. What the operation was to write may be half written.
    """

    def __init__(self, message: str, ranks: Sequence[int]) -> None:
        super().__init__(message)
        self.ranks = tuple(ranks)


def cannot_bind(place: str, error: OSError) -> AgentError:
    """Why a port can't be had. `place`: its protocol, number and address."""
    why = {
        errno.EADDRINUSE: "is in use: another agent or program holds it",
        errno.EADDRNOTAVAIL: "can't be bound: no interface of this host has the address",
    }.get(error.errno or 0, f"can't be bound: {error.strerror}")
    return AgentError(f"{place} {why}")
