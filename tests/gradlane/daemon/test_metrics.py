# SPDX-License-Identifier: Apache-2.0
"""The Prometheus metrics, read with the library's own parser."""

import contextlib
import re
import urllib.request
from importlib.metadata import version
from pathlib import Path

from gradlane._core import ffi
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from gradlane.daemon import metrics
from tests.support.agents import NETWORK, Agent, agents, command, loopback
from tests.support.communicators import training
from tests.support.members import job_file
from tests.support.paths import DOCS


def scrape(address: str, openmetrics: bool = False) -> str:
    """What the endpoint answers."""
    request = urllib.request.Request(f"http://{address}/metrics")
    if openmetrics:
        request.add_header("Accept", "application/openmetrics-text; version=1.0.0")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read().decode()


def serving(folder: Path, count: int) -> contextlib.AbstractContextManager[list[Agent]]:
    """Agents that serve metrics, each at a port of its own."""
    return agents(folder, loopback(count), "--metrics", "127.0.0.1:0")


def endpoint(agent: Agent) -> str:
    """Where an agent that was started with port 0 serves its metrics."""
    found = re.search(r"http://(\S+)/metrics", agent.wait_for("metrics at"))
    assert found
    return found[1]


def test_a_running_jobs_metrics_are_named_and_labelled_as_prometheus_wants(tmp_path: Path) -> None:
    file = job_file(tmp_path, loopback(2), lines="[loss]\npush = 0.1")
    with serving(tmp_path, 2) as hosts, training(file, hosts):
        text = scrape(endpoint(hosts[0]))
        strict = {family.name for family in parse_openmetrics(scrape(endpoint(hosts[0]), openmetrics=True))}
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert strict >= {name for name in families if not name.endswith("_info")}
    assert families.keys() >= {"gradlane_peer_round_trip_seconds", "gradlane_layer_class_slices_lost"}
    samples = {(s.name, *sorted(s.labels.values())): s.value for f in families.values() for s in f.samples}
    assert samples["gradlane_agent_info", version("gradlane"), NETWORK + ".1"] == 1
    assert samples["gradlane_slices_expected_total", "trial"] > 0
    assert samples["gradlane_peer_bytes_sent_total", "1", "trial"] > 800_000
    assert samples["gradlane_layer_class_bytes_sent_total", "others", "trial"] > 800_000
    assert samples["gradlane_layer_class_push_loss_ratio", "others", "trial"] == 0.1
    assert samples["gradlane_datagrams_refused_total", "token", "trial"] == 0
    assert samples["gradlane_agent_jobs",] == 1
    for family in families.values():
        assert family.name.startswith("gradlane_")
        assert family.documentation
        labels = {key for sample in family.samples for key in sample.labels}
        known = {"job", "peer", "layer_class", "reason", "outcome", "worker", "owner"}
        assert labels <= known or family.name.endswith("_info"), family.name
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name


def test_nothing_that_the_transport_counts_is_left_out() -> None:
    counted = {name for name, _ in ffi.typeof("gl_statistics").fields} - {"memory_used"}  # that is a gauge
    assert counted <= metrics.JOB_COUNTS.keys() | metrics.REFUSED.keys()
    assert {name for name, _ in ffi.typeof("gl_counts").fields} == metrics.FLOW_COUNTS.keys()


def test_a_scrape_without_jobs_and_hostile_names_stay_parseable() -> None:
    status = {
        "version": "1", "addresses": ["10.0.1.2"], "started": 1.0, "clients": 0, "ended": 3, "failed": 1,
        "log_lines_lost": 2, "pid": 1, "limits": {}, "jobs": {},
    }  # fmt: skip

    class Once:
        def collect(self):
            return metrics.families(status)  # pyright: ignore[reportArgumentType]

    registry = CollectorRegistry()
    registry.register(Once())  # pyright: ignore[reportArgumentType]
    found = {f.name: f for f in text_string_to_metric_families(generate_latest(registry).decode())}
    assert [s.value for s in found["gradlane_agent_jobs_finished"].samples] == [3, 1]
    assert found["gradlane_slices_sent"].samples == []


