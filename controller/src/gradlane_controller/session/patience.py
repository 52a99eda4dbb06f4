# SPDX-License-Identifier: Apache-2.0
"""How long a switch is waited for, and how many at a time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

TURN_SECONDS = 0.25
_LATE = 1.5  # of its time: a turn that takes longer comes late, as the machine is busy
_OF_LATE = 0.25  # of its time counts: what is asked may be as late


async def any_done(seconds: float, *tasks: asyncio.Future[Any]) -> bool:
    """Waits until one of these is done; whether one is within that time.

    The time is counted in turns of this process: where they come late, as it has much to do itself or its machine is
    busy, so do answers that are long there, and the switch may be on a machine that is as busy.
    """
    loop = asyncio.get_running_loop()
    while seconds > 0:
        begun = loop.time()
        if (await asyncio.wait(tasks, timeout=TURN_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]:
            return True
        seconds -= TURN_SECONDS * (1 if loop.time() < begun + _LATE * TURN_SECONDS else _OF_LATE)
    return False


class Places:
    """At most so many at a time do what takes much of this process and may take much of their switch, so that each of
    these is done soon, and none is given up as it waits for others.

    Who has not ended within `seconds` goes on without a place: nobody waits longer for a switch that is slow.
    """

    def __init__(self, count: int, seconds: float) -> None:
        self._free, self._seconds = asyncio.Semaphore(count), seconds

    async def run(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """The result of `work`, once there is a place for it."""
        async with self._free:
            task = asyncio.ensure_future(work())
            try:
                await any_done(self._seconds, task)
            except asyncio.CancelledError:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                raise
        return await task
