# SPDX-License-Identifier: Apache-2.0
"""Tasks that nobody waits for."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Background:
    """`tasks`: those that have not ended; who has begun them cancels them at the end."""

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()

    def begin(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs it, from the next turn of the event loop on."""
        task = asyncio.create_task(what)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task
