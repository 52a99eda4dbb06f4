# SPDX-License-Identifier: Apache-2.0
"""Ranks of jobs that are not there yet: each waits for the others of its name, until all are there."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gradlane import GradlaneError
from gradlane.errors import listed
from gradlane.job import Job
from gradlane.toml_file import Address
from gradlane_controller.trainings.templates import Template

MAX_WAITING = 4096  # ranks, of all jobs
MAX_OF_TOKEN = 128  # jobs that a token waits for or has
FORGET_SECONDS = 20.0  # after which a rank that does not ask again waits no more
FAILED_SECONDS = 5.0  # for which all are told why their job could not be made


class ConflictError(GradlaneError):
    """A rank asks for what does not go with the others of its job; these go on."""


class OwnerError(GradlaneError):
    """A job belongs to another token."""


class CrowdedError(GradlaneError):
    """There is no room for more who wait."""


@dataclass(frozen=True)
class Ask:
    """What a rank asks for: `workers` hosts with so many `processes` each. `owner`: the id of its token."""

    name: str
    rank: int
    workers: int
    processes: int
    address: Address
    template: Template
    owner: str

    def check_like(self, what: str, workers: int, processes: int, digest: str) -> None:
        """Raises ConflictError unless the job, that is so, is the one that it asks for."""
        rows = (("workers", self.workers, workers), ("processes", self.processes, processes))
        for key, mine, other in rows:
            if mine != other:
                raise ConflictError(
                    f"rank {self.rank} of job {self.name!r} says that {key} is {mine}, but {what} has {other}"
                )
        if self.template.digest != digest:
            raise ConflictError(f"rank {self.rank} of job {self.name!r} has another template than {what}")


@dataclass
class Gathering:
    """Of one job. `members`: by rank the address, and when it asked last; `patience`: seconds that the job waits for
    late ranks. Once all are there it is `making`; at the end `over` is set, and `outcome` is the job or why there is
    none."""

    first: Ask
    patience: int
    members: dict[int, tuple[Address, float]] = field(default_factory=dict[int, tuple[Address, float]])
    making: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)
    outcome: Job | Exception | None = None
    _failed_at: float = 0.0

    def end(self, outcome: Job | Exception, now: float) -> None:
        """There it is, or why it is not."""
        self.outcome, self._failed_at = outcome, now
        self.over.set()

    def result(self) -> Job:
        """The outcome. Raises it if it is an error."""
        assert self.outcome is not None
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def forgotten(self, now: float) -> bool:
        """Whether it is over, and all have been told, or could have been."""
        return self.over.is_set() and now >= self._failed_at + FAILED_SECONDS

    @property
    def whole(self) -> bool:
        """Whether all are there."""
        return len(self.members) == self.first.workers

    def missing(self) -> str:
        """Who is not there, for people."""
        return listed([f"rank {rank}" for rank in range(self.first.workers) if rank not in self.members])


class Gatherings:
    """By the names of jobs. `clock`: in seconds, counts from anywhere."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_name: dict[str, Gathering] = {}

    def find(self, name: str) -> Gathering | None:
        """Who waits for that job."""
        self.forget()
        return self._by_name.get(name)

    def join(self, ask: Ask, *, patience: int, had: int, admin: bool) -> Gathering:
        """Who waits with that rank, it included. `had`: jobs that its token has already; `admin`: it may do all.

        Raises ConflictError, OwnerError or CrowdedError, and changes nothing then; or why their job can't be made.
        """
        self.forget()
        found = self._by_name.get(ask.name)
        if found is None:
            mine = had + sum(it.first.owner == ask.owner for it in self._by_name.values())
            if mine >= MAX_OF_TOKEN and not admin:
                raise CrowdedError(f"this token has {mine} jobs, and may have {MAX_OF_TOKEN}: wait until one has ended")
            self._check_room()
            found = self._by_name[ask.name] = Gathering(ask, patience)
        else:
            self._check(found, ask, admin)
            if found.over.is_set():
                found.result()
        found.members[ask.rank] = ask.address, self._clock()
        return found

    def remove(self, name: str) -> None:
        """Nobody waits for that job any more."""
        self._by_name.pop(name, None)

    def forget(self) -> None:
        """Those who have not asked for long wait no more, unless their job is being made."""
        now = self._clock()
        for name, it in list(self._by_name.items()):
            if it.forgotten(now):
                del self._by_name[name]
            elif not it.making:
                it.members = {rank: who for rank, who in it.members.items() if now < who[1] + FORGET_SECONDS}
                if not it.members:
                    del self._by_name[name]

    def _check(self, found: Gathering, ask: Ask, admin: bool) -> None:
        if ask.owner != found.first.owner and not admin:
            raise OwnerError(f"ranks of job {ask.name!r} wait with another token; each job name belongs to one")
        first = found.first
        ask.check_like("the job that others wait for", first.workers, first.processes, first.template.digest)
        if ask.address.version != first.address.version:
            raise ConflictError(
                f"rank {ask.rank} has the IPv{ask.address.version} address {ask.address}, others of job {ask.name!r} "
                f"have IPv{first.address.version}; all must be of one family"
            )
        for rank, (address, _) in found.members.items():
            if (rank == ask.rank) != (address == ask.address):
                raise ConflictError(
                    f"rank {ask.rank} of job {ask.name!r} is at {ask.address}, but rank {rank} waits at {address}; "
                    "each rank is one host"
                )
        if ask.rank not in found.members:
            self._check_room()

    def _check_room(self) -> None:
        if sum(len(it.members) for it in self._by_name.values()) >= MAX_WAITING:
            raise CrowdedError(f"{MAX_WAITING} ranks wait for the others of their jobs; try again later")
