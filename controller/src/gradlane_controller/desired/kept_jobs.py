# SPDX-License-Identifier: Apache-2.0
"""The jobs that came over HTTP: kept in the store, so that they survive a restart and a change of the leader."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

from sqlalchemy.orm import Session

from gradlane import job
from gradlane.job import Job
from gradlane_controller.store import Store, jobs, lease
from gradlane_controller.store.jobs import StoredJob


class KeptJobs:
    """`stored`: the jobs of the store by name, as this controller last read or wrote them. Methods raise StoreError."""

    def __init__(self, store: Store) -> None:
        """Reads them. Blocks."""
        self._store = store
        self.revision, self.stored = store.read(_read)

    async def read(self) -> None:
        """Reads them again, as another controller may have changed them."""
        self.revision, self.stored = await self._store.run(self._store.read, _read)

    def parsed(self) -> dict[str, Job]:
        """By name. Raises JobError that names the job."""
        return {name: job.parse(it.text, f"job {name!r} in the store") for name, it in self.stored.items()}

    @asynccontextmanager
    async def put(self, number: int, name: str, text: str, expected: int | None) -> AsyncGenerator[None, None]:
        """Keeps a job if the body succeeds; `number` is that of the leader, and `expected` as `jobs.put` takes it. What
        can fail for want of space or rights fails before the body.

        Raises ChangedMeanwhileError, too.
        """
        await self._store.run(self._store.rehearse, jobs.put, number, name, text, expected)
        yield
        self.revision, self.stored = await self._store.run(self._store.write, _put, number, name, text, expected)

    @asynccontextmanager
    async def remove(self, number: int, name: str, expected: int | None) -> AsyncGenerator[None, None]:
        """As `put`, removes it."""
        await self._store.run(self._store.rehearse, jobs.remove, number, name, expected)
        yield
        self.revision, self.stored = await self._store.run(self._store.update, _remove, number, name, expected)


_Found = tuple[int, Mapping[str, StoredJob]]


def _put(session: Session, number: int, name: str, text: str, expected: int | None) -> _Found:
    jobs.put(session, number, name, text, expected)
    return _read(session)


def _remove(session: Session, number: int, name: str, expected: int | None) -> _Found:
    jobs.remove(session, number, name, expected)
    return _read(session)


def _read(session: Session) -> _Found:
    return lease.leader(session).revision, {it.name: it for it in jobs.every(session)}
