# SPDX-License-Identifier: Apache-2.0
"""`gradlane-controller run` as a process."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from tests.support import zygote

# Seconds for what should happen at once, on a machine that is busy with other tests.
PATIENCE = 60.0


class Running:
    """A controller process. `lines` gets what it says on stderr, `token_file` its first token."""

    def __init__(self, arguments: list[str], http_port: int, token_file: Path) -> None:
        self.http = f"127.0.0.1:{http_port}"
        self.access = "--http", self.http, "--token-file", str(token_file)
        self._token_file = token_file
        self.process = zygote.start(
            [sys.executable, "-m", "gradlane_controller.cli", "run", "--http", self.http, *arguments],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.said_at: list[tuple[float, str]] = []  # the same, each with time.monotonic()
        self._lines: Queue[str | None] = Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def wait_for(self, text: str | tuple[str, ...], seconds: float = PATIENCE) -> str:
        """The next line with that text, or one of these. Fails the test with all that was said if none comes."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except Empty:
                pytest.fail(f"no line with {text!r} in {seconds} s; the controller said {self.said}")
            if line is None:
                pytest.fail(f"it ended without a line with {text!r}; the controller said {self.said}")
            if any(it in line for it in ([text] if isinstance(text, str) else text)):
                return line

    def reload(self) -> None:
        """Has it read its files again; once more where it could not, as on a busy machine it may not lead just then."""
        deadline = time.monotonic() + PATIENCE
        self.process.send_signal(signal.SIGHUP)
        while "reload failed" in self.wait_for(("files read again", "reload failed")):
            assert time.monotonic() < deadline, self.said
            time.sleep(0.5)
            self.process.send_signal(signal.SIGHUP)

    @property
    def token(self) -> str:
        """The first one."""
        return self._token_file.read_text().strip()

    def ask(self, method: str, path: str, body: str | None = None, **headers: str) -> tuple[int, Any]:
        """HTTP status and JSON of a request for a path below /v1; `headers` with _ for -."""
        given = {
            "Content-Type": "application/toml",
            "Authorization": f"Bearer {self.token}",
            **{key.replace("_", "-"): it for key, it in headers.items()},
        }
        connection = http.client.HTTPConnection(self.http, timeout=PATIENCE)
        try:
            connection.request(method, f"/v1{path}", body, given)
            answer = connection.getresponse()
            return answer.status, json.load(answer)
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Its exit code after a signal."""
        self.process.send_signal(number)
        return self.process.wait(timeout=PATIENCE)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip())
            self.said_at.append((time.monotonic(), line.rstrip()))
            self._lines.put(line.rstrip())
        self._lines.put(None)
