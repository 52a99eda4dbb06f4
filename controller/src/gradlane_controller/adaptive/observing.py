# SPDX-License-Identifier: Apache-2.0
"""What is seen of jobs between two readings of the switches' counters."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradlane_controller.adaptive.decision import Observation
from gradlane_controller.desired.plan import Plan
from gradlane_controller.network.links import End
from gradlane_controller.policy.usage import Usage
from gradlane_controller.session.counters import Counters

_POLICY = {"dropped_yellow", "dropped_red", "trimmed_yellow", "trimmed_red"}
_SPENT = "budget_spent"

Sent = Callable[[End], list[int] | None]
"""What a port sends, in bit/s by queue class, None: not known."""


@dataclass
class _Agents:
    """What the agents of a job have said. A step counts with the time that it took."""

    step: int
    lost: int
    first_lost: int
    steps: int = 0
    seconds: float = 0.0
    budgets: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])


class Window:
    """From `counters` on. `plan`: that of then."""

    def __init__(self, plan: Plan, usage: Usage, counters: Counters, begun: float) -> None:
        """`begun`: when, by a clock that counts seconds from anywhere."""
        self.plan, self.begun = plan, begun
        self._usage = usage
        self._first, self._away = _cells(counters), set(counters.away)
        self._agents: dict[str, _Agents] = {}
        self._loads: dict[End, list[float]] = {}

    def sample(self, of_jobs: Mapping[str, Mapping[str, Any]], sent: Sent) -> None:
        """What is known now: of jobs, by name, as `Reports.of_jobs` says it, and of ports."""
        for name, it in of_jobs.items():
            self._hear(name, it)
        fabric = self.plan.fabric
        for port in (*fabric.ports, *fabric.link_ports):
            end = port.switch, port.number
            if (now := sent(end)) is not None:
                self._loads.setdefault(end, []).append(sum(now) / port.rate)

    def end(self, counters: Counters) -> dict[str, Observation]:
        """Of each job, by name; of those whose agents report, but no step, nothing: they begin, or wait."""
        found, away = dict[str, Observation](), self._away.union(counters.away)
        counts = {name: Counter[str]() for name in self.plan.jobs}
        for (switch, job, reason), packets in _cells(counters).items():
            if job in counts and switch not in away:  # neither time
                counts[job][reason] += max(0, packets - self._first.get((switch, job, reason), 0))
        for name, reasons in counts.items():
            if name in self._agents and not self._agents[name].steps:
                continue
            found[name] = Observation(
                packets=sum(reasons.values()),
                dropped=sum(packets for reason, packets in reasons.items() if reason in _POLICY),
                spent=reasons[_SPENT],
                busiest=self._busiest(name),
                **self._said(name),
            )
        return found

    def _busiest(self, job: str) -> float | None:
        ends = ((it.switch, it.number) for it in self._usage.ports_of(self.plan.jobs[job]))
        known = [sum(samples) / len(samples) for end in ends if (samples := self._loads.get(end))]
        return max(known, default=None)

    def _hear(self, name: str, it: Mapping[str, Any]) -> None:
        number, seconds = it["step"]["number"], it["step"]["seconds"]
        lost = it["lost"] + it["repaired"]
        known = self._agents.get(name)
        if known is None:
            self._agents[name] = known = _Agents(number, lost, lost)
        if number > known.step and seconds is not None:
            known.steps += number - known.step
            known.seconds += seconds * (number - known.step)
        known.step, known.lost = number, lost
        if it["budget"] is not None:
            known.budgets.append((it["budget"]["used"], it["budget"]["allowed"]))

    def _said(self, name: str) -> dict[str, Any]:
        known = self._agents.get(name)
        if known is None:
            return {}
        count = len(known.budgets)
        used, allowed = (sum(it[n] for it in known.budgets) / count if count else None for n in (0, 1))
        lost = max(0, known.lost - known.first_lost)
        return {"step_seconds": known.seconds / known.steps, "used": used, "allowed": allowed, "lost": lost}


def _cells(counters: Counters) -> dict[tuple[str, str, str], int]:
    """Packets of jobs by switch, job and reason."""
    cells = Counter[tuple[str, str, str]]()
    for row in counters.decisions:
        if row.job is not None:
            cells[row.switch, row.job, row.reason] += row.packets
    return cells
