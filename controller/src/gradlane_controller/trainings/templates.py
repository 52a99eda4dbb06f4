# SPDX-License-Identifier: Apache-2.0
"""Templates: job files without what the controller gives each job, which are its members, id, key and slots."""

import hashlib
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from gradlane import job, toml_file
from gradlane.job import Job, JobError
from gradlane.job.file import Slots
from gradlane.job.racks import Racks
from gradlane.toml_file import Address
from gradlane_controller.network.fabric import Port

MAX_TEMPLATE = 64 << 10  # characters
PLAIN = ""
"""The template without any: exact, and as fast as the hosts' ports."""
_GIVEN = {"worker": "its ranks say where they are", "server": "a server needs a job file"}
_GIVEN_OF_JOB = ("id", "key")


class TemplateError(JobError):
    """A template that can't be used."""


@dataclass(frozen=True)
class Template:
    """`name`: for errors; `known_as`: what jobs call it, None: they send its text."""

    name: str
    text: str
    known_as: str | None = None

    @property
    def digest(self) -> str:
        """The same for all that ask for the same. Of one of the operator's it is that of its name: so a job that is
        there, or gathers, goes on with what the file was when it began."""
        return hashlib.sha256((self.text if self.known_as is None else f"\0{self.known_as}").encode()).hexdigest()

    def fill(
        self,
        name: str,
        ports: Sequence[Port],
        addresses: Sequence[Address],
        racks: Racks | None,
        processes: int,
        given: "Given",
    ) -> Job:
        """The job of that name, at the hosts of these ports with these addresses, in rank order, and in these racks
        if it matters in which they are.

        What it does not say of rate and buffer is what the least of the ports has. Raises JobError.
        """
        content = self._content()
        content["job"] = {**content.get("job", {}), "name": name, "id": given.id, "key": given.key}
        content["worker"] = [
            {"rank": rank, "host": port.host, "address": str(address), "processes": processes}
            | ({} if racks is None else {"rack": racks.of[rank]})
            for rank, (port, address) in enumerate(zip(ports, addresses, strict=True))
        ]
        content["slots"] = {"base": given.slots.base, "mask": given.slots.mask}
        transport = content.setdefault("transport", {})
        transport.setdefault("rate", f"{min(port.rate for port in ports)}bit")
        transport.setdefault("buffer", f"{min(port.buffer for port in ports)}B")
        if racks is not None:
            transport.setdefault("oversubscription", racks.oversubscription)
        if given.multicast is not None:
            transport["multicast"] = str(given.multicast)
        try:
            text = tomli_w.dumps(content)
        except RecursionError:
            raise TemplateError(self.name, "", "is nested too deeply") from None
        return job.parse(text, f"job {name!r}, by {self.name}")

    def check(self) -> None:
        """Raises TemplateError for one that no job can be made of, as far as that shows without its ranks."""
        self._content()

    def _content(self) -> dict[str, Any]:
        """Raises TemplateError for what is no table of tables, and for what the controller gives."""
        root = toml_file.parse(TemplateError, self.text, self.name)  # it bounds the time that the next line takes
        for key, why in _GIVEN.items():
            if root.has(key):
                raise root.error(key, f"can't be in a template: {why}")
        if root.has("slots"):
            raise root.error("slots", "can't be in a template: the controller gives each job its own")
        head = root.table("job")
        for key in _GIVEN_OF_JOB:
            if head.has(key):
                raise head.error(key, "can't be in a template: the controller gives each job its own")
        root.table("transport")
        return tomllib.loads(self.text)


@dataclass(frozen=True)
class Given:
    """What the controller gives a job; `key` in hexadecimal digits, `multicast` None: what the template says."""

    id: int
    key: str
    slots: Slots
    multicast: Address | None = None


class Templates:
    """Those of the operator by name, the first of which holds where a job asks for none."""

    def __init__(self, files: Iterable[Path] = ()) -> None:
        """Reads them. Raises TemplateError."""
        self._known: dict[str, Template] = {}
        for file in files:
            it = Template(str(file), toml_file.read(TemplateError, file), file.stem)
            if file.stem in self._known:
                raise TemplateError(str(file), "", f"{self._known[file.stem].name} has the name {file.stem!r}, too")
            it.check()
            self._known[file.stem] = it

    @property
    def known(self) -> Mapping[str, Template]:
        """By the names of their files, without what follows the dot."""
        return self._known

    def find(self, asked: str | None) -> Template:
        """By what a rank asks for: a name, the text of one, or None. Raises TemplateError."""
        if asked is None:
            return next(iter(self._known.values()), Template("the plain template", PLAIN))
        if "\n" in asked or "=" in asked or "[" in asked:
            return Template("the template in the request", asked)
        if asked not in self._known:
            names = ", ".join(self._known) or "none"
            raise TemplateError("the request", "template", f"is {asked[:63]!r}; the controller's own are: {names}")
        return self._known[asked]
