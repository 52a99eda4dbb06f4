# SPDX-License-Identifier: Apache-2.0
"""The jobs of a store: those that came over HTTP."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gradlane_controller.errors import ChangedMeanwhileError
from gradlane_controller.store import lease
from gradlane_controller.store.models import JobRow

ABSENT = 0  # the version of a job that is not there


@dataclass(frozen=True)
class StoredJob:
    """`text` is the job file; no two states of a job have the same `version`, which grows."""

    name: str
    text: str
    version: int
    created_at: datetime
    updated_at: datetime


def every(session: Session) -> Sequence[StoredJob]:
    """All jobs, by name."""
    return [_stored(row) for row in session.scalars(select(JobRow).order_by(JobRow.name))]


def put(session: Session, number: int, name: str, text: str, expected: int | None = None) -> int:
    """Adds a job or replaces it, as the leader of that number; its new version.

    Raises ChangedMeanwhileError unless its version is `expected` (None: whatever it is; ABSENT: it must not be there),
    StoreError if another controller leads.
    """
    version = _change(session, number, name, expected)
    row = session.get(JobRow, name)
    now = datetime.now(timezone.utc)
    if row is None:
        session.add(JobRow(name=name, text=text, version=version, created_at=now, updated_at=now))
    else:
        row.text, row.version, row.updated_at = text, version, now
    return version


def remove(session: Session, number: int, name: str, expected: int | None = None) -> None:
    """Removes a job, if it is there. Raises as `put` does."""
    _change(session, number, name, expected)
    session.execute(delete(JobRow).where(JobRow.name == name))


def _change(session: Session, number: int, name: str, expected: int | None) -> int:
    revision = lease.advance(session, number)
    if expected is not None:
        found = session.scalar(select(JobRow.version).where(JobRow.name == name)) or ABSENT
        if found != expected:
            raise ChangedMeanwhileError(f"job {name!r} was changed meanwhile; read it again")
    return revision


def _stored(row: JobRow) -> StoredJob:
    return StoredJob(row.name, row.text, row.version, row.created_at, row.updated_at)
