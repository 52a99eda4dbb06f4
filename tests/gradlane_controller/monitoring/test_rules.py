# SPDX-License-Identifier: Apache-2.0
"""Each alert of deploy/prometheus on series made up for it: it fires when it should, and not while all is well."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.gradlane_controller.monitoring.prometheus_process import DEPLOY
from tests.support.needs import needs

RULES = DEPLOY / "prometheus/gradlane-rules.yml"
PREFIX = "gradlane_controller_"
C1 = 'instance="c1"'

# Of each alert: series by name, with values of each minute when it fires, and when it does not; and labels it then has.
# In Prometheus's notation: "0+5x10" is 0, 5, 10, ... 50.
Case = tuple[dict[str, str], dict[str, str], dict[str, str]]
CASES: dict[str, Case] = {
    "GradlaneControllerDown": (
        {'up{job="gradlane-controller",instance="c1"}': "0x10"},
        {'up{job="gradlane-controller",instance="c1"}': "1x10", 'up{job="other",instance="c1"}': "0x10"},
        {"instance": "c1", "job": "gradlane-controller"},
    ),
    "GradlaneNoLeader": (
        {'leader{instance="c1"}': "0x10", 'leader{instance="c2"}': "0x10"},
        {'leader{instance="c1"}': "0x10", 'leader{instance="c2"}': "1x10"},
        {},
    ),
    "GradlaneStoreDown": ({f"store_up{{{C1}}}": "0x10"}, {f"store_up{{{C1}}}": "1x10"}, {"instance": "c1"}),
    "GradlaneEventsLost": (
        {f"events_lost_total{{{C1}}}": "0x5 3x5"},
        {f"events_lost_total{{{C1}}}": "3x10"},
        {"instance": "c1"},
    ),
    "GradlaneLogLinesLost": (
        {f"log_lines_lost_total{{{C1}}}": "0x5 3x5"},
        {f"log_lines_lost_total{{{C1}}}": "3x10"},
        {"instance": "c1"},
    ),
    "GradlaneControllerSlow": (
        {
            f'event_loop_lag_seconds_bucket{{{C1},le="0.5"}}': "0+90x10",
            f'event_loop_lag_seconds_bucket{{{C1},le="1"}}': "0+100x10",
            f'event_loop_lag_seconds_bucket{{{C1},le="+Inf"}}': "0+100x10",
        },
        {
            f'event_loop_lag_seconds_bucket{{{C1},le="0.5"}}': "0+100x10",
            f'event_loop_lag_seconds_bucket{{{C1},le="1"}}': "0+100x10",
            f'event_loop_lag_seconds_bucket{{{C1},le="+Inf"}}': "0+100x10",
        },
        {"instance": "c1"},
    ),
    "GradlaneWrongTokens": (
        {f'http_refused_total{{{C1},reason="token"}}': "0+10x10"},
        {
            f'http_refused_total{{{C1},reason="token"}}': "0+3x10",
            f'http_refused_total{{{C1},reason="scope"}}': "0+99x10",
        },
        {"instance": "c1"},
    ),
    "GradlaneSwitchAway": (
        {'switch_connected{instance="c1",switch="s1"}': "0x10", 'switch_connected{instance="c2",switch="s1"}': "0x10"},
        {'switch_connected{instance="c1",switch="s1"}': "0x10", 'switch_connected{instance="c2",switch="s1"}': "1x10"},
        {"switch": "s1"},
    ),
    "GradlaneSwitchNotReady": (
        {
            f'switch_connected{{{C1},switch="s1"}}': "1x10",
            f'switch_ready{{{C1},switch="s1"}}': "0x10",
            f"leader{{{C1}}}": "1x10",
        },
        # It stands by; and another one leads, whose switch is ready.
        {
            f'switch_connected{{{C1},switch="s1"}}': "1x10",
            f'switch_ready{{{C1},switch="s1"}}': "0x10",
            f"leader{{{C1}}}": "0x10",
            'switch_connected{instance="c2",switch="s1"}': "1x10",
            'switch_ready{instance="c2",switch="s1"}': "1x10",
            'leader{instance="c2"}': "1x10",
        },
        {"instance": "c1", "switch": "s1"},
    ),
    "GradlaneEntriesRefused": (
        {f'switch_refused_entries{{{C1},switch="s1"}}': "3x10"},
        {f'switch_refused_entries{{{C1},switch="s1"}}': "0x10"},
        {"instance": "c1", "switch": "s1"},
    ),
    "GradlaneConvergenceFails": (
        {f'switch_convergence_failures_total{{{C1},switch="s1"}}': "0+1x10"},
        {f'switch_convergence_failures_total{{{C1},switch="s1"}}': "0x5 1x5"},
        {"switch": "s1"},
    ),
    "GradlaneOtherWriter": (
        {f'switch_mended_times_total{{{C1},switch="s1"}}': "0+1x10"},
        {f'switch_mended_times_total{{{C1},switch="s1"}}': "0x5 1x5"},
        {"switch": "s1"},
    ),
    "GradlaneLinkDown": (
        {f'link_up{{{C1},switch="s1",port="5",peer="s2:1"}}': "0x10", 'link_up{instance="c2",switch="s1",port="5",'
         'peer="s2:1"}': "1x10"},
        {f'link_up{{{C1},switch="s1",port="5",peer="s2:1"}}': "1x10"},
        {"switch": "s1", "port": "5", "peer": "s2:1"},
    ),
    "GradlaneForgedGradients": (
        {f'switch_packets_total{{{C1},switch="s1",reason="dropped_guard"}}': "0+5x10"},
        {
            f'switch_packets_total{{{C1},switch="s1",reason="dropped_guard"}}': "5x10",
            f'switch_packets_total{{{C1},switch="s1",reason="forwarded"}}': "0+5x10",
        },
        {"switch": "s1"},
    ),
    "GradlaneLossBudgetNearlySpent": (
        {f'job_budget_used_ratio{{{C1},job="j"}}': "0.029x10", f'job_budget_allowed_ratio{{{C1},job="j"}}': "0.03x10"},
        {f'job_budget_used_ratio{{{C1},job="j"}}': "0.02x10", f'job_budget_allowed_ratio{{{C1},job="j"}}': "0.03x10"},
        {"instance": "c1", "job": "j"},
    ),
    "GradlaneStraggler": (
        {f'job_straggler{{{C1},job="j",host="h3"}}': "1x10"},
        {f'job_straggler{{{C1},job="j",host="h3"}}': "0x10"},
        {"job": "j", "host": "h3"},
    ),
}  # fmt: skip


def alert(name: str) -> tuple[str, dict[str, str]]:
    """Its severity, and its annotations."""
    text = RULES.read_text().split(f"- alert: {name}\n")[1].split("- alert:")[0]
    severity = re.search(r"severity: (\w+)", text)
    assert severity
    return severity[1], dict(re.findall(r'(summary|remedy): "(.*)"', text))


def run(tmp_path: Path, name: str, series: dict[str, str], expected: list[dict[str, Any]]) -> str:
    """What `promtool test rules` says of it; nothing if all is as expected after 10 minutes."""
    rows = [{"series": it if it.startswith("up{") else PREFIX + it, "values": values} for it, values in series.items()]
    test = {"interval": "1m", "input_series": rows, "alert_rule_test": [
        {"eval_time": "10m", "alertname": name, "exp_alerts": expected}
    ]}  # fmt: skip
    file = tmp_path / "test.yml"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


def test_every_alert_has_a_case() -> None:
    assert re.findall(r"- alert: (\w+)", RULES.read_text()) == list(CASES)


@needs("promtool")
@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_for_what_it_is_about_and_for_nothing_else(tmp_path: Path, name: str) -> None:
    firing, quiet, labels = CASES[name]
    severity, annotations = alert(name)
    said = run(tmp_path, name, firing, [])
    assert "FAILED" in said
    for key, value in {**labels, "severity": severity}.items():
        assert f'{key}="{value}"' in said
    assert annotations["remedy"] in said.replace('\\"', '"')
    assert "error expanding" not in said
    assert run(tmp_path, name, quiet, []) == ""
