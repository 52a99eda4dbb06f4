# SPDX-License-Identifier: Apache-2.0
"""A process of a benchmark that is asked and answers, by lines on its pipes: what it says is waited for, not polled."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from bench.harness.netns import WireError

_READY_SECONDS = 60.0
_QUOTE = 500  # bytes of what a process said last


class Worker:
    """A process that says lines on its standard output, and is asked by lines on its standard input.

    Use it as a context manager, which ends the process: by the end of its input, or by SIGTERM if it is not `asked`;
    after 15 s by SIGKILL. `logs`: what it says on standard error counts as said; else it is quoted in errors.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        asked: bool = True,
        logs: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.said: list[str] = []
        self._heard = 0
        self._silent = False  # it can't say anything any more
        self._more = threading.Condition()
        self._errors = os.memfd_create(name)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if logs else self._errors,
            text=True,
            errors="replace",
            env=environment,
        )
        # Somebody must always read, or a process that says much would stop at a full pipe.
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        os.close(self._errors)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def cpu_seconds(self) -> float:
        """CPU time that all its threads have had."""
        return time.clock_gettime(~self.pid << 3 | 2)  # what clock_getcpuclockid(3) returns, which Python lacks

    def hear(self, seconds: float | None = None) -> str:
        """The next line that nobody has heard yet. Raises WireError if the process ends, or is silent for so long."""
        with self._more:
            if not self._more.wait_for(lambda: len(self.said) > self._heard or self._silent, seconds):
                raise WireError(f"{self.name} has said nothing for {seconds:.3g} s, but before: {self.last_words()}")
            if len(self.said) == self._heard:
                raise WireError(f"{self.name} ended: {self.last_words()}")
            self._heard += 1
            return self.said[self._heard - 1]

    def wait_for(self, word: str = "ready", seconds: float = _READY_SECONDS) -> None:
        """Hears all up to a line with this word. Raises WireError."""
        deadline = time.monotonic() + seconds
        while word not in self.hear(deadline - time.monotonic()):
            pass

    def rest(self) -> list[str]:
        """The lines that have come and nobody has heard yet."""
        with self._more:
            lines = self.said[self._heard :]
            self._heard = len(self.said)
            return lines

    def ask(self, request: Mapping[str, Any]) -> None:
        """Sends a line of JSON. Raises WireError."""
        assert self._process.stdin is not None
        try:
            print(json.dumps(request), file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise WireError(f"{self.name} ended: {self.last_words()}") from None

    def last_words(self) -> str:
        """What it said last: on standard error, if anything."""
        size = os.fstat(self._errors).st_size
        words = os.pread(self._errors, _QUOTE, max(0, size - _QUOTE)).decode(errors="replace").strip()
        return words or "\n".join(self.said[-20:])[-_QUOTE:] or "it said nothing"

    def end(self) -> int:
        """Ends the process; its exit status."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # It ended before it took what it was asked, which ask() has told.
                self._process.stdin.close()
        else:
            self._process.terminate()
        try:
            return self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                with self._more:
                    self.said.append(line.rstrip("\n"))
                    self._more.notify_all()
        with self._more:
            self._silent = True
            self._more.notify_all()


def ask_all(workers: Sequence[Worker], request: Mapping[str, Any]) -> list[Any]:
    """Asks all workers the same at the same time; the answers, from JSON. Raises WireError."""
    for worker in workers:
        worker.ask(request)
    return [json.loads(worker.hear()) for worker in workers]
