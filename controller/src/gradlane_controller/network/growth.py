# SPDX-License-Identifier: Apache-2.0
"""Counts of switches and agents that begin at 0 again when these restart, as counts that only grow."""

from collections.abc import Sequence


def growth(before: Sequence[int] | None, now: Sequence[int]) -> list[int]:
    """How much was counted between two readings, of counts that begin anew together; None: there was none before."""
    now = [max(it, 0) for it in now]
    if before is None:
        return now
    more = [it - max(earlier, 0) for earlier, it in zip(before, now, strict=True)]
    return now if min(more) < 0 else more
