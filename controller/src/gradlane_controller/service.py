# SPDX-License-Identifier: Apache-2.0
"""The controller: which jobs there are, and that the switch holds what they and the fabric say."""

import asyncio
import logging
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from finsy import Switch

from gradlane import GradlaneError, job
from gradlane.job import Job
from gradlane_controller import fabric as fabric_file
from gradlane_controller.connection import Connection
from gradlane_controller.convergence import converge
from gradlane_controller.counters import Counters, read_counters
from gradlane_controller.errors import SwitchError
from gradlane_controller.fabric import Fabric
from gradlane_controller.pipeline import Pipeline, check_capacity, count_entries
from gradlane_controller.policy import Entity, desired_entities

_LOG = logging.getLogger(__name__)


class StorageError(GradlaneError):
    """A job can't be kept in the job folder; the message names the file."""


class UnknownJobError(GradlaneError):
    """There is no job of that name."""


def load_jobs(files: Iterable[Path], folder: Path | None) -> dict[str, Job]:
    """The jobs by name; one in the folder replaces one of the same name in a file. Raises JobError."""
    return {**_load_all(files), **_load_all(sorted(folder.glob("*.toml")) if folder else ())}


def _load_all(paths: Iterable[Path]) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for path in paths:
        it = job.load(path)
        if it.name in jobs:
            raise job.JobError(str(path), "job.name", f"is {it.name!r}, like that of {jobs[it.name].file}; one each")
        jobs[it.name] = it
    return jobs


def plan(pipeline: Pipeline, fabric: Fabric, jobs: Mapping[str, Job]) -> dict[str, list[Entity]]:
    """What each switch has to hold for these jobs. Raises JobError or PipelineError if that can't be."""
    planned = desired_entities(fabric, jobs.values())
    for switch, entities in planned.items():
        check_capacity(pipeline, switch, entities)
    return planned


