# SPDX-License-Identifier: Apache-2.0
"""Requests that are done once only, however often they arrive (Idempotency-Key, draft-ietf-httpapi-idempotency-key).

Only what succeeded is kept, in the store, so that a repeated request is known after a take-over, too: what failed has
changed nothing, and may be tried again.
"""

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from typing import Any

from gradlane_controller.api.errors import Refusal
from gradlane_controller.store import Store, answers


class Answers:
    """Of requests with a key."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._at_work: set[bytes] = set()

    async def once(
        self,
        token: str,
        key: str | None,
        body: str,
        act: Callable[[], Awaitable[dict[str, Any]]],
    ) -> tuple[dict[str, Any], bool]:
        """What `act` answers, or (True) has answered to that token and key. Raises Refusal if that was for another
        body, or is being done; StoreError; and what `act` does."""
        if key is None:
            return await act(), False
        request = hashlib.sha256(f"{token} {key}".encode()).digest()
        digest = hashlib.sha256(body.encode()).digest()
        if request in self._at_work:
            raise Refusal(409, "the first request with this Idempotency-Key is at work", {"Retry-After": "1"})
        self._at_work.add(request)
        try:
            found = await self._store.run(self._store.read, answers.find, request, datetime.now(timezone.utc))
            if found is not None and found.body != digest:
                raise Refusal(409, "this Idempotency-Key was sent with another body; take another key")
            if found is not None:
                return found.answer, True
            answer = await act()
            kept = answers.Answer(request, digest, answer, datetime.now(timezone.utc))
            await self._store.run(self._store.write, answers.keep, kept)
            return answer, False
        finally:
            self._at_work.discard(request)
