# SPDX-License-Identifier: Apache-2.0
"""The timeline of a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.orm import Session

from gradlane_controller.store.models import EventRow

MOST = 20_000  # entries that are kept
LONGEST = timedelta(days=30)  # that they are kept
_LOCK = 0x65766E74  # of PostgreSQL's advisory locks


@dataclass(frozen=True)
class Event:
    """What has happened. `id` grows over all controllers of a store; `subject` is what it happened to, `text` what it
    was, for people, and `data` the same for programs."""

    id: int
    at: datetime
    controller: str
    kind: str
    subject: str
    text: str
    data: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As the API tells it."""
        at = self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return {"id": self.id, "at": at, "controller": self.controller, "kind": self.kind} | {
            "subject": self.subject,
            "text": self.text,
            "data": self.data,
        }


def add(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Adds entries: the columns of `EventRow` but `id`. Those of one transaction come one after the other, and before
    all that are added later, so that who has seen one has seen all before it. On SQLite it is one statement."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(_LOCK)))
    session.execute(insert(EventRow).values(list(rows)))


def after(session: Session, last: int, most: int, kind: str | None = None) -> list[Event]:
    """The first entries with a greater id, at most so many; of one kind, if that is given."""
    statement = select(EventRow).where(EventRow.id > last).order_by(EventRow.id).limit(most)
    if kind is not None:
        statement = statement.where(EventRow.kind == kind)
    return [_event(row) for row in session.scalars(statement)]


def newest(session: Session, most: int) -> list[Event]:
    """The last entries, at most so many, the oldest of them first."""
    rows = session.scalars(select(EventRow).order_by(EventRow.id.desc()).limit(most))
    return [_event(row) for row in rows][::-1]


def thin(session: Session) -> None:
    """Forgets what is too old, and the oldest of what is too much."""
    last = session.scalar(select(func.max(EventRow.id))) or 0
    too_old = EventRow.at < datetime.now(timezone.utc) - LONGEST
    session.execute(delete(EventRow).where((EventRow.id <= last - MOST) | too_old))


def _event(row: EventRow) -> Event:
    return Event(row.id, row.at, row.controller, row.kind, row.subject, row.text, row.data)
