# SPDX-License-Identifier: Apache-2.0
"""How late the event loop comes to what is due: what a busy process costs everybody in it."""

import asyncio

from prometheus_client import Histogram

EVERY_SECONDS = 0.1
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class LoopLag:
    """`seconds`: the histogram, for a registry of Prometheus."""

    def __init__(self) -> None:
        name, text = "gradlane_controller_event_loop_lag_seconds", "How late the event loop comes to what is due"
        self.seconds = Histogram(name, text, buckets=SECONDS, registry=None)

    async def run(self) -> None:
        """Measures, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + EVERY_SECONDS
            await asyncio.sleep(EVERY_SECONDS)
            self.seconds.observe(max(loop.time() - due, 0.0))
