# SPDX-License-Identifier: Apache-2.0
"""Jobs of the store, and how they are tuned."""

from typing import Literal

from pydantic import BaseModel

from gradlane_controller.api.models.status import JobStatus


class JobRow(JobStatus):
    """A job, and its version."""

    version: str


class JobAnswer(JobRow):
    """`text`: its file, without key and comments, if it came over HTTP."""

    text: str | None


class JobsAnswer(BaseModel):
    """Some jobs."""

    items: list[JobRow]
    next: str | None


class JobTaken(BaseModel):
    """A job is there; the ETag is its version."""

    job: str
    id: int


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
