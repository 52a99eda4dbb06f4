# SPDX-License-Identifier: Apache-2.0
"""What controllers get without asking: packets, digests, and entries that have been idle."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

from finsy.proto import p4r

from gradlane_switch.p4info.packet_io import packet_in
from gradlane_switch.p4runtime.entities.digests import digest_list
from gradlane_switch.p4runtime.entities.match import encode_match
from gradlane_switch.state.mailbox import LogMessage, PacketToCpu
from gradlane_switch.state.pipeline import Pipeline

_LOG = logging.getLogger("gradlane-switch")


def notifications(pipeline: Pipeline, now: int) -> Iterator[Any]:
    """The p4.v1.StreamMessageResponse messages that are due by `now`, in ns of the packets' clock."""
    state = pipeline.state
    by_index = {item.index: item for item in pipeline.schema.digests.values()}
    for mail in state.mailbox.take():
        if isinstance(mail, LogMessage):
            _LOG.info("the program: %s (%s)", mail.text, mail.source)
        elif isinstance(mail, PacketToCpu):
            header = pipeline.schema.packet_headers.get("packet_in")
            yield p4r.StreamMessageResponse(packet=packet_in(header, mail.frame))
        elif mail.digest in state.digests:
            full = state.digests[mail.digest].add(mail.values, mail.time)
            if full is not None:
                yield p4r.StreamMessageResponse(digest=digest_list(by_index[mail.digest], full))
    for index, buffer in state.digests.items():
        due = buffer.due(now)
        if due is not None:
            yield p4r.StreamMessageResponse(digest=digest_list(by_index[index], due))
    for schema in pipeline.schema.tables.values():
        expired = list(state.tables[schema.index].expired(now))
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


def next_time(pipeline: Pipeline) -> int | None:
    """When something is due although no packet comes, in ns of the packets' clock; None: never."""
    times = [buffer.deadline for buffer in pipeline.state.digests.values()]
    times += [table.next_expiry for table in pipeline.state.tables]
    return min((item for item in times if item is not None), default=None)
