# SPDX-License-Identifier: Apache-2.0
"""How long a switch is waited for."""

import asyncio
from typing import Any

TURN_SECONDS = 0.25


async def any_done(seconds: float, *tasks: asyncio.Future[Any]) -> bool:
    """Waits until one of these is done; whether one is within that time.

    The time is counted in turns of this process: where they come late, as it has much to do itself or its machine is
    busy, so do answers that are long there.
    """
    for _ in range(max(round(seconds / TURN_SECONDS), 1)):
        if (await asyncio.wait(tasks, timeout=TURN_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]:
            return True
    return False
