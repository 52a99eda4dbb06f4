# SPDX-License-Identifier: Apache-2.0
"""The jobs and drained switches of the made-up controller, and what it would write for them."""

import threading
from collections.abc import Mapping
from typing import Any

from gradlane import GradlaneError, job


class Refused(Exception):
    """A request that gets `status` and {"error": ...}."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class DesiredState:
    """Job files by name with their versions; which switches are drained; the changes of the tuning of `train` that can
    be undone, and whether it is held. `fabric` is as GET /v1/fabric answers it."""

    def __init__(self, fabric: Mapping[str, Any], files: Mapping[str, str]) -> None:
        self._switches = [it["name"] for it in fabric["switches"]]
        self._places = {it["name"]: it["switch"] for it in fabric["hosts"]}
        self._lock = threading.Lock()
        self._files = {name: (text, 1) for name, text in files.items()}
        self.drained: set[str] = set()
        self.undoable, self.held = 1, False

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
        at = {self._places.get(worker.host) for worker in it.workers}
        return {
            "live": live,
            "switches": [
                {"name": name, "changes": changes if name in at else [], "problem": ""} for name in self._switches
            ],
            "not_summed": {},
        }

    def drain(self, name: str, verb: str) -> None:
        """POST /v1/switches/NAME/drain and undrain. Raises Refused."""
        if name not in self._switches:
            raise Refused(404, f"no switch {name!r}")
        (self.drained.add if verb == "drain" else self.drained.discard)(name)

    def tuning(self, verb: str = "") -> dict[str, Any]:
        """What POST /v1/adaptive/train/undo and resume answer."""
        if verb:
            self.undoable, self.held = self.undoable - (verb == "undo"), verb == "undo"
        reason = "taken back by hand, and held" if self.held else "4.0% of its packets were dropped"
        text = "thresholds x 2" if self.undoable else "as its file"
        state = "held" if self.held else "at rest"
        return {"name": "train", "text": text, "state": state, "undoable": self.undoable, "reason": reason}

    def adapt(self, snapshot: dict[str, Any]) -> dict[str, Any]:
        """The snapshot with what was asked for: drained switches, no deleted jobs."""
        for switch in snapshot["switches"]:
            if switch["name"] in self.drained and switch["state"] != "away":
                switch["state"] = "drained"
        for it in snapshot["jobs"]:
            if it["name"] == "train":
                it["tuning"] = self.tuning()
        snapshot["jobs"] = [it for it in snapshot["jobs"] if it["name"] in self._files]
        return snapshot


def _parse(text: str) -> job.Job:
    try:
        return job.parse(text, "job in the request")
    except GradlaneError as problem:
        raise Refused(400, str(problem)) from None


def _key(row: Any) -> str:
    return f"layer={row.layers[0]}-{row.layers[1]} magnitude={row.magnitudes[0]}-{row.magnitudes[1]}"