class Controller:
    """Holds the desired state and makes the switch follow it, at every session and every change.

    Jobs come from files, which are read again on `reload`, and from `put_job`, which keeps them in `job_folder` if
    there is one, so that they survive a restart. Every method that changes something either succeeds as a whole, with
    the switch holding it, or leaves the desired state as it was and raises.
    """

    def __init__(
        self, pipeline: Pipeline, fabric_path: Path, job_paths: Iterable[Path], job_folder: Path | None = None
    ) -> None:
        """Reads every file. Raises FabricError, JobError or PipelineError."""
        self._pipeline = pipeline
        self._fabric_path = fabric_path
        self._job_paths = tuple(job_paths)
        self._job_folder = job_folder
        self._posted: dict[str, Job] = {}  # jobs that are in no file
        self._fabric = fabric_file.load(fabric_path)
        self._jobs = load_jobs(self._job_paths, job_folder)
        self._entities = plan(pipeline, self._fabric, self._jobs)[self._fabric.switches[0].name]
        self._lock = asyncio.Lock()
        self._ready = asyncio.Event()
        self._stood_by = False
        self._last_problem = ""
        self._connection = Connection(self._fabric.switches[0], pipeline, self._on_ready, self._on_lost)

    async def run(self) -> None:
        """Keeps the switch converged until cancelled. Raises SwitchError if it can't be reached at the start."""
        await self._connection.run()

    async def wait_until_ready(self) -> None:
        """Returns once the switch holds the desired state."""
        await self._ready.wait()

    @property
    def summary(self) -> str:
        """One line for people."""
        switch = self._fabric.switches[0]
        entries = sum(count_entries(self._entities).values())
        return f"switch {switch.name} at {switch.address}, jobs: {len(self._jobs)}, entries: {entries}"

    def status(self) -> dict[str, Any]:
        """What GET /status answers."""
        switch = self._fabric.switches[0]
        return {
            "ready": self._ready.is_set(),
            "switch": {
                "name": switch.name,
                "address": switch.address,
                "device_id": switch.device_id,
                "target": switch.target,
                "connected": self._connection.connected,
                "primary": self._connection.primary,
                "problem": self._last_problem,
            },
            "pipeline": {
                "name": self._pipeline.schema.name,
                "version": self._pipeline.schema.version,
                "cookie": f"{self._pipeline.cookie:016x}",
            },
            "jobs": [
                {
                    "name": it.name,
                    "id": it.id,
                    "file": it.file,
                    "workers": [member.host for member in it.workers],
                    "servers": [member.host for member in it.servers],
                    "slots": [it.slots.base, it.slots.last],
                }
                for it in self._jobs.values()
            ],
            "entries": count_entries(self._entities),
        }

    async def counters(self) -> Counters:
        """The switch's counters. Raises SwitchError."""
        return await self._connection.execute(lambda switch: read_counters(switch, self._fabric, self._jobs.values()))

    async def put_job(self, text: str) -> Job:
        """Adds a job, or replaces the one of that name. Raises JobError, PipelineError or SwitchError."""
        it = job.parse(text, "job in the request")
        async with self._lock:
            with _kept(self._job_folder, it.name, text):
                await self._apply(self._fabric, {**self._jobs, it.name: it})
            self._posted[it.name] = it
        return it

    async def delete_job(self, name: str) -> None:
        """Removes a job; one of the files given at the start comes back with the next start or reload.

        Raises UnknownJobError or SwitchError.
        """
        async with self._lock:
            if name not in self._jobs:
                names = ", ".join(self._jobs) or "none"
                raise UnknownJobError(f"there is no job {name!r}; there are: {names}")
            await self._apply(self._fabric, {other: it for other, it in self._jobs.items() if other != name})
            self._posted.pop(name, None)
            if self._job_folder is not None:
                (self._job_folder / f"{name}.toml").unlink(missing_ok=True)

    async def reload(self) -> None:
        """Reads the files again. Raises FabricError, JobError, PipelineError or SwitchError."""
        async with self._lock:
            fabric, jobs = self._read_files()
            await self._apply(fabric, jobs)
        _LOG.info("files read again: %s", self.summary)

    def _read_files(self) -> tuple[Fabric, dict[str, Job]]:
        fabric = fabric_file.load(self._fabric_path)
        if fabric.switches != self._fabric.switches:
            raise fabric_file.FabricError(
                fabric.file, "switch", "changed; a running controller keeps its switch, so start it anew for another"
            )
        return fabric, {**load_jobs(self._job_paths, self._job_folder), **self._posted}

    async def _apply(self, fabric: Fabric, jobs: dict[str, Job]) -> None:
        """Converges the switch to a new desired state and takes it over, or goes back to the old one and raises."""
        entities = plan(self._pipeline, fabric, jobs)[fabric.switches[0].name]
        self._connection.check_primary()
        try:
            changes = await self._connection.execute(lambda switch: converge(switch, entities))
        except SwitchError:
            await self._restore()
            raise
        self._fabric, self._jobs, self._entities = fabric, jobs, entities
        _LOG.info("converged: %s", changes)

    async def _restore(self) -> None:
        """Takes back what a failed change has written. If that fails too, the next session does it."""
        try:
            await self._connection.execute(lambda switch: converge(switch, self._entities))
        except SwitchError as problem:
            self._connection.renew(str(problem))

    async def _on_ready(self, switch: Switch) -> None:
        async with self._lock:
            if not switch.is_primary:
                self._stood_by = True
                self._ready.clear()
                self._last_problem = "another controller is primary; standing by"
                _LOG.warning("switch at %s: %s", switch.address, self._last_problem)
                return
            if self._stood_by:
                self._refresh()
                self._stood_by = False
            changes = await converge(switch, self._entities)
            self._last_problem = ""
            self._ready.set()
            _LOG.info("converged %s: %s", self.summary, changes)

    def _refresh(self) -> None:
        """Takes over what changed in the files while another controller was primary; bad files change nothing."""
        try:
            fabric, jobs = self._read_files()
            self._entities = plan(self._pipeline, fabric, jobs)[fabric.switches[0].name]
            self._fabric, self._jobs = fabric, jobs
        except GradlaneError as problem:
            _LOG.error("files not read again: %s", problem)

    def _on_lost(self, reason: str) -> None:
        self._ready.clear()
        if reason != self._last_problem:
            _LOG.warning("%s; trying again", reason)
        self._last_problem = reason


@contextmanager
def _kept(folder: Path | None, name: str, text: str) -> Generator[None, None, None]:
    """Keeps a job's file if the body succeeds; in one step, so that nobody reads half of it. Raises StorageError."""
    if folder is None:
        yield
        return
    draft = folder / f"{name}.draft"
    try:
        draft.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise StorageError(f"{draft}: can't be written: {problem.strerror}") from None
    try:
        yield
    except BaseException:
        draft.unlink()
        raise
    draft.replace(folder / f"{name}.toml")
