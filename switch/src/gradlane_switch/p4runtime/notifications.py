# SPDX-License-Identifier: Apache-2.0
"""What controllers get without asking: packets, digests, and entries that have been idle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from finsy.proto import p4r

from gradlane_switch.p4info.packet_io import packet_in
from gradlane_switch.p4runtime.arbitration import Client
from gradlane_switch.p4runtime.entities.digests import digest_list
from gradlane_switch.p4runtime.entities.match import encode_match
from gradlane_switch.state.mailbox import LogMessage
from gradlane_switch.state.pipeline import Pipeline

_LOG = logging.getLogger("gradlane-switch")
_PACKETS = 16
_IDLE = 128
_REST = 0.0006
"""s for each notification to a controller, and 3 times as long as it took to make them: so long nobody looks for more,
so that what hosts make the program tell takes a part of the processor only. The C side drops what comes faster."""


class Notifier:
    """Sends what the program that forwards has for controllers to each of the `primaries`, and the log what it logs."""

    def __init__(self, primaries: Callable[[], Sequence[Client]]) -> None:
        self._primaries = primaries
        self._pipeline: Pipeline | None = None
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def watch(self, pipeline: Pipeline) -> None:
        """This one forwards now. What waiting packets left for controllers in the one before is sent."""
        if self._pipeline not in (None, pipeline):
            self._tell(self._pipeline)
        self._pipeline = pipeline
        self.wake()

    def wake(self) -> None:
        """There may be something to tell, or another time to tell it."""
        self._news.set()

    def start(self) -> None:
        """Starts to send."""
        self._task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stops that."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        watched: Pipeline | None = None
        while True:
            pipeline = self._pipeline
            if pipeline is not watched:
                if watched is not None:
                    loop.remove_reader(watched.state.mailbox.fd)
                if pipeline is not None:
                    loop.add_reader(pipeline.state.mailbox.fd, self.wake)
                watched = pipeline
            self._news.clear()
            timer = None
            if pipeline is not None:
                began = time.perf_counter()
                sent, due = self._tell(pipeline)
                await asyncio.sleep(_REST * sent + 3 * (time.perf_counter() - began))
                if due is not None:
                    timer = loop.call_later(max(due - pipeline.state.clock(), 0) / 1e9, self.wake)
            await self._news.wait()
            if timer is not None:
                timer.cancel()

    def _tell(self, pipeline: Pipeline) -> tuple[int, int | None]:
        """Sends some of what is due. How many messages that were, and when to go on, in ns of the packets' clock."""
        messages, due = notifications(pipeline, pipeline.state.clock())
        primaries = self._primaries()
        for message in messages:
            for client in primaries:
                client.send(message)
        return len(messages) * len(primaries), due


def notifications(pipeline: Pipeline, now: int) -> tuple[list[Any], int | None]:
    """p4.v1.StreamMessageResponse messages that are due by `now`, some of each kind, so that it does not take long; and
    when to ask for more, although no packet comes; None: not before. Times in ns of the packets' clock."""
    packets = list(_packets(pipeline))
    messages = [*packets, *_digests(pipeline, now), *_idle_entries(pipeline, now)]
    times = [pipeline.state.digests.deadline, *(table.next_expiry for table in pipeline.state.tables)]
    if len(packets) == _PACKETS:
        times.append(now)
    return messages, min((item for item in times if item is not None), default=None)


def _packets(pipeline: Pipeline) -> Iterator[Any]:
    left = _PACKETS
    for mail in pipeline.state.mailbox.take():
        if isinstance(mail, LogMessage):
            _LOG.info("the program: %s (%s)", mail.text, mail.source)
            continue
        header = pipeline.schema.packet_headers.get("packet_in")
        yield p4r.StreamMessageResponse(packet=packet_in(header, mail.frame))
        left -= 1
        if not left:
            return


def _digests(pipeline: Pipeline, now: int) -> Iterator[Any]:
    listed = pipeline.state.digests.take(now)
    if listed is not None:
        [schema] = (item for item in pipeline.schema.digests.values() if item.index == listed.digest)
        yield p4r.StreamMessageResponse(digest=digest_list(schema, listed))


def _idle_entries(pipeline: Pipeline, now: int) -> Iterator[Any]:
    looks = iter(range(_IDLE))
    tables = [(pipeline.state.tables[schema.index], schema) for schema in pipeline.schema.tables.values()]
    due = [(table.next_expiry, schema.index, table, schema) for table, schema in tables]
    for _, _, table, schema in sorted(item for item in due if item[0] is not None and item[0] <= now):
        expired = list(table.expired(now, looks))
        if expired:
            message = p4r.IdleTimeoutNotification(timestamp=time.time_ns())
            for entry in expired:
                message.table_entry.add(
                    table_id=schema.id,
                    match=encode_match(schema, entry.match),
                    priority=entry.priority,
                    metadata=entry.metadata,
                    controller_metadata=entry.controller_metadata,
                    idle_timeout_ns=entry.idle_timeout,
                )
            yield p4r.StreamMessageResponse(idle_timeout_notification=message)
