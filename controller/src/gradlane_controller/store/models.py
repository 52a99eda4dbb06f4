# SPDX-License-Identifier: Apache-2.0
"""The tables. What changes here needs a migration; a test compares both."""

from datetime import datetime, timezone
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    DateTime,
    Dialect,
    Float,
    Integer,
    LargeBinary,
    String,
    Text,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Utc(TypeDecorator[datetime]):
    """A time in UTC, also where the database knows no time zones."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To the database."""
        return None if value is None else value.astimezone(timezone.utc)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        """From the database: SQLite's have no zone."""
        if value is None:
            return None
        return value.replace(tzinfo=timezone.utc) if value.tzinfo is None else value.astimezone(timezone.utc)


class Base(DeclarativeBase):
    """All tables."""


class JobRow(Base):
    """A job that came over HTTP. `version` is the `revision` (of `LeadershipRow`) that changed it last: no two states
    of a job have the same, not even if it was removed between them."""

    __tablename__ = "jobs"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    text: Mapped[str] = mapped_column(Text)
    version: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(Utc)
    updated_at: Mapped[datetime] = mapped_column(Utc)


class SwitchRow(Base):
    """What the fabric file does not say of a switch: whether it is drained, and its number on the wire, if that is not
    its place in the file."""

    __tablename__ = "switches"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    drained: Mapped[bool] = mapped_column(Boolean)
    number: Mapped[int | None] = mapped_column(Integer)


class LeadershipRow(Base):
    """The only row: who may write to the switches, and until when.

    `number` grows with every change of the leader, and fences off those before. `expires` is in seconds of `clock`:
    the database's own, or that of one boot of this machine. `revision` counts the changes of jobs and switches.
    """

    __tablename__ = "leadership"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(BigInteger)
    holder: Mapped[str | None] = mapped_column(String(32))
    name: Mapped[str] = mapped_column(String(255))
    expires: Mapped[float] = mapped_column(Float(53))
    clock: Mapped[str] = mapped_column(String(64))
    revision: Mapped[int] = mapped_column(BigInteger)


class ControllerRow(Base):
    """A controller that stands by: how many switches it has sessions with, and when it said so."""

    __tablename__ = "controllers"

    holder: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(255))
    reach: Mapped[int] = mapped_column(Integer)
    seen: Mapped[float] = mapped_column(Float(53))
    clock: Mapped[str] = mapped_column(String(64))


class EventRow(Base):
    """An entry of the timeline. Ids grow in the order in which entries can be seen, and are never used again."""

    __tablename__ = "events"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: Mapped[int] = mapped_column(BigInteger().with_variant(Integer(), "sqlite"), primary_key=True)
    at: Mapped[datetime] = mapped_column(Utc)
    controller: Mapped[str] = mapped_column(String(255))
    kind: Mapped[str] = mapped_column(String(32))
    subject: Mapped[str] = mapped_column(String(255))
    text: Mapped[str] = mapped_column(Text)
    data: Mapped[dict[str, Any]] = mapped_column(JSON)


class TokenRow(Base):
    """Who may ask a controller for what. `digest`: the SHA-256 of the token's secret part, which nobody keeps; `host`:
    the only one whose agent it is for."""

    __tablename__ = "tokens"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(100))
    scope: Mapped[int] = mapped_column(Integer)
    digest: Mapped[bytes] = mapped_column(LargeBinary(32))
    created: Mapped[datetime] = mapped_column(Utc)
    expires: Mapped[datetime | None] = mapped_column(Utc)
    used: Mapped[datetime | None] = mapped_column(Utc)
    host: Mapped[str | None] = mapped_column(String(63))


class TrainingRow(Base):
    """A job without a job file. `owner`: the id of the token that asked for it; `template`: its SHA-256."""

    __tablename__ = "trainings"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    owner: Mapped[str] = mapped_column(String(16))
    template: Mapped[str] = mapped_column(String(64))
    created: Mapped[datetime] = mapped_column(Utc)


class TuningRow(Base):
    """How a job is tuned, and what is known of that: `State` of adaptive/decision.py, as JSON."""

    __tablename__ = "tunings"

    name: Mapped[str] = mapped_column(String(63), primary_key=True)
    state: Mapped[dict[str, Any]] = mapped_column(JSON)


class AnswerRow(Base):
    """What a request with an Idempotency-Key was answered. `request`: the SHA-256 of its token and key, `body`: that of
    its body."""

    __tablename__ = "answers"

    request: Mapped[bytes] = mapped_column(LargeBinary(32), primary_key=True)
    body: Mapped[bytes] = mapped_column(LargeBinary(32))
    answer: Mapped[dict[str, Any]] = mapped_column(JSON)
    at: Mapped[datetime] = mapped_column(Utc, index=True)


class PictureRow(Base):
    """The live state as it was: `content` is its JSON, of `size` bytes, compressed (zlib, RFC 1950). `lasting`: one of
    those that are kept for longer."""

    __tablename__ = "pictures"

    at: Mapped[datetime] = mapped_column(Utc, primary_key=True)
    lasting: Mapped[bool] = mapped_column(Boolean)
    size: Mapped[int] = mapped_column(Integer)
    content: Mapped[bytes] = mapped_column(LargeBinary)
