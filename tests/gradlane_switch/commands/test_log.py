# SPDX-License-Identifier: Apache-2.0
"""The switch's log in JSON, for programs."""

import json

from tests.gradlane_switch.switch_process import Process


def test_every_line_of_the_log_is_a_record() -> None:
    switch = Process("--log-format", "json")
    log = switch.terminate_and_read()
    rows = [json.loads(line) for line in log.splitlines()]
    assert all({"time", "level", "message"} <= row.keys() for row in rows)
    ready = next(row for row in rows if row["message"].startswith("ready device 1 on "))
    assert ready["level"] == "info"
