# SPDX-License-Identifier: Apache-2.0
"""The errors that users of the agent see."""

from collections.abc import Sequence

_LISTED = 8


def listed(items: Sequence[str]) -> str:
    """Those items, or the first few of them and how many more there are: a job may have hundreds of ranks."""
    if len(items) <= _LISTED + 1:
        return ", ".join(items)
    return f"{', '.join(items[:_LISTED])} and {len(items) - _LISTED} more"


class GradlaneError(Exception):
    """Base of every error that this package raises on purpose."""


class AgentError(GradlaneError):
    """The agent refused or lost something; the message names the culprit (rank, address, file or key)."""
