# SPDX-License-Identifier: Apache-2.0
"""Shapes of answers, for the OpenAPI document: what is built elsewhere is not checked against them but by tests."""

from datetime import datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gradlane.job.file import MAX_PROCESSES, MAX_RANKS
from gradlane_controller.trainings.templates import MAX_TEMPLATE

End = str
"""A port of a switch, like "leaf1:3"."""


class Error(BaseModel):
    """What was wrong, and what would be right."""

    error: str


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


class JobAnswer(JobStatus):
    """A job, and its version. `text`: its file, if it came over HTTP; None for tokens of scope read: it has a key."""

    text: str | None
    version: str


class JobsAnswer(BaseModel):
    """Some jobs."""

    items: list[JobAnswer]
    next: str | None


class JobTaken(BaseModel):
    """A job is there; the ETag is its version."""

    job: str
    id: int


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


class Bounds(BaseModel):
    """Of tuning: `[adaptive]` of the fabric file; null: not tuned."""

    interval: float
    threshold: tuple[float, float] | None
    droppable: float | None
    tolerance: float | None


class JobTuning(BaseModel):
    """How a job is tuned, in steps of each knob and for people (`text`); `undoable`: how many changes can be taken
    back, `reason`: of the latest one that this controller has made."""

    name: str
    threshold: int
    protection: int
    tolerance: int
    text: str
    state: Literal["at rest", "tried", "held"]
    undoable: int
    reason: str


class AdaptiveAnswer(BaseModel):
    """Null and empty if nothing is tuned."""

    bounds: Bounds | None
    jobs: list[JobTuning]


class Deleted(BaseModel):
    """What is no more."""

    deleted: str


class NewToken(BaseModel):
    """What a token should be; `days`: after which it expires, None: never. `host`: of scope agents, the only one whose
    agent may report with it; None: that of the host which it comes from."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[ -~]+$")
    scope: Literal["agents", "read", "jobs", "admin"]
    days: float | None = Field(default=None, gt=0, le=3650)
    host: str | None = Field(default=None, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")


class TokenAnswer(BaseModel):
    """A token without its secret."""

    id: str
    name: str
    scope: Literal["agents", "read", "jobs", "admin"]
    created: datetime
    expires: datetime | None
    used: datetime | None
    host: str | None


class TokenMade(TokenAnswer):
    """A new one: this is the only time that it is said."""

    token: str


class TokensAnswer(BaseModel):
    """Some tokens."""

    items: list[TokenAnswer]
    next: str | None


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


class Health(BaseModel):
    """Of this process."""

    alive: bool


class Readiness(BaseModel):
    """Whether this controller leads and every switch that it reaches holds its state; why not."""

    ready: bool
    problems: list[str]