def test_stragglers_and_shares_are_there_by_rank() -> None:
    late = {
        "rank": 3,
        "name": "",
        "straggler": True,
        "steps": 32,
        "late_steps": 24,
        "low": 0,
        "median": 0.3,
        "high": 1,
        "link": None,
    }
    slow = {**late, "rank": 2, "steps": 0, "late_steps": 0, "link": 5e7}
    job = {
        "id": 1, "rank": 0, "state": "running", "since": 1.0, "counts": {}, "peers": {}, "stragglers": [late, slow],
        "ownership": {
            "ranks": [4, 5], "shares": [0.25, 0.75], "first": 1, "reason": "", "algorithm": "stragglar", "straggler": 3,
            "least": 0,
        },
    }  # fmt: skip
    status = {
        "version": "1", "addresses": ["10.0.1.2"], "started": 1.0, "clients": 0, "ended": 0, "failed": 0,
        "log_lines_lost": 0, "pid": 1, "limits": {}, "jobs": {"trial": job},
    }  # fmt: skip
    found = {
        (sample.name.removeprefix("gradlane_"), *sample.labels.values()): sample.value
        for family in metrics.families(status)  # pyright: ignore[reportArgumentType]
        for sample in family.samples
    }
    assert found["worker_late_seconds", "trial", "3"] == 0.3
    assert found["worker_late_steps_ratio", "trial", "3"] == 0.75
    assert found["slow_link_bits_per_second", "trial", "2"] == 5e7
    assert not {("worker_late_seconds", "trial", "2"), ("slow_link_bits_per_second", "trial", "3")} & found.keys()
    assert found["plan_info", "trial", "stragglar", "3"] == 1
    assert [found["owner_share_ratio", "trial", rank] for rank in "45"] == [0.25, 0.75]


def test_who_sums_is_there_only_of_jobs_whose_gradients_a_switch_sums() -> None:
    by_switch = {"by_switch": True, "share": 0.75, "halts": 3, "fallbacks": 2}
    by_hosts = {**by_switch, "by_switch": False}
    job = {"id": 1, "rank": 0, "state": "running", "since": 1.0, "peers": {}, "counts": {"sums_refused": 5}}
    jobs = {"one": {**job, "sums": by_switch}, "two": {**job, "sums": by_hosts}, "three": job}
    found = {
        (sample.name.removeprefix("gradlane_"), *sample.labels.values()): sample.value
        for family in [*metrics._of_sums(jobs), *metrics._of_jobs(jobs)]  # pyright: ignore[reportArgumentType]
        for sample in family.samples
    }
    assert [found["sums_by_switch", name] for name in ("one", "two")] == [1, 0]
    assert ("sums_by_switch", "three") not in found
    assert found["sums_share_ratio", "one"] == 0.75
    assert (found["sums_halts_total", "one"], found["sums_fallbacks_total", "one"]) == (3, 2)
    assert found["datagrams_refused_total", "one", "sum"] == 5


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with serving(tmp_path, 1) as [first]:
        where = endpoint(first)
        second = command("agent", "--address", f"{NETWORK}.2", "--socket", tmp_path / "2.sock", "--metrics", where)
        assert second.returncode == 1
        assert f"metrics can't be served at {where}: Address already in use" in second.stderr


def test_the_guide_lists_every_metric(tmp_path: Path) -> None:
    with serving(tmp_path, 2) as hosts, training(job_file(tmp_path, loopback(2)), hosts):
        text = scrape(endpoint(hosts[0]))
    guide = (DOCS / "agent.md").read_text()
    for family in text_string_to_metric_families(text):
        name = family.name
        for group in ("peer", "layer_class"):  # listed once, with both
            if family.type == "counter":
                name = name.replace(f"gradlane_{group}_", "gradlane_peer_")
        assert name in guide, f"{name} is not in docs/agent.md"
