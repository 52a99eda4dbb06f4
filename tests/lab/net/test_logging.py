# SPDX-License-Identifier: Apache-2.0
"""Mininet's way with loggers stays its own."""

import subprocess
import sys

import pytest


def test_loggers_that_come_after_mininet_are_ordinary() -> None:
    pytest.importorskip("mininet.log")
    program = (
        "import logging, lab.net.prompt\n"
        "log = logging.getLogger('gradlane')\n"
        "assert type(log) is logging.Logger and not log.handlers and log.level == logging.NOTSET\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
