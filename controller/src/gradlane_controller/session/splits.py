# SPDX-License-Identifier: Apache-2.0
"""Two controllers of the same switches: one of them is primary at all, or at none."""

import asyncio
import logging
import random
from collections.abc import Sequence

from gradlane_controller.session.connection import Connection

SPLIT_SECONDS = 1.0
MAX_DOUBLINGS = 6

_LOG = logging.getLogger(__name__)


async def end_splits(connections: Sequence[Connection]) -> None:
    """Bids for the switches at which another controller is primary, if this one is at others; until cancelled.

    Both do so when each has lost a session that the other has not; who does it first is primary at all, so the
    other one stands by. Both wait for a random time, and longer each time that it was in vain.
    """
    bids = 0
    while True:
        await asyncio.sleep(random.uniform(1, 3) * SPLIT_SECONDS * 2 ** min(bids, MAX_DOUBLINGS))
        settled = [it for it in connections if it.settled]
        elsewhere = [it for it in settled if not it.primary]
        if not elsewhere or len(elsewhere) == len(settled):
            bids = 0
            continue
        bids += 1
        names = ", ".join(each.name for each in elsewhere)
        _LOG.warning("another controller is primary at %s, and this one elsewhere: bidding for all", names)
        await asyncio.gather(*(each.bid() for each in elsewhere), return_exceptions=True)
