# SPDX-License-Identifier: Apache-2.0
"""What requests were answered that are done once only: for a day, and at most so many."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from gradlane_controller.store.models import AnswerRow

LONGEST = timedelta(days=1)
MOST = 10_000


@dataclass(frozen=True)
class Answer:
    """`request`: the SHA-256 of a request's token and key, `body`: that of its body."""

    request: bytes
    body: bytes
    answer: dict[str, Any]
    at: datetime


def find(session: Session, request: bytes, now: datetime) -> Answer | None:
    """What that was answered, within the last day."""
    row = session.get(AnswerRow, request)
    if row is None or row.at <= now - LONGEST:
        return None
    return Answer(row.request, row.body, row.answer, row.at)


def keep(session: Session, it: Answer) -> None:
    """Keeps one, and forgets what is too old, and the oldest of what is too much."""
    session.execute(delete(AnswerRow).where(AnswerRow.at <= it.at - LONGEST))
    too_many = (session.scalar(select(func.count()).select_from(AnswerRow)) or 0) - MOST + 1
    if too_many > 0:
        oldest = select(AnswerRow.request).order_by(AnswerRow.at).limit(too_many)
        session.execute(delete(AnswerRow).where(AnswerRow.request.in_(oldest)))
    session.merge(AnswerRow(**vars(it)))
