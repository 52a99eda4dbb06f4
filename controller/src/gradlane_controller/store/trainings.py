# SPDX-License-Identifier: Apache-2.0
"""The jobs of a store that have no job file: whose they are, and of which template."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gradlane_controller.store.models import TrainingRow


@dataclass(frozen=True)
class Training:
    """`owner`: the id of the token that asked for it; `template`: the digest of its template."""

    name: str
    owner: str
    template: str
    created: datetime


def every(session: Session) -> Mapping[str, Training]:
    """All of them, by name."""
    rows = session.scalars(select(TrainingRow))
    return {it.name: Training(it.name, it.owner, it.template, it.created) for it in rows}


def keep(session: Session, it: Training) -> None:
    """Adds it, or replaces the one of its name."""
    session.merge(TrainingRow(**vars(it)))


def remove(session: Session, name: str) -> None:
    """If it is there."""
    session.execute(delete(TrainingRow).where(TrainingRow.name == name))
