# SPDX-License-Identifier: Apache-2.0
"""What is kept and logged of gradients that the guard refused."""

import logging
from datetime import datetime, timedelta, timezone

import pytest
from finsy import P4DigestList

from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.session import violations
from gradlane_controller.session.violations import Violations
from tests.gradlane_controller.texts import leafspine_text

Values = dict[str, int]


@pytest.fixture
def where() -> Fabric:
    return fabric_file.parse(leafspine_text(), "f.toml")


def violation(port: int = 1, job: int = 7, source: int = 0xFFFF0A000102) -> Values:
    return {"ingress_port": port, "job": job, "source": source}


def told(*values: Values) -> P4DigestList:
    return P4DigestList("guard_violation_t", list_id=1, timestamp=0, data=list(values))


def test_each_is_listed_with_its_host_and_job(where: Fabric) -> None:
    it = Violations()
    it.add("leaf2", told(violation(), violation(port=2, source=0xFD << 120)), where)
    it.add("leaf2", told(violation()), where)
    it.add("spine1", told(violation(job=8)), where)
    found = it.to_json(where, {7: "demo"})
    last = [datetime.fromisoformat(row.pop("last")) for row in found]
    assert all(timedelta(0) <= datetime.now(timezone.utc) - at < timedelta(minutes=1) for at in last)
    assert found == [
        {"switch": "leaf2", "port": 2, "host": "h4", "source": "fd00::", "job": "demo", "job_id": 7, "times": 1},
        {"switch": "leaf2", "port": 1, "host": "h3", "source": "10.0.1.2", "job": "demo", "job_id": 7, "times": 2},
        {"switch": "spine1", "port": 1, "host": None, "source": "10.0.1.2", "job": None, "job_id": 8, "times": 1},
    ]


def test_the_first_is_logged_and_then_one_line_in_ten_seconds(where: Fabric, caplog: pytest.LogCaptureFixture) -> None:
    times = iter((0.0, 1.0, 9.9, 10.0, 11.0, 25.0))
    it = Violations(lambda: next(times))
    with caplog.at_level(logging.WARNING):
        for _ in range(6):
            it.add("leaf1", told(violation()), where)
    start = "refused at port 1 of 'leaf1' (host 'h1'): gradients of job 7 from 10.0.1.2"
    assert caplog.messages == [start, f"{start}, 3 times more", f"{start}, 2 times more"]


def test_forged_sources_fill_neither_the_log_nor_the_memory(where: Fabric, caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    it = Violations(lambda: now)
    with caplog.at_level(logging.WARNING):
        for source in range(3000):
            it.add("leaf1", told(violation(source=source)), where)
        assert len(caplog.messages) == violations.MAX_LINES
        now = violations.QUIET_SECONDS
        it.add("leaf1", told(violation(source=2999)), where)
        assert len(caplog.messages) == violations.MAX_LINES + 1
    kept = it.to_json(where, {})
    assert len(kept) == violations.MAX_VIOLATIONS
    assert kept[-1]["times"] == 2
