# SPDX-License-Identifier: Apache-2.0
"""What a switch's time goes into, by perf."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from bench.harness.netns import run
from bench.harness.worker import Worker
from lab.model.errors import PreconditionError

_READY_SECONDS = 60.0


def perf() -> str:
    """The program. Raises PreconditionError."""
    found = shutil.which("perf")
    if found is None:
        raise PreconditionError("--profile needs perf: apt-get install linux-perf")
    return found


def profile(load: Callable[[], object], process: Worker, folder: Path) -> str:
    """Shares of a process' time while `load` runs: those of programs and of functions above 1 %."""
    data = folder / "perf.data"
    data.unlink(missing_ok=True)
    recording = subprocess.Popen([perf(), "record", "-q", "-F", "4999", "-o", str(data), "-p", str(process.pid)])
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while not data.exists() and recording.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        load()
    finally:
        recording.send_signal(signal.SIGINT)
        recording.wait(30)
    lines: list[str] = []
    for what in ("dso", "dso,symbol"):
        report = run(perf(), "report", "-i", str(data), "--stdio", "--percent-limit", "1", "--sort", what)
        lines += [line.rstrip() for line in report.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(lines)
