# SPDX-License-Identifier: Apache-2.0
"""The jobs and drained switches of the made-up controller, and what it would write for them."""

import threading
from typing import Any

from gradlane import GradlaneError, job
from tests.page.simulated.topology import Topology

PRECEDENCES = "[{ magnitudes = [0, 63], drop_precedence = 3 }, { magnitudes = [64, 127], drop_precedence = 2 }]"


class Refused(Exception):
    """A request that gets `status` and {"error": ...}."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class DesiredState:
    """Job files by name with their versions; which switches are drained."""

    def __init__(self, topology: Topology | None = None) -> None:
        self._topology = topology
        self._lock = threading.Lock()
        self._files: dict[str, tuple[str, int]] = {}
        self.drained: set[str] = set()
        for it in topology.jobs if topology else ():
            self._files[it.name] = _file(topology, it.name), 1

    def jobs(self) -> list[dict[str, Any]]:
        """What GET /v1/jobs lists."""
        return [self.job(name) for name in self._files]

    def job(self, name: str) -> dict[str, Any]:
        """What GET /v1/jobs/NAME answers. Raises Refused."""
        if name not in self._files:
            raise Refused(404, f"no job {name!r}")
        text, version = self._files[name]
        return {"name": name, "id": job.parse(text, name).id, "file": f"{name}.toml", "text": text, "version": version}

    def put(self, name: str, text: str, match: str | None, none_match: str | None) -> dict[str, Any]:
        """PUT /v1/jobs/NAME. Raises Refused."""
        it = _parse(text)
        if it.name != name:
            raise Refused(400, f"the file is of job {it.name!r}, not of {name!r}")
        with self._lock:
            version = self._files.get(name, ("", 0))[1]
            if (match and match != f'"{version}"') or (none_match == "*" and version):
                raise Refused(412, f"job {name!r} has changed meanwhile: read it again")
            self._files[name] = text, version + 1
        return self.job(name)

    def delete(self, name: str, match: str | None) -> dict[str, str]:
        """DELETE /v1/jobs/NAME. Raises Refused."""
        with self._lock:
            if match and match != f'"{self.job(name)["version"]}"':
                raise Refused(412, f"job {name!r} has changed meanwhile: read it again")
            self.job(name)
            del self._files[name]
        return {"deleted": name}

    def plan(self, text: str, *, live: bool) -> dict[str, Any]:
        """POST /v1/plan: the drop precedences that differ, at the switches of the workers. Raises Refused."""
        it = _parse(text)
        old = _parse(self._files[it.name][0]) if it.name in self._files else None
        before, after = ({_key(row): row.drop_precedence for row in of.policy.drop_precedences} if of else {}
                         for of in (old, it))  # fmt: skip
        changes = [
            {
                "change": "insert" if key not in before else "modify" if key in after else "delete",
                "table": "drop_precedences",
                "key": f"job={it.id} {key}",
                "before": f"set_drop_precedence(drop_precedence={before[key]})" if key in before else "",
                "after": f"set_drop_precedence(drop_precedence={after[key]})" if key in after else "",
            }
            for key in sorted({*before, *after})
            if before.get(key) != after.get(key)
        ]
        if old is None:
            changes.insert(0, {"change": "insert", "table": "jobs", "key": f"job={it.id}", "before": "",
                               "after": f"set_job(slot_base={it.slots.base})"})  # fmt: skip
        hosts = self._topology.hosts if self._topology else {}
        at = {hosts[worker.host][0] for worker in it.workers if worker.host in hosts}
        return {
            "live": live,
            "switches": [
                {"name": name, "changes": changes if name in at else [], "problem": ""}
                for name in (self._topology.switches if self._topology else ())
            ],
            "not_summed": {},
        }

    def drain(self, name: str, verb: str) -> None:
        """POST /v1/switches/NAME/drain and undrain. Raises Refused."""
        if self._topology is None or name not in self._topology.switches:
            raise Refused(404, f"no switch {name!r}")
        (self.drained.add if verb == "drain" else self.drained.discard)(name)

    def adapt(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """The snapshot with what was asked for: drained switches, no deleted jobs."""
        for switch in snapshot["switches"]:
            if switch["name"] in self.drained and switch["state"] != "away":
                switch["state"] = "drained"
        if self._topology:
            snapshot["jobs"] = [it for it in snapshot["jobs"] if it["name"] in self._files]
        return snapshot


def _parse(text: str) -> job.Job:
    try:
        return job.parse(text, "job in the request")
    except GradlaneError as problem:
        raise Refused(400, str(problem)) from None


def _key(row: Any) -> str:
    return f"layer={row.layers[0]}-{row.layers[1]} magnitude={row.magnitudes[0]}-{row.magnitudes[1]}"


def _file(topology: Topology, name: str) -> str:
    it = next(it for it in topology.jobs if it.name == name)
    hosts = list(topology.hosts)
    workers = "\n".join(
        f'[[worker]]\nrank = {rank}\nhost = "{host}"\naddress = "10.{hosts.index(host) >> 8}.{hosts.index(host) & 255}.2"\n'
        for rank, host in enumerate(it.workers)
    )
    return f"""# {name}, of the simulated fabric.

[job]
name = "{name}"
id = {it.id}
key = "{it.id:032x}"

{workers}
[transport]
rate = "1gbit"

[loss]
push = 0.05

[policy]
queue_classes = [{{ layers = [0, 1], class = 6 }}, {{ layers = [2, 65535], class = 5 }}]
drop_precedences = {PRECEDENCES}
yellow = 3
red = 2

[slots]
base = {it.id * 256}
mask = 255
"""
