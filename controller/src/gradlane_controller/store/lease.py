# SPDX-License-Identifier: Apache-2.0
"""Who leads, as the store has it: a lease with a number that only grows (a fencing token).

Times are those of the database's clock on PostgreSQL. SQLite has none, and its users are on one machine: they take that
one's, which counts from its last boot.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sqlalchemy import Update, case, delete, extract, func, or_, select, update
from sqlalchemy.orm import Session

from gradlane_controller.errors import StoreError
from gradlane_controller.store.models import ControllerRow, LeadershipRow

PRESENT_SECONDS = 3.0  # since a controller has said that it stands by
_DATABASE = "database"


@dataclass(frozen=True)
class Leader:
    """Who leads, or led last: its name and its number; `until` when, in seconds from now (not more than 0: nobody
    does). `revision` counts the changes of jobs and switches."""

    name: str
    number: int
    until: float
    revision: int


def leader(session: Session) -> Leader:
    """Who leads."""
    now, clock = _now(session)
    row = session.get_one(LeadershipRow, 1)
    valid = row.holder is not None and row.clock == clock
    return Leader(row.name, row.number, row.expires - now if valid else 0.0, row.revision)


def acquire(session: Session, holder: str, name: str, seconds: float) -> int | None:
    """Makes `holder` the leader for that time, if nobody is; its number, None: somebody is."""
    now, clock = _now(session)
    free = or_(LeadershipRow.holder.is_(None), LeadershipRow.clock != clock, LeadershipRow.expires <= now)
    new = {"holder": holder, "name": name, "clock": clock, "expires": now + seconds}
    statement = update(LeadershipRow).where(free).values(number=LeadershipRow.number + 1, **new)
    return session.scalar(statement.returning(LeadershipRow.number))


def renew(session: Session, holder: str, number: int, seconds: float) -> bool:
    """The leader of that number remains it for that time from now; False: it is not the leader any more."""
    now, clock = _now(session)
    statement = _of(holder, number).where(LeadershipRow.clock == clock, LeadershipRow.expires > now)
    return session.scalar(statement.values(expires=now + seconds).returning(LeadershipRow.number)) is not None


def outgrow(session: Session, holder: str, number: int, seconds: float, least: int) -> int | None:
    """As `renew`, with another number, of `least` at least; it, None: it is not the leader any more."""
    now, clock = _now(session)
    statement = _of(holder, number).where(LeadershipRow.clock == clock, LeadershipRow.expires > now)
    grown = case((LeadershipRow.number < least, least), else_=LeadershipRow.number + 1)
    return session.scalar(statement.values(number=grown, expires=now + seconds).returning(LeadershipRow.number))


def release(session: Session, holder: str, number: int) -> None:
    """Nobody leads, if that one did."""
    session.execute(_of(holder, number).values(holder=None))


def advance(session: Session, number: int) -> int:
    """The next revision, for a change by the leader of that number. From then on until the transaction ends nobody else
    becomes the leader, or changes anything. Raises StoreError if another controller leads."""
    leads = LeadershipRow.number == number, LeadershipRow.holder.is_not(None)
    statement = update(LeadershipRow).where(*leads).values(revision=LeadershipRow.revision + 1)
    revision = session.scalar(statement.returning(LeadershipRow.revision))
    if revision is None:
        raise StoreError("another controller leads meanwhile, so this one changes nothing")
    return revision


def stand_by(session: Session, holder: str, name: str, reach: int) -> None:
    """Says that this controller would lead, and how many switches it has sessions with."""
    now, clock = _now(session)
    new = {"name": name, "reach": reach, "seen": now, "clock": clock}
    changed = update(ControllerRow).where(ControllerRow.holder == holder).values(**new)
    if session.scalar(changed.returning(ControllerRow.holder)) is None:
        gone = or_(ControllerRow.clock != clock, ControllerRow.seen < now - PRESENT_SECONDS)
        session.execute(delete(ControllerRow).where(gone))
        session.add(ControllerRow(holder=holder, **new))


def stand_down(session: Session, holder: str) -> None:
    """That controller would lead no more."""
    session.execute(delete(ControllerRow).where(ControllerRow.holder == holder))


def accompanied(session: Session, holder: str) -> bool:
    """Whether another controller stands by."""
    now, clock = _now(session)
    present = ControllerRow.clock == clock, ControllerRow.seen >= now - PRESENT_SECONDS
    return (
        session.scalar(select(ControllerRow.holder).where(ControllerRow.holder != holder, *present).limit(1))
        is not None
    )


def most_reach(session: Session, holder: str) -> int:
    """How many switches another controller, that stands by, has sessions with, at most."""
    now, clock = _now(session)
    present = ControllerRow.clock == clock, ControllerRow.seen >= now - PRESENT_SECONDS
    found = session.scalar(select(func.max(ControllerRow.reach)).where(ControllerRow.holder != holder, *present))
    return found or 0


def _of(holder: str, number: int) -> Update:
    return update(LeadershipRow).where(LeadershipRow.holder == holder, LeadershipRow.number == number)


def _now(session: Session) -> tuple[float, str]:
    """What is the time, by which clock. What waits for a lock after this takes an earlier time for now: that never
    makes a lease longer."""
    if session.get_bind().dialect.name == "postgresql":
        return float(session.scalar(select(extract("epoch", func.clock_timestamp()))) or 0), _DATABASE
    return time.monotonic(), _boot()


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
