# SPDX-License-Identifier: Apache-2.0
"""The switch's log in JSON, for programs."""

import json

import pytest

from tests.gradlane_switch.switch_process import Process


@pytest.mark.parametrize("level", ["info", "error"])
def test_every_line_of_the_log_is_a_record_and_that_it_is_ready_is_always_there(level: str) -> None:
    switch = Process("--log-format", "json", "--log-level", level)
    log = switch.terminate_and_read()
    rows = [json.loads(line) for line in log.splitlines()]
    assert all({"time", "level", "message"} <= row.keys() for row in rows)
    ready = next(row for row in rows if row["message"].startswith("ready device 1 on "))
    assert ready["level"] == "info"
