# SPDX-License-Identifier: Apache-2.0
"""The live state, what was, and the timeline."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from gradlane_controller.api.models.status import ControllerStatus


class EventAnswer(BaseModel):
    """What has happened to the subject; ids grow over all controllers of a store."""

    id: int
    at: datetime
    controller: str
    kind: str
    subject: str
    text: str
    data: dict[str, Any]


class EventsAnswer(BaseModel):
    """Some of the timeline; `next` is the `after` of what follows."""

    items: list[EventAnswer]
    next: int | None


class Alarm(BaseModel):
    """What is wrong, since when, and how to mend it."""

    id: str
    since: datetime
    severity: Literal["critical", "warning", "info"]
    subject: str
    text: str
    remedy: str


class StateAnswer(BaseModel):
    """The live state; what is not known is null or absent. Loads are in bit/s by queue class, a total alone one of
    them."""

    at: datetime
    controller: ControllerStatus
    switches: list[dict[str, Any]]
    links: list[dict[str, Any]]
    hosts: list[dict[str, Any]]
    jobs: list[dict[str, Any]]
    alarms: list[Alarm]


class HistoryAnswer(BaseModel):
    """Some pictures; `next` is the `from` of what follows."""

    items: list[StateAnswer]
    next: datetime | None
