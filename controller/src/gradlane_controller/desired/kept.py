# SPDX-License-Identifier: Apache-2.0
"""What is kept in the store, so that it survives a restart and a change of the leader: the jobs that came over HTTP,
what the fabric file does not say of switches, and how jobs are tuned."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy.orm import Session

from gradlane import job
from gradlane.job import Job
from gradlane_controller.policy.tuning import NEUTRAL, Tuning
from gradlane_controller.store import Store, jobs, lease, switches, tunings
from gradlane_controller.store.jobs import StoredJob
from gradlane_controller.store.switches import SwitchRecords

_Found = tuple[int, Mapping[str, StoredJob], SwitchRecords, tunings.Records]


class Kept:
    """`jobs` by name, `switches`, and what is known of how jobs are tuned (`tuned`, by name), as this controller last
    read or wrote them: at that `revision`; `tunings` are those that are not neutral. Methods raise StoreError; `number`
    is that of the leader."""

    def __init__(self, store: Store) -> None:
        """Reads them. Blocks."""
        self._store = store
        self._take(store.read(_read))

    def _take(self, found: _Found) -> None:
        self.revision, self.jobs, self.switches, self.tuned = found
        of_jobs = {name: Tuning(**it["tuning"]) for name, it in self.tuned.items()}
        self.tunings: Mapping[str, Tuning] = {name: it for name, it in of_jobs.items() if it != NEUTRAL}

    async def read(self) -> None:
        """Reads them again, as another controller may have changed them."""
        self._take(await self._store.run(self._store.read, _read))

    def parsed(self) -> dict[str, Job]:
        """The jobs by name. Raises JobError that names the job."""
        return {name: job.parse(it.text, f"job {name!r} in the store") for name, it in self.jobs.items()}

    @asynccontextmanager
    async def put(self, number: int, texts: Mapping[str, str], expected: int | None) -> AsyncGenerator[None, None]:
        """Keeps jobs if the body succeeds, all or none; `texts` by name, and `expected` as `jobs.put` takes it. What
        can fail for want of space or rights fails before the body.

        Raises ChangedMeanwhileError, too.
        """
        if texts:
            await self._store.run(self._store.rehearse, _put, number, texts, expected)
        yield
        if texts:
            self._take(await self._store.run(self._store.write, _put, number, texts, expected))

    @asynccontextmanager
    async def remove(self, number: int, name: str, expected: int | None) -> AsyncGenerator[None, None]:
        """As `put`, removes one."""
        await self._store.run(self._store.rehearse, _remove, number, name, expected)
        yield
        self._take(await self._store.run(self._store.update, _remove, number, name, expected))

    async def keep_tuned(self, number: int, new: Mapping[str, Mapping[str, Any] | None]) -> None:
        """Replaces what is kept of how these jobs are tuned; None: forgets it."""
        self._take(await self._store.run(self._store.write, _keep_tuned, number, new))

    async def keep_switches(self, number: int, new: SwitchRecords) -> None:
        """Replaces what is kept of switches."""
        if new != self.switches:
            self._take(await self._store.run(self._store.write, _keep_switches, number, new))


def _put(session: Session, number: int, texts: Mapping[str, str], expected: int | None) -> _Found:
    for name, text in texts.items():
        jobs.put(session, number, name, text, expected)
    return _read(session)


def _remove(session: Session, number: int, name: str, expected: int | None) -> _Found:
    jobs.remove(session, number, name, expected)
    tunings.forget(session, name)
    return _read(session)


def _keep_tuned(session: Session, number: int, new: Mapping[str, Mapping[str, Any] | None]) -> _Found:
    tunings.keep(session, number, new)
    return _read(session)


def _keep_switches(session: Session, number: int, new: SwitchRecords) -> _Found:
    switches.keep(session, number, new)
    return _read(session)


def _read(session: Session) -> _Found:
    stored = {it.name: it for it in jobs.every(session)}
    return lease.leader(session).revision, stored, switches.records(session), tunings.every(session)
