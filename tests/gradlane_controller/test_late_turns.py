# SPDX-License-Identifier: Apache-2.0
"""A controller that has no turn for long, as others keep the machine busy."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from finsy.proto import p4r

from gradlane_controller.session import connection, patience
from tests.gradlane_controller.controller_thread import ControllerThread
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text


class AskedSwitch(FakeSwitch):
    """Calls `asked` before it answers a read."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Callable[[], None] = lambda: None

    def Read(self, request: p4r.ReadRequest, context: object) -> Iterator[p4r.ReadResponse]:
        self.asked()
        yield from super().Read(request, context)


def test_what_was_answered_while_the_controller_had_no_turn_is_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(connection, "ATTEMPT_SECONDS", 0.5)
    monkeypatch.setattr(patience, "TURN_SECONDS", 0.1)
    switch = AskedSwitch()
    switch.start()
    it = ControllerThread(tmp_path, fabric_text(address=switch.address), job_text())
    asked = 0

    def stop_the_controller() -> None:
        nonlocal asked
        asked += 1
        if asked <= 5:
            it.call_soon(lambda: time.sleep(1.0))
            time.sleep(0.1)

    try:
        it.until(lambda: it.switch()["ready"])
        switch.asked = stop_the_controller
        it.until(lambda: asked > 10)
        assert "no answer" not in caplog.text
        assert it.switch()["ready"]
    finally:
        switch.asked = lambda: None
        it.close()
        switch.stop()
