# SPDX-License-Identifier: Apache-2.0
"""Tokens: who may ask the controller for what.

A token is 256 random bits, so what is kept of it is its SHA-256: nothing slower would make it harder to find. All are
in memory, so a check asks no store; what another controller of the same store has changed is known after half a second.
"""

import asyncio
import contextlib
import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from gradlane import GradlaneError
from gradlane_controller.store import Store, tokens
from gradlane_controller.store.tokens import Scope, Token

__all__ = ["Scope", "Token", "TokenConflictError", "TokenError", "Tokens", "UnknownTokenError", "describe"]

MAX_TOKENS = 1000
POLL_SECONDS = 0.5  # after so long a token that was revoked elsewhere is worth nothing here
USED_SECONDS = 10.0  # so often it is written down when tokens were last used
MAX_NAME = 100

_FORM = re.compile(r"gradlane_([0-9a-f]{16})_([A-Za-z0-9_-]{43})", re.ASCII)
_LOG = logging.getLogger(__name__)


class TokenError(GradlaneError):
    """Of no token that is worth anything; the message says why, and has nothing of it."""


class TokenConflictError(GradlaneError):
    """The change would leave no way in, or there are too many."""


class UnknownTokenError(GradlaneError):
    """There is no token of that id."""


def describe(token: Token) -> dict[str, Any]:
    """Without its hash."""
    times = {"created": token.created, "expires": token.expires, "used": token.used}
    return {
        "id": token.id,
        "name": token.name,
        "scope": token.scope.text,
        "host": token.host,
        **{name: at and at.isoformat(timespec="seconds") for name, at in times.items()},
    }


def _now() -> datetime:
    return datetime.now(timezone.utc)


class Tokens:
    """The tokens of a store, as this controller knows them."""

    def __init__(self, store: Store, clock: Callable[[], datetime] = _now) -> None:
        self._store, self._clock = store, clock
        self._known: dict[str, Token] = {}
        self._used: dict[str, datetime] = {}
        self._changing = asyncio.Lock()
        self._lost = False

    def all(self) -> list[Token]:
        """By id."""
        used = self._used
        return [replace(it, used=used.get(it.id, it.used)) for _, it in sorted(self._known.items())]

    def check(self, text: str) -> Token:
        """The token that this is. Raises TokenError."""
        form = _FORM.fullmatch(text)
        if form is None:
            raise TokenError("this is no token; one begins with gradlane_ and has 68 characters")
        token = self._known.get(form[1])
        expected = token.digest if token is not None else bytes(32)
        if not hmac.compare_digest(_digest(form[2]), expected) or token is None:
            raise TokenError("nobody has this token; it may have been revoked")
        now = self._clock()
        if not token.valid(now):
            raise TokenError(f"this token has expired, at {token.expires}; ask who has made it for another")
        self._used[token.id] = now
        return token

    def holds(self, token: Token) -> bool:
        """Whether a token that was checked is still worth something."""
        return token.id in self._known and token.valid(self._clock())

    async def load(self) -> None:
        """Reads them. Raises StoreError."""
        async with self._changing:
            await self._load()

    async def create(
        self, name: str, scope: Scope, lifetime: timedelta | None = None, host: str | None = None
    ) -> tuple[Token, str]:
        """A new one, and what to send; `host`: as `Token` has it. Raises TokenConflictError if there are too many, or
        it has a host and another scope than AGENTS, or StoreError."""
        if host is not None and scope is not Scope.AGENTS:
            raise TokenConflictError(f"a host goes with the scope agents, and the scope is {scope.text}")
        async with self._changing:
            await self._load()
            if len(self._known) >= MAX_TOKENS:
                raise TokenConflictError(f"there are {MAX_TOKENS} tokens, and no more are possible; revoke some")
            now, number, secret = self._clock(), secrets.token_hex(8), secrets.token_urlsafe(32)
            expires = None if lifetime is None else now + lifetime
            token = Token(number, name[:MAX_NAME], scope, _digest(secret), now, expires, None, host)
            await self._store.run(self._store.write, tokens.add, token)
            self._known = {**self._known, number: token}
        return token, f"gradlane_{number}_{secret}"

    async def revoke(self, number: str) -> Token:
        """That one is worth nothing from now on. Raises UnknownTokenError, TokenConflictError for the last that may do
        everything, or StoreError."""
        async with self._changing:
            await self._load()
            token = self._known.get(number)
            if token is None:
                raise UnknownTokenError(f"there is no token {number[:MAX_NAME]!r}; `token list` says which there are")
            if self._has_admin() and not self._has_admin(without=number):
                raise TokenConflictError(f"token {number} is the last of scope admin; create another one first")
            await self._store.run(self._store.update, tokens.remove, number)
            self._known = {key: it for key, it in self._known.items() if key != number}
        return token

    async def ensure_admin(self, file: Path) -> bool:
        """Makes a token of scope admin if there is none, and writes it to the file, which is of this user alone.

        Returns whether it has. Raises StoreError or TokenError.
        """
        await self.load()
        if self._has_admin():
            return False
        _, text = await self.create("first", Scope.ADMIN)
        try:
            await asyncio.to_thread(_write, file, text)
        except OSError as problem:
            raise TokenError(f"{file}: can't be written: {problem.strerror}; name another with --token-file") from None
        return True

    async def run(self) -> None:
        """Follows what others change, and writes down what was used, until it is cancelled."""
        written = asyncio.get_running_loop().time()
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.load()
                now = asyncio.get_running_loop().time()
                if self._used and now >= written + USED_SECONDS:
                    used, self._used, written = self._used, {}, now
                    await self._store.run(self._store.update, tokens.note_used, used)
                self._lost = False
            except GradlaneError as problem:
                if not self._lost:
                    _LOG.error("tokens are those known before, as the store can't be asked: %s", problem)
                self._lost = True

    def _has_admin(self, without: str = "") -> bool:
        now = self._clock()
        return any(it.scope is Scope.ADMIN and it.valid(now) for it in self._known.values() if it.id != without)

    async def _load(self) -> None:
        self._known = {it.id: it for it in await self._store.run(self._store.read, tokens.every)}


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _write(file: Path, text: str) -> None:
    """In one step, so that nobody reads half of it."""
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w") as opened:
            opened.write(text + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        draft.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
