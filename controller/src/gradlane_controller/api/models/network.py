# SPDX-License-Identifier: Apache-2.0
"""The topology, and what is seen of its traffic."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel

End = str
"""A port of a switch, like "leaf1:3"."""


class FabricSwitch(BaseModel):
    """A switch as the fabric file has it."""

    name: str
    target: str
    aggregation: bool
    address: str


class FabricHost(BaseModel):
    """A host and its port; the rate is in bit/s."""

    name: str
    switch: str
    port: int
    rate: int
    addresses: list[str]


class FabricLink(BaseModel):
    """Two ends, and the rate in bit/s at which each sends."""

    ends: tuple[End, End]
    rate: tuple[int, int]


class FabricAnswer(BaseModel):
    """The topology."""

    switches: list[FabricSwitch]
    hosts: list[FabricHost]
    links: list[FabricLink]


class LinkStatus(BaseModel):
    """A link; `deaf`: the ends at which nothing arrives, `load`: what each end sends that follows no tree, `sent`: all,
    by queue class, `trees`: what of it follows trees, in bit/s; None: not known."""

    ends: tuple[End, End]
    up: bool
    deaf: list[End]
    since: datetime
    load: list[float | None]
    sent: list[list[float] | None]
    trees: list[float | None]


class LinksAnswer(BaseModel):
    """`checked`: whether links are checked at all."""

    checked: bool
    links: list[LinkStatus]


class Violation(BaseModel):
    """Gradients that the guard refused; `job` is None for an id that no job has."""

    switch: str
    port: int
    host: str | None
    source: str
    job: str | None
    job_id: int
    times: int
    last: datetime


class ViolationsAnswer(BaseModel):
    """The latest last."""

    violations: list[Violation]


class Count(BaseModel):
    """Packets, and their bytes."""

    packets: int
    bytes: int


class CountersAnswer(BaseModel):
    """What switches have counted, but for those `away`."""

    reasons: dict[str, Count]
    decisions: list[dict[str, Any]]
    drop_map: list[dict[str, Any]]
    senders: list[dict[str, Any]]
    sums: list[dict[str, Any]]
    away: list[str]
