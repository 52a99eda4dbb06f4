# SPDX-License-Identifier: Apache-2.0
"""The controller, switches and jobs as they are now."""

from pydantic import BaseModel


class Sums(BaseModel):
    """Where switches sum a job's gradients, and how many of its 16 buckets each root has; or why none does."""

    switches: list[str]
    slots: tuple[int, int] | None
    roots: dict[str, int]
    reason: str


class Mended(BaseModel):
    """What other clients changed and was put right again."""

    times: int
    entities: int


class Pipeline(BaseModel):
    """The P4 program."""

    name: str
    version: str
    cookie: str


class SwitchStatus(BaseModel):
    """A switch and what it holds, by table."""

    name: str
    address: str
    device_id: int
    target: str
    connected: bool
    primary: bool
    ready: bool
    up_to_date: bool
    problem: str
    mended: Mended
    entries: dict[str, int]
    pipeline: Pipeline


class JobStatus(BaseModel):
    """A job; `index` and `slots` are its numbers in the data plane."""

    name: str
    id: int
    index: int
    file: str
    workers: list[str]
    servers: list[str]
    slots: tuple[int, int]
    sums: Sums | None


class ControllerStatus(BaseModel):
    """Which controller answers; `number`: the fencing number of the leader."""

    name: str
    leader: bool
    number: int | None = None


class Status(BaseModel):
    """Of all."""

    ready: bool
    controller: ControllerStatus
    switches: list[SwitchStatus]
    jobs: list[JobStatus]


class Health(BaseModel):
    """Of this process."""

    alive: bool


class Readiness(BaseModel):
    """Whether this controller leads and every switch that it reaches holds its state; why not."""

    ready: bool
    problems: list[str]
