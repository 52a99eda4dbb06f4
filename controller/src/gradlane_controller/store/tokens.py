# SPDX-License-Identifier: Apache-2.0
"""The tokens of a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gradlane_controller.store.models import TokenRow


class Scope(IntEnum):
    """What a token is good for. AGENTS: the reports of agents alone; of the others each includes those before."""

    AGENTS = 0
    READ = 1
    JOBS = 2
    ADMIN = 3

    @property
    def text(self) -> str:
        """As in requests and answers."""
        return self.name.lower()


@dataclass(frozen=True)
class Token:
    """What is known of one. `digest`: the SHA-256 of its secret part. `used`: when it was last, to some seconds.
    `host`: the only one whose agent may report with it, None: that of the host that it comes from."""

    id: str
    name: str
    scope: Scope
    digest: bytes
    created: datetime
    expires: datetime | None
    used: datetime | None
    host: str | None = None

    def valid(self, now: datetime) -> bool:
        """Whether it has not expired."""
        return self.expires is None or now < self.expires


def every(session: Session) -> Sequence[Token]:
    """All of them."""
    rows = session.scalars(select(TokenRow))
    return [Token(it.id, it.name, Scope(it.scope), it.digest, it.created, it.expires, it.used, it.host) for it in rows]


def add(session: Session, it: Token) -> None:
    """Another one."""
    session.add(TokenRow(**vars(it)))


def remove(session: Session, number: str) -> None:
    """If it is there."""
    session.execute(delete(TokenRow).where(TokenRow.id == number))


def note_used(session: Session, used: Mapping[str, datetime]) -> None:
    """When tokens were last used, by id."""
    for number, at in used.items():
        session.execute(update(TokenRow).where(TokenRow.id == number).values(used=at))
