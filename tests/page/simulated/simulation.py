# SPDX-License-Identifier: Apache-2.0
"""A made-up fabric as a pure function of time: each second has one snapshot, whoever asks for it, and when."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tests.page.simulated.story import PERIOD, Fault, alarms, events, faults, moment
from tests.page.simulated.topology import Job, Topology, job_file

Snapshot = dict[str, Any]
CLASSES = {7: 0.01, 6: 0.3, 5: 0.45, 4: 0.24}  # of a job's traffic
DROPPABLE = 8  # of the 16 ranges of magnitudes


class Simulation:
    """`base` is the time (s since 1970) of second 0. `changes` are made to each snapshot: faults of tests."""

    def __init__(self, topology: Topology, base: float) -> None:
        self.topology = topology
        self.base = base
        self.story = faults(topology)
        self.changes: list[Callable[[Snapshot], None]] = []
        self._ways = {job.name: _ways(topology, job) for job in topology.jobs}

    def fabric(self) -> dict[str, Any]:
        """What GET /v1/fabric answers."""
        topology = self.topology
        return {
            "switches": [
                {"name": name, "target": "gradlane-switch", "aggregation": True, "address": f"127.0.0.1:{9559 + i}"}
                for i, name in enumerate(topology.switches)
            ],
            "hosts": [
                {
                    "name": name,
                    "switch": switch,
                    "port": port,
                    "rate": topology.rate,
                    "addresses": [f"10.{i >> 8}.{i & 255}.2"],
                }
                for i, (name, (switch, port)) in enumerate(topology.hosts.items())
            ],
            "links": [{"ends": list(ends), "rate": [topology.rate, topology.rate]} for ends in topology.links],
        }

    def job_files(self) -> dict[str, str]:
        """By name."""
        return {it.name: job_file(self.topology, it) for it in self.topology.jobs}

    def events(self, first: int, last: int) -> list[dict[str, Any]]:
        """The timeline from one second to another, the oldest first."""
        return events(self.story, self.base, first, last)

    def snapshot(self, second: int) -> Snapshot:
        """What GET /v1/state answers in that second."""
        active = [it for it in self.story if it.active(second)]
        away = {it.subject for it in active if it.kind == "switch"}
        down = {it.subject for it in active if it.kind == "link"}
        late = {it.subject for it in active if it.kind == "straggler"}
        dead = {ends for ends in self.topology.links if " - ".join(ends) in down or _switches(ends) & away}
        loads: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * 8)
        for job in self.topology.jobs:
            self._add_load(loads, job, second, dead)
        known = {
            "at": moment(self.base, second),
            "controller": {"name": "simulated", "leader": True, "number": 7},
            "switches": [_switch(name, second, away, active) for name in self.topology.switches],
            "links": [self._link(ends, second, loads, down, away) for ends in self.topology.links],
            "hosts": [{"name": name, "load": [round(it) for it in loads["to", name]]} for name in self.topology.hosts],
            "jobs": [self._job(job, second, dead, late) for job in self.topology.jobs],
            "alarms": alarms(self.story, self.base, second),
        }
        for change in self.changes:
            change(known)
        return known

    def _add_load(self, loads: Any, job: Job, second: int, dead: set[tuple[str, str]]) -> None:
        now = job.bits * _wave(job.id, second)
        for host in job.workers:
            for number, part in CLASSES.items():
                loads["to", host][number] += now * part
            loads["to", host][0] += job.bits * 0.1 * _wave(job.id + 40, second)
        for uplinks, workers in self._ways[job.name].values():
            alive = [ends for ends in uplinks if ends not in dead] or uplinks
            each = now * workers / len(alive) * (0.4 if job.roots else 0.7)
            for i, ends in enumerate(alive):
                for end, other in (ends, ends[::-1]):
                    cell = loads[end, other]
                    for number, part in CLASSES.items():
                        cell[number] += each * part * _wave(job.id + i + len(end) + (end < other), second, 0.15)
                    cell[0] += job.bits * 0.02 * _wave(i + 7 * job.id, second)

    def _link(self, ends: tuple[str, str], second: int, loads: Any, down: set[str], away: set[str]) -> dict[str, Any]:
        broken = " - ".join(ends) in down
        up = not broken and not _switches(ends) & away
        cap = self.topology.rate
        both = []
        for pair in (ends, ends[::-1]):
            load, full = loads[pair], sum(loads[pair])
            scale = min(1.0, 0.98 * cap / full) if full and up else 0.0
            both.append([round(it * scale) for it in load])
        return {
            "ends": list(ends),
            "up": up,
            "deaf": [ends[1]] if broken else [],
            "since": moment(self.base, second - second % PERIOD) if not up else moment(self.base, 0),
            "load": both,
        }

    def _job(self, job: Job, second: int, dead: set[tuple[str, str]], late: set[str]) -> dict[str, Any]:
        ways = sorted({ends for uplinks, _ in self._ways[job.name].values() for ends in uplinks if ends not in dead})
        known: dict[str, Any] = {
            "name": job.name,
            "id": job.id,
            "workers": list(job.workers),
            "servers": list(job.servers),
            "sums": None,
            "trees": [],
            "path_links": [list(ends) for ends in ways],
            **_taken(job, second),
        }
        if job.roots:
            trees = _trees(job.roots, ways)
            roots = {it["root"]: it["buckets"] for it in trees}
            known["sums"] = {"switches": sorted({*roots}), "slots": [0, 1023], "roots": roots, "reason": ""}
            known["trees"] = trees
        if job.reports:
            slow = [host for host in job.workers if host in late]
            steps = job.step_seconds * (0.9 + 0.2 * _wave(job.id, second, 0.5)) + 0.084 * bool(slow)
            known["step"] = {"number": int(second / job.step_seconds), "seconds": round(steps, 4)}
            known["budget"] = {"used": round(0.018 + 0.02 * _wave(job.id + 3, second, 0.6), 4), "allowed": 0.05}
            known["repaired"] = second * (1 + job.id % 4)
            known["stragglers"] = [
                {"host": host, "evidence": "last in 29 of 32 steps, by 84 ms in the median"} for host in slow
            ]
            known["waits"] = [
                {"who": other, "for": host, "seconds": round(0.05 + 0.04 * _wave(i, second, 0.5), 3)}
                for host in slow
                for i, other in enumerate(job.workers)
                if other != host
            ]
        return known


def _wave(seed: int, second: int, depth: float = 0.35) -> float:
    """Around 1, by at most `depth`."""
    one, two = math.sin(second / (5.3 + seed % 7) + seed), math.sin(second / 1.7 + 2.1 * seed)
    return 1 + depth * (0.7 * one + 0.3 * two)


def _switches(ends: tuple[str, str]) -> set[str]:
    return {end.split(":")[0] for end in ends}


def _switch(name: str, second: int, away: set[str], active: list[Fault]) -> dict[str, Any]:
    drift = any(it.kind == "drift" and it.subject == name for it in active)
    state = "away" if name in away else "converging" if drift and second % 10 < 2 else "ready"
    problem = "no answer to a heartbeat for 4 s" if state == "away" else ""
    return {"name": name, "state": state, "problem": problem, "entries": 700 + 31 * (len(name) + ord(name[-1]) % 9),
            "mended": 3 * (second // PERIOD) if drift else 0}  # fmt: skip


def _taken(job: Job, second: int) -> dict[str, Any]:
    """Decisions and the drop map, as if in every second as much had been taken."""
    cells = [
        [layer, magnitude * 16, packets, packets * 1446]
        for layer in range(job.layers)
        for magnitude in range(DROPPABLE)
        if (packets := int(second * (job.layers - layer) ** 1.2 * (DROPPABLE - magnitude) ** 1.7 / 110)) > 0
    ]
    taken = sum(cell[2] for cell in cells)
    late = sum(cell[2] for cell in cells if cell[1] < 64) // 3
    passed = int(second * job.bits * len(job.workers) / 8 / 1446)
    reasons = {
        "forwarded": passed,
        "within_share": taken // 5,
        "budget_spent": taken // 9,
        "dropped_yellow": late,
        "dropped_red": taken - late,
    }
    return {"decisions": {name: {"packets": n, "bytes": n * 1446} for name, n in reasons.items()}, "drop_map": cells}


def _ways(topology: Topology, job: Job) -> dict[str, tuple[list[tuple[str, str]], float]]:
    """By switch with members somewhere below it: its uplinks, and how many members' traffic they carry."""
    leaves: defaultdict[str, int] = defaultdict(int)
    for host in (*job.workers, *job.servers):
        leaves[topology.hosts[host][0]] += 1
    if len(leaves) < 2:
        return {}
    found: dict[str, tuple[list[tuple[str, str]], float]] = {}
    front: dict[str, float] = dict(leaves)
    while front:
        above: defaultdict[str, float] = defaultdict(float)
        for switch, members in front.items():
            uplinks = topology.up[switch]
            if uplinks:
                found[switch] = (uplinks, members)
                for _, end in uplinks:
                    above[end.split(":")[0]] += members / len(uplinks)
        front = above
    return found


def _trees(roots: tuple[str, ...], ways: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """The 16 buckets in equal parts at the roots that are reached."""
    links = {root: [ends for ends in ways if root in _switches(ends)] for root in roots}
    reached = [root for root in roots if links[root]]
    trees = []
    for i, root in enumerate(reached):
        below = {ends[0].split(":")[0] for ends in links[root]}
        more = [ends for ends in ways if ends[1].split(":")[0] in below]
        buckets = 16 // len(reached) + (i < 16 % len(reached))
        trees.append({"root": root, "buckets": buckets, "links": [list(ends) for ends in links[root] + more]})
    return trees
