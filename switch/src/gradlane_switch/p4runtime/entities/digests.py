# SPDX-License-Identifier: Apache-2.0
"""Which digests a controller wants and how, as P4Runtime writes and reads it, and the lists that it gets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from finsy.proto import p4d, p4r

from gradlane_switch.p4info.bytestrings import invalid
from gradlane_switch.p4info.p4data import encode_data
from gradlane_switch.p4info.schema import DigestSchema
from gradlane_switch.p4runtime.entities.updates import DELETE, check_existence, find, select
from gradlane_switch.state.digests import DigestConfig, DigestList
from gradlane_switch.state.pipeline import Pipeline


def write_digest(pipeline: Pipeline, kind: int, message: Any) -> None:
    """Begins or ends to report a digest, or changes how. Raises EntityError."""
    schema = find(pipeline.schema.digests, "digest", message.digest_id)
    digests = pipeline.state.digests
    check_existence(kind, f"digest entry of {schema.name}", exists=digests.config(schema.index) is not None)
    if kind == DELETE:
        digests.want(schema.index, None)
        return
    config = DigestConfig(message.config.max_timeout_ns, message.config.max_list_size, message.config.ack_timeout_ns)
    if min(config.max_timeout, config.max_list_size, config.ack_timeout) < 0:
        raise invalid(f"digest {schema.name}: times and sizes can't be negative")
    digests.want(schema.index, config)


def read_digests(pipeline: Pipeline, request: Any) -> Iterator[Any]:
    """The digests that are reported, of those that a request asks for. Raises EntityError."""
    for schema in select(pipeline.schema.digests, "digest", request.digest_id):
        config = pipeline.state.digests.config(schema.index)
        if config is not None:
            message = p4r.DigestEntry(digest_id=schema.id)
            message.config.max_timeout_ns = config.max_timeout
            message.config.max_list_size = config.max_list_size
            message.config.ack_timeout_ns = config.ack_timeout
            yield message


def acknowledge(pipeline: Pipeline, message: Any) -> None:
    """Takes a p4.v1.DigestListAck. Raises EntityError."""
    schema = find(pipeline.schema.digests, "digest", message.digest_id)
    pipeline.state.digests.acknowledge(schema.index, message.list_id)


def digest_list(schema: DigestSchema, listed: DigestList) -> Any:
    """The p4.v1.DigestList of a list."""
    message = p4r.DigestList(digest_id=schema.id, list_id=listed.list_id, timestamp=time.time_ns())
    for values in listed.values:
        members = [encode_data(value, kind) for value, kind in zip(values, schema.types, strict=True)]
        if schema.shape == "struct":
            message.data.append(p4d.P4Data(struct=p4d.P4StructLike(members=members)))
        elif schema.shape == "tuple":
            message.data.append(p4d.P4Data(tuple=p4d.P4StructLike(members=members)))
        else:
            message.data.append(members[0])
    return message
