# SPDX-License-Identifier: Apache-2.0
"""Changes of what the switches should hold."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Change(BaseModel):
    """Of one entry."""

    change: Literal["insert", "modify", "delete"]
    table: str
    key: str
    before: str
    after: str


class SwitchPlan(BaseModel):
    """What would be written to a switch, or the problem why it could not be read."""

    name: str
    changes: list[Change]
    problem: str


class PlanAnswer(BaseModel):
    """What would change."""

    live: bool
    switches: list[SwitchPlan]
    not_summed: dict[str, str]


class Wanted(BaseModel):
    """A change: the jobs of these job files, and (`files`) whether the controller reads its own files again."""

    model_config = ConfigDict(strict=True)

    jobs: list[str] = Field(max_length=1000)
    files: bool = False


class Applied(BaseModel):
    """The names of the jobs."""

    jobs: list[str]


class ExportAnswer(BaseModel):
    """The fabric file, the job files by the jobs' names, and which switches are drained."""

    fabric: str
    jobs: dict[str, str]
    drained: list[str]


class Drained(BaseModel):
    """Whether the switch may go; who may still send through it, as they could not be told; the hosts that can't move,
    their jobs, and those that hosts sum now, with the reason."""

    switch: str
    may_go: bool
    waits_for: list[str]
    hosts: list[str]
    jobs: list[str]
    not_summed: dict[str, str]


class Undrained(BaseModel):
    """Who does not use it yet, as they could not be told."""

    switch: str
    waits_for: list[str]


class Reloaded(BaseModel):
    """The files were read again."""

    reloaded: bool
