# SPDX-License-Identifier: Apache-2.0
"""Metrics of jobs: where they are summed, and what agents say of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import Metric

from gradlane.metric_families import Families

_families = Families("gradlane_controller_")
_gauge, _counter = _families.gauge, _families.counter


def of_jobs(jobs: Sequence[Mapping[str, Any]]) -> Iterator[Metric]:
    """`jobs`: what the status says of them."""
    yield _gauge("jobs", "Jobs in the network", (), [((), len(jobs))])
    sums = [(it["name"], it["sums"]) for it in jobs if it["sums"]]
    text = "How many of a job's 16 buckets a root sums"
    rows = [((name, root), count) for name, it in sums for root, count in it["roots"].items()]
    yield _gauge("sum_buckets", text, ("job", "root"), rows)


def of_agents(agents: Mapping[str, Mapping[str, Any]], slices: Mapping[str, Sequence[int]]) -> Iterator[Metric]:
    """`agents`: what they say of each job, as the live state has it; `slices`: how many were repaired and lost."""
    rows = [((name,), it) for name, it in agents.items()]
    budgets = [(at, it["budget"]) for at, it in rows if it["budget"] is not None]
    for name, text, values in (
        ("agents", "Hosts whose agents report the job", [(at, it["agents"]) for at, it in rows]),
        ("step", "The step to which all its hosts have come", [(at, it["step"]["number"]) for at, it in rows]),
        (
            "step_seconds",
            "What a step takes, the median of its hosts",
            [(at, it["step"]["seconds"]) for at, it in rows],
        ),
        ("in_flight", "Collective operations in flight", [(at, it["in_flight"]) for at, it in rows]),
        (
            "budget_used_ratio",
            "What is lost, of the host nearest to its limit",
            [(at, it["used"]) for at, it in budgets],
        ),
        ("budget_allowed_ratio", "What that host may lose", [(at, it["allowed"]) for at, it in budgets]),
    ):
        yield _gauge(f"job_{name}", text, ("job",), values)
    late = {(name, each["host"]) for name, it in agents.items() for each in it["stragglers"]}
    yield _gauge("job_straggler", "A host that others call a straggler", ("job", "host"), [(at, 1.0) for at in late])
    waits = dict[tuple[str, str], float]()
    for name, it in agents.items():
        for each in it["waits"]:
            at = name, each["for"]
            waits[at] = max(each["seconds"], waits.get(at, 0.0))
    yield _gauge("job_wait_seconds", "How long others wait for a host", ("job", "host"), waits.items())
    for n, name in enumerate(("repaired", "lost")):
        counts = [((job,), float(it[n])) for job, it in slices.items()]
        yield _counter(f"job_slices_{name}", f"Slices {name}, as agents report them", ("job",), counts)
