# SPDX-License-Identifier: Apache-2.0
"""Prometheus metrics: the agent's status, read at each scrape. docs/agent.md lists them.

Labels are the job's name, a peer's rank and a layer class ("0-3": its layers; "others": all that no class has). Only
running jobs are shown, so the agent's limit of jobs, and their ranks, bound the label sets.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gradlane.daemon.config import Endpoint
from gradlane.errors import AgentError
from gradlane.ipc.status import AgentStatus, ClassStatus, JobStatus, PeerStatus
from gradlane.metric_families import Families

Jobs = dict[str, JobStatus]

SNAPSHOT_SECONDS = 5.0

# Counts of the status, and what they are; the metric is gradlane_NAME_total{job=...}.
JOB_COUNTS = {
    "datagrams_sent": "Datagrams of all kinds sent",
    "datagrams_received": "Datagrams of all kinds received, refused ones too",
    "slices_sent": "Gradient slices sent for the first time",
    "slices_repaired": "Slices sent again because a receiver missed them",
    "slices_expected": "Slices of the messages that were received to their end",
    "slices_delivered": "Of these, slices that arrived",
    "slices_lost": "Of these, slices that were given up within the loss budget",
    "slices_duplicate": "Slices that had arrived before",
    "slices_late": "Slices of messages that were complete",
    "budget_total": "Slices that might have been given up: the loss budgets of the messages received",
    "budget_violations": "Messages that completed with more missing than tolerated; must stay 0",
    "trimmed": "Slices of which a switch left the header",
    "slices_copied": "Slices copied when they came, as all receive buffers were in use",
    "probes_sent": "PROBE datagrams sent",
    "bitmaps_sent": "BITMAP datagrams sent",
    "stops_sent": "STOP datagrams sent",
    "reports_sent": "REPORT datagrams sent",
    "traces_sent": "TRACE datagrams sent",
    "traces_returned": "TRACE datagrams that came back with the switches' records",
    "ecn_marked": "Slices received with the mark Congestion Experienced",
    "messages_sent": "Messages that got a number",
    "messages_received": "Messages received to their end",
    "send_errors": "Datagrams that the kernel refused to send",
    "sums_sent": "Slices sent to a switch that sums them",
    "sums_repaired": "Slices sent to it again because their sums did not come",
    "sums_received": "Slices with sums that a switch has sent",
    "sums_duplicate": "Slices with sums that were here already",
    "sums_clipped": "Elements that were too large for the lanes in which a switch sums",
    "sums_closed": "Sums that this rank had completed without a worker, within its loss budget",
    "sums_left_out": "Own slices that a switch's sums do not have",
    "sums_over_budget": "Sums refused as a worker would be missing in more of a message than its loss budget; stays 0",
    "sum_reruns": "Parts of tensors that hosts have summed after a switch had begun to",
    "summed_bytes": "Of the tensors that were reduced, what a switch has summed",
    "reduced_bytes": "Tensors that were reduced",
}
# Of one peer or layer class; the metric is gradlane_peer_NAME_total or gradlane_layer_class_NAME_total.
FLOW_COUNTS = {
    name: JOB_COUNTS[name]
    for name in (
        "slices_sent",
        "slices_repaired",
        "slices_expected",
        "slices_delivered",
        "slices_lost",
        "slices_duplicate",
        "slices_late",
        "budget_total",
        "ecn_marked",
    )
} | {
    "bytes_sent": "UDP payload sent",
    "bytes_received": "UDP payload received",
}
# Datagrams refused, by the first check that failed: gradlane_datagrams_refused_total{job=..., reason=...}.
REFUSED = {
    "bad_header": "header",
    "bad_token": "token",
    "bad_job": "job",
    "bad_source": "source",
    "bad_range": "range",
    "bad_length": "length",
    "bad_budget": "budget",
    "bad_class": "class",
    "bad_message": "message",
    "bad_trace": "trace",
    "no_memory": "memory",
    "sums_refused": "sum",
}


# Of the agent as a whole.
TRANSPORT = {
    "received": "Datagrams received",
    "received_aside": "Of the datagrams received, those that the second thread has read",
    "sent": "Datagrams sent",
    "foreign": "Datagrams received that belong to no job of this agent",
    "unsegmented": "Batches sent datagram by datagram, as the kernel could not segment them",
    "send_errors": "Datagrams that the kernel refused to send",
    "socket_drops": "Datagrams for which the socket's buffer had no room",
    "wakeups": "Times the transport's thread was woken",
}
CONTROL = {
    "calls_accepted": "Calls of other agents that were accepted",
    "calls_refused": "Calls refused: another version, key, certificate or job file",
    "calls_broken": "Calls that broke off before they said which job they are about",
    "calls_evicted": "Calls dropped because too many had not said which job they are about",
}

_families = Families("gradlane_")
_gauge, _counter, _info = _families.gauge, _families.counter, _families.info


def families(status: AgentStatus) -> Iterator[Metric]:
    """All metrics of a status."""
    yield from _of_agent(status)
    yield from _of_jobs(status["jobs"])
    yield from _of_sums(status["jobs"])
    yield from _of_stragglers(status["jobs"])
    yield from _of_peers(status["jobs"])
    yield from _of_classes(status["jobs"])


def _of_agent(status: AgentStatus) -> Iterator[Metric]:
    yield _info("agent", "The agent", ("version", "addresses"), [(status["version"], ",".join(status["addresses"]))])
    yield _gauge("agent_start_time_seconds", "When the agent was started, Unix time", (), [((), status["started"])])
    yield _gauge("agent_clients", "Training processes in jobs", (), [((), status["clients"])])
    yield _gauge("agent_jobs", "Jobs running", (), [((), len(status["jobs"]))])
    outcomes = [(("ended",), status["ended"]), (("failed",), status["failed"])]
    yield _counter("agent_jobs_finished", "Jobs that are over, by how", ("outcome",), outcomes)
    yield _counter("agent_log_lines_lost", "Log lines that could not be written", (), [((), status["log_lines_lost"])])
    for part, counts, texts in (
        ("transport", status.get("transport", {}), TRANSPORT),
        ("control", status.get("control", {}), CONTROL),
    ):
        for key, text in texts.items():
            yield _counter(f"{part}_{key}", text, (), [((), counts.get(key))])


def _of_jobs(jobs: Jobs) -> Iterator[Metric]:
    rows = [(name, str(job["id"]), str(job["rank"]), job["state"]) for name, job in jobs.items()]
    yield _info("job", "A running job, and this host's rank in it", ("job", "id", "rank", "state"), rows)
    for key, text, value in _JOB_GAUGES:
        yield _gauge(f"job_{key}", text, ("job",), [((name,), value(job)) for name, job in jobs.items()])
    for key, text in JOB_COUNTS.items():
        yield _counter(key, text, ("job",), [((name,), job["counts"].get(key)) for name, job in jobs.items()])
    refused = [
        ((name, reason), job["counts"].get(key)) for name, job in jobs.items() for key, reason in REFUSED.items()
    ]
    yield _counter("datagrams_refused", "Datagrams refused, by the first check that failed", ("job", "reason"), refused)


def _of_sums(jobs: Jobs) -> Iterator[Metric]:
    found = [((name,), sums) for name, job in jobs.items() if (sums := job.get("sums"))]
    by_switch, share = [(at, float(it["by_switch"])) for at, it in found], [(at, it["share"]) for at, it in found]
    halts, fallbacks = [(at, it["halts"]) for at, it in found], [(at, it["fallbacks"]) for at, it in found]
    yield _gauge("sums_by_switch", "1 while a switch sums gradients, 0 while hosts do", ("job",), by_switch)
    yield _gauge("sums_share_ratio", "Of the bytes that were reduced, what a switch has summed", ("job",), share)
    yield _counter("sums_halts", "Times that ranks asked one another for missing sums", ("job",), halts)
    yield _counter("sums_fallbacks", "Times that hosts took over from the switch", ("job",), fallbacks)


def _of_stragglers(jobs: Jobs) -> Iterator[Metric]:
    found = [((name, str(it["rank"])), it) for name, job in jobs.items() for it in job.get("stragglers", [])]
    late = [(at, it) for at, it in found if it["steps"]]
    labels = ("job", "worker")
    seconds = [(at, it["median"]) for at, it in late]
    steps = [(at, it["late_steps"] / it["steps"]) for at, it in late]
    slow = [(at, it["link"]) for at, it in found if it["link"] is not None]
    yield _gauge(
        "worker_late_seconds", "How late a worker comes to a step, the median of the last ones", labels, seconds
    )
    yield _gauge("worker_late_steps_ratio", "Of the last steps, those that a worker came late to", labels, steps)
    left = [((name, str(it["rank"])), it) for name, job in jobs.items() for it in job.get("left_out", [])]
    out = [(at, it["steps"]) for at, it in left]
    used = [(at, it["recent"] / it["budget"]) for at, it in left]
    yield _counter("worker_left_out_steps", "Steps that went on here without a late worker", labels, out)
    yield _gauge("worker_left_out_budget_ratio", "What of its budget of such steps a worker has used", labels, used)
    yield _gauge("slow_link_bits_per_second", "What a link carries that is slower than the job file says", labels, slow)
    shares = [
        ((name, str(rank)), share)
        for name, job in jobs.items()
        if (owners := job.get("ownership"))
        for rank, share in zip(owners["ranks"], owners["shares"], strict=True)
    ]
    yield _gauge("owner_share_ratio", "What of every tensor a rank reduces", ("job", "owner"), shares)
    plans = [
        (name, owners["algorithm"], "" if owners["straggler"] is None else str(owners["straggler"]))
        for name, job in jobs.items()
        if (owners := job.get("ownership"))
    ]
    yield _info("plan", "How exact tensors are reduced", ("job", "algorithm", "straggler"), plans)


def _of_peers(jobs: Jobs) -> Iterator[Metric]:
    peers = [(name, rank, peer) for name, job in jobs.items() for rank, peer in job["peers"].items()]
    rows = [(name, rank, peer.get("host", ""), peer.get("address", "")) for name, rank, peer in peers]
    yield _info("peer", "Another rank of a job", ("job", "peer", "host", "address"), rows)
    for key, text, value in _PEER_GAUGES:
        yield _gauge(f"peer_{key}", text, ("job", "peer"), [((name, rank), value(peer)) for name, rank, peer in peers])
    for key, text in FLOW_COUNTS.items():
        counts = [((name, rank), peer.get("counts", {}).get(key)) for name, rank, peer in peers]
        yield _counter(f"peer_{key}", f"{text}, by peer", ("job", "peer"), counts)


def _of_classes(jobs: Jobs) -> Iterator[Metric]:
    rows = [((name, layers(row)), row) for name, job in jobs.items() for row in job.get("classes", [])]
    labels = ("job", "layer_class")
    push, pull = [(at, row.get("push")) for at, row in rows], [(at, row.get("pull")) for at, row in rows]
    yield _gauge("layer_class_push_loss_ratio", "Tolerated loss of contributions", labels, push)
    yield _gauge("layer_class_pull_loss_ratio", "Tolerated loss of results", labels, pull)
    for key, text in FLOW_COUNTS.items():
        counts = [(at, row.get("counts", {}).get(key)) for at, row in rows]
        yield _counter(f"layer_class_{key}", f"{text}, by layer class", labels, counts)


def layers(row: ClassStatus) -> str:
    """A layer class as a label."""
    return "-".join(map(str, row.get("layers", ["others"])))


def _memory(job: JobStatus, key: str) -> float | None:
    memory: dict[str, Any] = dict(job.get("memory", {}))
    return memory.get(key)


_JOB_GAUGES: tuple[tuple[str, str, Callable[[JobStatus], float | None]], ...] = (
    ("start_time_seconds", "When the job was joined, Unix time", lambda job: job.get("since")),
    ("step", "The latest step that began", lambda job: job.get("step")),
    ("operations", "Collective operations in flight", lambda job: job.get("in_flight")),
    ("memory_bytes", "Contributions that wait for slower workers", lambda job: _memory(job, "used")),
    ("memory_limit_bytes", "How much of them may wait", lambda job: _memory(job, "limit")),
)


def _pacing(peer: PeerStatus) -> float | None:
    return peer["rate"] / 8 if "rate" in peer else None


def _round_trip(peer: PeerStatus) -> float | None:
    return peer["srtt_us"] / 1e6 if "srtt_us" in peer else None


def _connected(peer: PeerStatus) -> float | None:
    return float(peer["control"] == "connected") if "control" in peer else None


def _dead(peer: PeerStatus) -> float | None:
    return float(peer["control"] == "dead") if "control" in peer else None


_PEER_GAUGES: tuple[tuple[str, str, Callable[[PeerStatus], float | None]], ...] = (
    ("pacing_rate_bytes_per_second", "Rate of what is sent to the peer", _pacing),
    ("round_trip_seconds", "Smoothed round-trip time", _round_trip),
    ("dead", "1 if the job goes on without the peer", _dead),
    ("connected", "1 if the peer's agent is heard over the control connection", _connected),
)


class _Agent(Collector):
    def __init__(self, status: Callable[[], AgentStatus]) -> None:
        self._status = status
        self._loop = asyncio.get_running_loop()

    def collect(self) -> Iterator[Metric]:
        """In the HTTP server's thread; the loop gives the status."""
        return families(asyncio.run_coroutine_threadsafe(self._ask(), self._loop).result(SNAPSHOT_SECONDS))

    def describe(self) -> Iterator[Metric]:
        """Nothing: otherwise registering would collect, and wait for the loop that it runs in."""
        return iter(())

    async def _ask(self) -> AgentStatus:
        return self._status()


class MetricsServer:
    """Serves the metrics over HTTP in threads of its own. Raises AgentError if it can't listen."""

    def __init__(self, endpoint: Endpoint, status: Callable[[], AgentStatus]) -> None:
        registry = CollectorRegistry()
        registry.register(_Agent(status))
        try:
            self._server, self._thread = start_http_server(endpoint.port, endpoint.host, registry)
        except OSError as error:
            raise AgentError(f"metrics can't be served at {endpoint}: {error.strerror or error}") from error
        self.endpoint = Endpoint(endpoint.host, self._server.server_port)

    def close(self) -> None:
        """Stops serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
