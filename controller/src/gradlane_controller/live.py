# SPDX-License-Identifier: Apache-2.0
"""The live state: what happens in the network now, as one document for those who watch.

What is not known is null or absent.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any

from gradlane.job import Job
from gradlane_controller.desired.plan import Plan
from gradlane_controller.network.fabric import LinkPort
from gradlane_controller.network.topology import Topology
from gradlane_controller.policy.usage import links_of

_Ends = list[str]


def snapshot(
    plan: Plan,
    status: Mapping[str, Any],
    links: Mapping[str, Any],
    host_ports: Sequence[Mapping[str, Any]],
    counters: Mapping[str, Any] | None,
    paths: "Paths",
    alarms: Collection[Mapping[str, Any]],
    of_jobs: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """`status`, `links`, `host_ports` and `counters` as the controller says them; no counters if they are not known.
    `of_jobs`: what agents say, by job."""
    return {
        "at": stamp(datetime.now(timezone.utc)),
        "controller": status["controller"],
        "switches": [_switch(it) for it in status["switches"]],
        "links": [_link(it) for it in links["links"]],
        "hosts": [{"name": it["name"], "load": it["sent"]} for it in host_ports],
        "jobs": [_job(plan, it, counters, paths) | of_jobs.get(it["name"], {}) for it in status["jobs"]],
        **_drops(counters),
        "alarms": list(alarms),
    }


def stamp(at: datetime) -> str:
    """A time in UTC, as in ISO 8601, to the millisecond."""
    return at.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Paths:
    """Over which links jobs' gradients go, while a plan and what is down remain as they are."""

    def __init__(self, plan: Plan, down: frozenset[tuple[str, int]]) -> None:
        """`down`: ends of links that do not work, as switch and port."""
        self.plan, self.down = plan, down
        self._names: dict[tuple[str, int], _Ends] = {}
        ends = plan.fabric.link_ports
        for pair in zip(ends[::2], ends[1::2], strict=True):
            names = [f"{it.switch}:{it.number}" for it in pair]
            self._names |= {(it.switch, it.number): names for it in pair}
        topology = Topology(plan.fabric, down)
        self._paths = {name: self._ends(links_of(plan.fabric, topology, it)) for name, it in plan.jobs.items()}
        self._trees = {name: self._trees_of(it) for name, it in plan.jobs.items()}

    def of(self, job: str) -> list[_Ends]:
        """Every link on a path between its hosts, as its two ends."""
        return self._paths[job]

    def trees(self, job: str) -> list[dict[str, Any]]:
        """Those along which switches sum it now."""
        return self._trees[job]

    def _trees_of(self, it: Job) -> list[dict[str, Any]]:
        found = self.plan.summed.get(it.id)
        if found is None or found.ways.flaws:
            return []
        return [
            {"root": root, "buckets": buckets, "links": self._ends(links)}
            for root, (buckets, links) in found.ways.in_use.items()
        ]

    def _ends(self, ports: Collection[LinkPort]) -> list[_Ends]:
        return sorted({tuple(self._names[it.switch, it.number]): None for it in ports})  # type: ignore[arg-type]


def switch_state(it: Mapping[str, Any]) -> str:
    """In a word, of a switch's status."""
    if it.get("drained"):
        return "drained"
    if it["ready"]:
        return "ready"
    if not it["connected"]:
        return "away"
    return "converging" if it["primary"] else "standby"


def _switch(it: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": it["name"],
        "state": switch_state(it),
        "problem": it["problem"],
        "entries": sum(it["entries"].values()),
        "mended": it["mended"]["times"],
    }


def _link(it: Mapping[str, Any]) -> dict[str, Any]:
    return {name: it[name] for name in ("ends", "up", "deaf", "since")} | {"load": it["sent"]}


def _job(plan: Plan, it: Mapping[str, Any], counters: Mapping[str, Any] | None, paths: Paths) -> dict[str, Any]:
    name = it["name"]
    found = {key: it[key] for key in ("name", "id", "workers", "servers", "sums")}
    found |= {"trees": paths.trees(name), "path_links": paths.of(name)}
    if counters is not None:
        reasons: dict[str, dict[str, int]] = {}
        for row in counters["decisions"]:
            if row["job"] == name:
                cell = reasons.setdefault(row["reason"], {"packets": 0, "bytes": 0})
                cell["packets"] += row["packets"]
                cell["bytes"] += row["bytes"]
        found["decisions"] = reasons
        if len(plan.jobs) == 1:
            found |= _drops(counters)
    return found


def _drops(counters: Mapping[str, Any] | None) -> dict[str, Any]:
    """What the policy took by layer and magnitude, over all switches; switches do not tell jobs apart there."""
    if counters is None:
        return {}
    cells: dict[tuple[int, int], list[int]] = {}
    for row in counters["drop_map"]:
        cell = cells.setdefault((row["layer"], row["magnitude"]), [0, 0])
        cell[0] += row["packets"]
        cell[1] += row["bytes"]
    return {"drop_map": [[*key, *counts] for key, counts in sorted(cells.items())]}
