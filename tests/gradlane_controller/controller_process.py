# SPDX-License-Identifier: Apache-2.0
"""`gradlane-controller run` as a process."""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from queue import Empty, Queue
from typing import Any

import pytest

from tests.support import zygote

# Seconds for what should happen at once, on a machine that is busy with other tests.
PATIENCE = 60.0


class Running:
    """A controller process. `lines` gets what it says on stderr."""

    def __init__(self, arguments: list[str], http_port: int) -> None:
        self.http = f"127.0.0.1:{http_port}"
        self.process = zygote.start(
            [sys.executable, "-m", "gradlane_controller.cli", "run", "--http", self.http, *arguments],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self._lines: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, text: str, seconds: float = PATIENCE) -> str:
        """The next line with that text. Fails the test with all that was said if there is none in time."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except Empty:
                pytest.fail(f"no line with {text!r} in {seconds} s; the controller said {self.said}")
            if line is None:
                pytest.fail(f"it ended without a line with {text!r}; the controller said {self.said}")
            if text in line:
                return line

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, Any]:
        """HTTP status and JSON of a request; `headers` with _ for -."""
        data = None if body is None else body.encode()
        given = {"Content-Type": "application/toml"} | {key.replace("_", "-"): it for key, it in headers.items()}
        request = urllib.request.Request(f"http://{self.http}{path}", data=data, headers=given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as problem:
            return problem.code, json.load(problem)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            self._lines.put(line.rstrip())
        self._lines.put(None)
