# SPDX-License-Identifier: Apache-2.0
"""Where the desired state comes from: the fabric file, job files, and the store, whose jobs replace those of files."""

import asyncio
import itertools
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gradlane import GradlaneError, job
from gradlane.job import Job
from gradlane_controller.desired.kept import Kept
from gradlane_controller.desired.plan import load_jobs
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.store import Store

_LOG = logging.getLogger(__name__)


class Sources:
    """`kept`: what is in the store. `fabric` and `jobs`: as they were read last. `job_paths`: what is read next."""

    def __init__(self, fabric_path: Path, job_paths: Iterable[Path], store: Store) -> None:
        """Reads everything. Blocks. Raises FabricError, JobError or StoreError."""
        self._fabric_path, self.job_paths = fabric_path, tuple(job_paths)
        self.kept = Kept(store)
        self.fabric, self._of_files = self._read_files({})

    @property
    def jobs(self) -> dict[str, Job]:
        """All, by name. Raises JobError that names a job of the store."""
        return {**self._of_files, **self.kept.parsed()}

    async def read_files(self, now: Fabric) -> tuple[Fabric, Mapping[str, Job]]:
        """The fabric (`now`, if nothing has changed) and the jobs of files; `take` makes them those that were read
        last. Switches that the fabric of `now` has keep their numbers. Raises FabricError or JobError."""
        fabric, jobs = await asyncio.to_thread(self._read_files, {it.name: it.index for it in now.switches})
        return now if fabric.says_as(now) else fabric, jobs

    def take(self, fabric: Fabric, jobs_of_files: Mapping[str, Job]) -> None:
        """They hold from now on."""
        self.fabric, self._of_files = fabric, jobs_of_files

    async def refresh(self, now: Fabric) -> tuple[Fabric, dict[str, Job]]:
        """Everything as it is after another controller has changed it. Files that are bad are as before.

        Raises StoreError, or JobError for a job of the store.
        """
        await self.kept.read()
        try:
            self.take(*await self.read_files(now))
        except GradlaneError as problem:
            _LOG.error("reload failed, nothing has changed: %s", problem)
        return self.fabric, await asyncio.to_thread(lambda: self.jobs)

    def _read_files(self, numbers: Mapping[str, int]) -> tuple[Fabric, Mapping[str, Job]]:
        fabric = fabric_file.load(self._fabric_path, {**self.kept.switches.indices, **numbers})
        return fabric, load_jobs(self.job_paths)


async def parse_jobs(texts: Sequence[str], name: str | None = None) -> dict[str, Job]:
    """Those of a request, by name, which must be `name` if that is given. A large one takes half a second. Raises
    JobError."""
    jobs = [await asyncio.to_thread(job.parse, text, "job in the request") for text in texts]
    for it in jobs:
        if name not in (None, it.name):
            raise it.error("job.name", f"is {it.name!r}; it must be {name!r}, as in the path")
    for first, second in itertools.combinations(jobs, 2):
        if first.name == second.name:
            raise second.error("job.name", f"is {second.name!r}, like that of another in the request")
    return {it.name: it for it in jobs}
