# SPDX-License-Identifier: Apache-2.0
"""A process of a benchmark that answers requests, by lines on its pipes; nobody polls for what it says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

from lab.model.errors import ProcessError
from lab.net.processes import Process

_READY_SECONDS = 60.0
_QUOTE = 500  # bytes of what a process said last


class Worker(Process):
    """A process that says lines on its standard output, and takes requests as lines on its standard input.

    Use it as a context manager, which ends the process: by the end of its input, or by SIGTERM if it is not `asked`
    anything, or something went wrong; after 15 s by SIGKILL. `logs`: what it writes to standard error counts as said;
    else errors quote it.
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
        self.said: list[str] = []
        self._heard = 0
        self._silent = False  # it can't say anything any more
        self._more = threading.Condition()
        self._errors = os.memfd_create(name)
        super().__init__(
            name,
            command,
            environment,
            stdin=subprocess.PIPE if asked else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if logs else self._errors,
            text=True,
            errors="replace",
        )
        # It must be read at all times, or a process that says much would stop at a full pipe.
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.process.terminate()  # it may wait for others, and nobody will ask it anything more
        self.end()
        os.close(self._errors)

    def hear(self, seconds: float | None = None) -> str:
        """The next line that nobody has heard yet. Raises ProcessError if the process ends, or is silent too long."""
        with self._more:
            if not self._more.wait_for(lambda: len(self.said) > self._heard or self._silent, seconds):
                raise ProcessError(f"{self.name} has said nothing for {seconds:.3g} s, but before: {self.last_words()}")
            if len(self.said) == self._heard:
                raise ProcessError(f"{self.name} ended: {self.last_words()}")
            self._heard += 1
            return self.said[self._heard - 1]

    def wait_for(self, word: str = "ready", seconds: float = _READY_SECONDS) -> None:
        """Hears all up to a line with this word. Raises ProcessError."""
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
        """Sends a line of JSON. Raises ProcessError."""
        assert self.process.stdin is not None
        try:
            print(json.dumps(request), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            raise ProcessError(f"{self.name} ended: {self.last_words()}") from None

    def last_words(self) -> str:
        """What it said last: on standard error, if anything."""
        size = os.fstat(self._errors).st_size
        words = os.pread(self._errors, _QUOTE, max(0, size - _QUOTE)).decode(errors="replace").strip()
        return words or "\n".join(self.said[-20:])[-_QUOTE:] or "it said nothing"

    def begin_to_end(self) -> None:
        """The process is told to end; nobody waits for it yet."""
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):  # it ended before it took its last request, as ask() has said
                self.process.stdin.close()
        else:
            self.process.terminate()

    def end(self) -> int:
        """Ends the process; its exit status."""
        self.begin_to_end()
        try:
            return self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._more:
                    self.said.append(line.rstrip("\n"))
                    self._more.notify_all()
        with self._more:
            self._silent = True
            self._more.notify_all()


def wait_for_all(stack: ExitStack, workers: Sequence[Worker], seconds: float = _READY_SECONDS) -> None:
    """Waits until all are ready. When the stack ends all are told to end before any is waited for: who leaves a job
    waits for the others. Raises ProcessError."""
    for worker in workers:
        worker.wait_for("ready", seconds)
        stack.callback(worker.begin_to_end)


def ask_all(workers: Sequence[Worker], request: Mapping[str, Any]) -> list[Any]:
    """The answers of all workers to one request, sent to all before the first answers. Raises ProcessError."""
    for worker in workers:
        worker.ask(request)
    return [json.loads(worker.hear()) for worker in workers]


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """The worker's own side: says that it is ready, and answers each request until its input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)
