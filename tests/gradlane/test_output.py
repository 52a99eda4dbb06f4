# SPDX-License-Identifier: Apache-2.0
"""Commands whose output nobody reads any more, as `| head` has enough of it, end in silence."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("command", ["gradlane", "gradlane-controller", "gradlane-switch"])
@pytest.mark.parametrize("arguments", [("--help",), ("completion", "bash")])
def test_who_has_enough_hears_of_no_error(command: str, arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        program = Path(sys.executable).parent / command
        ended = subprocess.run([program, *arguments], stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    finally:
        os.close(writer)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")
