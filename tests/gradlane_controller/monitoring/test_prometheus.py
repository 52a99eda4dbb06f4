# SPDX-License-Identifier: Apache-2.0
"""What deploy/ has for Prometheus and Grafana, on a real Prometheus that scrapes a real controller of real switches."""

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.leafspine_lab import Lab, wait_until_whole
from tests.gradlane_controller.monitoring.prometheus_process import DEPLOY, Prometheus
from tests.gradlane_controller.texts import job_text, summed_text
from tests.p4src.sums.sum_bench import contribution
from tests.support.gradlane_packets import H1, H2, H3, gradient
from tests.support.needs import needs

BOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
SECONDS = 90  # for what comes within few scrapes, on a busy machine
# Whoever Grafana asks for: everything, over as long as four scrapes of the test.
FILLED = {"$__rate_interval": "10s", "$switch": ".*", "$job": ".*", "$instance": ".*"}


def queries(board: dict[str, Any]) -> list[str]:
    """Of its panels and variables, as Grafana sends them."""
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            metric = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert metric, variable
            found.append(f'count by ({metric[2]}) ({metric[1]}{{{metric[2]}!=""}})')
    for name, value in FILLED.items():
        found = [it.replace(name, value) for it in found]
    assert "$" not in "".join(found)
    return found


def names(expression: str) -> set[str]:
    """The metrics in it."""
    return set(re.findall(r"\b(?:gradlane|process)_\w+|\bup\b", expression))


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_a_dashboard_can_be_imported_anywhere(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] == f"gradlane-{path.stem}"
    sources = [it for it in board["templating"]["list"] if it["type"] == "datasource"]
    assert [it["query"] for it in sources] == ["prometheus"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        for target in (panel, *panel["targets"]):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, f"{panel['title']} lies over another panel"
        assert all(x < 24 for x, _ in cells)
        taken |= cells


@needs("promtool")
def test_the_configuration_is_valid_and_every_alert_has_a_remedy() -> None:
    subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=DEPLOY / "prometheus", check=True)
    text = (DEPLOY / "prometheus/gradlane-rules.yml").read_text()
    alerts = text.split("- alert: ")[1:]
    assert len(alerts) > 10
    for alert in alerts:
        for annotation in ("summary: ", "remedy: ", "labels: {severity: "):
            assert annotation in alert, alert
    assert len({alert.split()[0] for alert in alerts}) == len(alerts)


@contextmanager
def training(lab: Lab, it: Running) -> Iterator[None]:
    """A job whose gradients are more than the fabric can carry, one that switches sum, and what agents say of them."""
    burst = [
        gradient(H1, H3, frame_bytes=1400, slice=n, message=1, slices=200, budget=200, layer=1, magnitude=n)
        for n in range(200)
    ]
    summed = contribution(H2, job=2, destination="239.1.2.1")
    over = threading.Event()
    step = 0

    def report() -> None:
        row = {"name": "demo", "id": 1, "rank": 0, "state": "running", "step": step, "step_seconds": 0.5}
        row |= {"in_flight": 1, "budget": {"used": 0.029, "allowed": 0.03}, "repaired": 7 * step, "lost": 3 * step}
        row |= {"stragglers": [{"rank": 1, "evidence": "late"}], "sums": None}
        row |= {"waits": [{"rank": 1, "seconds": 2.0, "why": "gradients"}]}
        content = {"name": "node1", "version": "1", "addresses": ["10.0.1.2"], "jobs": [row]}
        it.ask("PUT", "/agents/h1", json.dumps(content), Content_Type="application/json")
        it.ask("GET", "/status", Authorization="Bearer nobody")

    def run() -> None:
        nonlocal step
        wires, port = lab.host(1)
        while not over.wait(0.5):
            step += 1
            for frame in burst:
                wires.send(port, frame)
            other, at = lab.host(2)
            other.send(at, summed)
            report()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def wait_for_alerts(prometheus: Prometheus, wanted: set[str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not wanted <= (found := prometheus.alerts()):
        assert time.monotonic() < deadline, f"no alert {wanted - found}; there are {found}"
        time.sleep(0.3)


def check_queries(prometheus: Prometheus) -> None:
    """Every query of the dashboards has data, and so has every metric in the rules."""
    missing = {query for path in BOARDS for query in queries(json.loads(path.read_text()))}
    missing |= {f"count({name})" for rule in prometheus.rules() for name in names(rule["query"])}
    assert len(missing) > 50
    deadline = time.monotonic() + SECONDS
    while missing := {query for query in missing if not prometheus.query(query)}:
        assert time.monotonic() < deadline, missing
        time.sleep(0.5)


@needs("prometheus")
def test_every_query_has_data_and_what_fails_is_an_alert(tmp_path: Path, run_controller) -> None:
    lab = Lab(tmp_path)
    fabric = lab.fabric.replace('\naddress = "127', '\naggregation = true\naddress = "127')
    fabric = fabric.replace('rate = "100mbit"', 'rate = "20mbit"')
    jobs = job_text(hosts=(1, 3), base=4096), summed_text(2, hosts=(2, 4))
    try:
        lab.start()
        it = run_controller(fabric, *(text.replace('rate = "100mbit"', 'rate = "20mbit"') for text in jobs))
        prometheus = Prometheus(tmp_path / "prometheus", it.http)
        try:
            it.wait_for("ready:", 120)
            wait_until_whole(it)
            with training(lab, it):
                check_queries(prometheus)
                # What agents say of the job is an alert, and nothing else is.
                wait_for_alerts(prometheus, {"GradlaneLossBudgetNearlySpent", "GradlaneStraggler"})
                healthy = {"GradlaneSwitchAway", "GradlaneLinkDown", "GradlaneNoLeader", "GradlaneControllerDown"}
                assert not prometheus.alerts() & healthy

                lab.switches["spine2"].stop()
                wait_for_alerts(prometheus, {"GradlaneSwitchAway", "GradlaneLinkDown"})
                (away,) = prometheus.query('ALERTS{alertname="GradlaneSwitchAway"}')
                assert away["metric"]["switch"] == "spine2"
            assert it.end(signal.SIGTERM) == 0
            wait_for_alerts(prometheus, {"GradlaneControllerDown", "GradlaneNoLeader"})
        finally:
            prometheus.close()
    finally:
        lab.close()
