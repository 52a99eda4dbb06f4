# SPDX-License-Identifier: Apache-2.0
"""Tokens."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel, Field


class NewToken(BaseModel):
    """What a token should be; `days`: after which it expires, None: never. `host`: of scope agents, the only one whose
    agent may report with it; None: that of the host which it comes from."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[ -~]+$")
    scope: Literal["agents", "read", "jobs", "admin"]
    days: float | None = Field(default=None, gt=0, le=3650)
    host: str | None = Field(default=None, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")


class TokenAnswer(BaseModel):
    """A token without its secret."""

    id: str
    name: str
    scope: Literal["agents", "read", "jobs", "admin"]
    created: datetime
    expires: datetime | None
    used: datetime | None
    host: str | None


class TokenMade(TokenAnswer):
    """A new one: this is the only time that it is said."""

    token: str


class TokensAnswer(BaseModel):
    """Some tokens."""

    items: list[TokenAnswer]
    next: str | None
