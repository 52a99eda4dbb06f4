# SPDX-License-Identifier: Apache-2.0
"""Trainings that begin, and the agents of their hosts."""

from datetime import datetime
from ipaddress import IPv4Address, IPv6Address

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gradlane.job.file import MAX_PROCESSES
from gradlane.wire import MAX_RANKS
from gradlane_controller.trainings.templates import MAX_TEMPLATE


class NewTraining(BaseModel):
    """What a rank asks for: `address` is that of its host's agent; `template`: the name of one of the controller's, or
    the text of one, None: the first of these, or a plain one."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    rank: int = Field(ge=0, lt=MAX_RANKS)
    workers: int = Field(ge=1, le=MAX_RANKS)
    processes: int = Field(default=1, ge=1, le=MAX_PROCESSES)
    address: IPv4Address | IPv6Address
    template: str | None = Field(default=None, max_length=MAX_TEMPLATE)

    @model_validator(mode="after")
    def _check_rank(self) -> "NewTraining":
        if self.rank >= self.workers:
            raise ValueError(f"rank is {self.rank}, but {self.workers} workers have ranks below that number")
        return self


class TrainingAnswer(BaseModel):
    """The job file, for all ranks the same."""

    job: str
    id: int
    text: str


class TrainingWaits(BaseModel):
    """Not all ranks are there: ask again after `seconds`; a late rank is waited for `patience` seconds."""

    missing: str
    seconds: float
    patience: int


class ReportTaken(BaseModel):
    """Report again after `seconds`. `tolerated`: by name of a job, the part of its tolerance that it has, where that is
    not all."""

    host: str
    seconds: float
    tolerated: dict[str, float]


class Agent(BaseModel):
    """Of a host, as it reported at that time. `name`: how the host calls itself."""

    host: str
    name: str
    version: str
    addresses: list[str]
    jobs: list[str]
    at: datetime


class AgentsAnswer(BaseModel):
    """Some of those that report."""

    items: list[Agent]
    next: str | None
