# SPDX-License-Identifier: Apache-2.0
"""The pictures of a store: the live state of the last hour in detail, and of the last day now and then."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import and_, delete, func, or_, select
from sqlalchemy.orm import Session

from gradlane_controller.store.models import PictureRow

DETAILED = timedelta(hours=1)  # that every picture is kept,
LONGEST = timedelta(days=1)  # and a lasting one
MOST = 10_000  # pictures,
MOST_BYTES = 128 << 20  # and bytes of them, compressed, that are kept
HOLDS = timedelta(minutes=2)  # longer than between two lasting ones; what is older does not say how it was later


@dataclass(frozen=True)
class Kept:
    """A picture: JSON of `size` bytes, compressed with zlib into `content`."""

    at: datetime
    lasting: bool
    size: int
    content: bytes


def add(session: Session, it: Kept) -> None:
    """Keeps one; in the place of one of the same time, so that it may be tried again."""
    session.merge(PictureRow(**vars(it)))


def between(
    session: Session, first: datetime, last: datetime, step: timedelta, most: int, most_bytes: int
) -> tuple[Sequence[Kept], datetime | None]:
    """That of the time `first` (the latest one until then, if it is not older than HOLDS), and those until `last`, at
    most one of each `step` since 1970 (0: all of them): the first ones, at most so many and, but for one, of so many
    bytes of JSON. And the time of the one that follows, None: none does."""
    before = select(func.max(PictureRow.at)).where(PictureRow.at <= first, PictureRow.at > first - HOLDS)
    first = session.scalar(before) or first
    columns = select(PictureRow.at, PictureRow.size).where(PictureRow.at >= first, PictureRow.at <= last)
    chosen: list[datetime] = []
    total, turn, following = 0, None, None
    for at, size in session.execute(columns.order_by(PictureRow.at)):
        now = at.timestamp() // step.total_seconds() if step else at
        if now == turn:
            continue
        turn, total = now, total + size
        if chosen and (len(chosen) == most or total > most_bytes):
            following = at
            break
        chosen.append(at)
    rows = session.scalars(select(PictureRow).where(PictureRow.at.in_(chosen)).order_by(PictureRow.at))
    return [Kept(row.at, row.lasting, row.size, row.content) for row in rows], following


def thin(session: Session, now: datetime) -> None:
    """Forgets what is too old, and the oldest of what is too much."""
    passing = and_(PictureRow.at < now - DETAILED, PictureRow.lasting.is_(False))
    session.execute(delete(PictureRow).where(or_(passing, PictureRow.at < now - LONGEST)))
    newest = PictureRow.at.desc()
    sizes = func.sum(func.length(PictureRow.content)).over(order_by=newest)
    sums = select(PictureRow.at, func.row_number().over(order_by=newest).label("number"), sizes.label("bytes"))
    found = sums.subquery()
    too_much = select(found.c.at).where(or_(found.c.number > MOST, found.c.bytes > MOST_BYTES))
    session.execute(delete(PictureRow).where(PictureRow.at.in_(too_much)))
