# SPDX-License-Identifier: Apache-2.0
"""How the jobs of a store are tuned."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gradlane_controller.store import lease
from gradlane_controller.store.models import TuningRow

Records = Mapping[str, Mapping[str, Any]]
"""By name of a job; JSON."""


def every(session: Session) -> Records:
    """All of them."""
    return {row.name: row.state for row in session.scalars(select(TuningRow))}


def keep(session: Session, number: int, new: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Replaces those of these jobs, None: forgets it; as the leader of that number. Raises StoreError if another
    controller leads."""
    lease.advance(session, number)
    for name, state in new.items():
        if state is None:
            forget(session, name)
        else:
            session.merge(TuningRow(name=name, state=dict(state)))


def forget(session: Session, name: str) -> None:
    """That of a job that is no more, if there is one."""
    session.execute(delete(TuningRow).where(TuningRow.name == name))
