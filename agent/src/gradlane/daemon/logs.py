# SPDX-License-Identifier: Apache-2.0
"""The agent's log. Whatever happens to it (a full disk, a reader that is gone or does not read), the agent continues.

Lines are written by a thread behind a bounded queue, so that the event loop never waits for a disk or a pipe. What
can't be written is counted, and reported as soon as lines can be written again.
"""

import contextlib
import errno
import json
import logging
import os
import queue
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

from gradlane import systemd
from gradlane.daemon.config import Log
from gradlane.errors import AgentError

QUEUE_LINES = 1000
CLOSE_SECONDS = 1.0
# Of one place in the source: this many lines at once, then as many per second.
BURST_LINES = 20
LINES_PER_SECOND = 1.0
# What a record may say about itself; in JSON these keys are always there.
CONTEXT = ("job", "rank", "peer")


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, message, job, rank, peer; suppressed and error where there is something."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {key: getattr(record, key, None) for key in CONTEXT}
        if suppressed := getattr(record, "suppressed", 0):
            line["suppressed"] = suppressed
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """For people, and for the journal, which knows the time and takes the level from a prefix (sd-daemon(3))."""

    _PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))

    def __init__(self, *, journal: bool, times: bool) -> None:
        super().__init__()
        self._journal = journal
        self._times = times

    def format(self, record: logging.LogRecord) -> str:
        """The line (several, with a traceback), without its end."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        text = f"gradlane: {level}{record.getMessage()}"
        if suppressed := getattr(record, "suppressed", 0):
            text += f" ({suppressed} such lines were left out)"
        if record.exc_info:
            text += "\n" + self.formatException(record.exc_info)
        if self._times:
            text = f"{datetime.fromtimestamp(record.created).astimezone().isoformat(timespec='milliseconds')} {text}"
        if self._journal:
            priority = next(number for level, number in self._PRIORITIES if record.levelno >= level)
            text = "\n".join(f"<{priority}>{line}" for line in text.splitlines())
        return text


class RateLimit(logging.Filter):
    """Lets through BURST_LINES of one place in the source, then LINES_PER_SECOND; the next line counts the others."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], tuple[float, float, int]] = {}  # tokens, when counted, suppressed since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        now = time.monotonic()
        place = (record.pathname, record.lineno)
        tokens, before, suppressed = self._places.get(place, (BURST_LINES, now, 0))
        tokens = min(BURST_LINES, tokens + (now - before) * LINES_PER_SECOND)
        if tokens < 1:
            self._places[place] = (tokens, now, suppressed + 1)
            return False
        self._places[place] = (tokens - 1, now, 0)
        record.suppressed = suppressed
        return True


class LogWriter(logging.Handler):
    """Writes to stderr or a file. `lost` counts the lines that could not be written."""

    def __init__(self, file: Path | None) -> None:
        """Raises AgentError if the file can't be opened."""
        super().__init__()
        self.lost = 0
        self._reported = 0
        self._why = ""
        self._torn = False
        self._file = file
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise AgentError(f"log file {file}: {error.strerror}") from error
        self._queue: queue.Queue[str | None] = queue.Queue(QUEUE_LINES)
        self._reopen = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gradlane-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queues the line; never blocks."""
        line = self.format(record)
        try:
            self._queue.put_nowait(line)
        except queue.Full:
            self._lose("they came faster than they could be written")

    def reopen(self) -> None:
        """Opens the file again before the next line, for logrotate."""
        self._reopen.set()

    def close(self) -> None:
        """Writes what is queued, for at most CLOSE_SECONDS."""
        if self._thread.is_alive():
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=CLOSE_SECONDS)
            self._thread.join(CLOSE_SECONDS)
        super().close()

    def _open(self) -> int:
        if self._file is None:
            return sys.stderr.fileno()
        return os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _lose(self, why: str) -> None:
        self.lost += 1
        self._why = why

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            if self._reopen.is_set() and self._file is not None:
                self._reopen.clear()
                self._open_again()
            missing = self.lost - self._reported
            if missing and self._write(self._notice(missing)):
                self._reported += missing
            if not self._write(line):
                self._lose(self._why)

    def _notice(self, missing: int) -> str:
        text = f"{missing} log line(s) before this one were lost: {self._why}"
        return self.format(logging.LogRecord("gradlane", logging.WARNING, __file__, 0, text, None, None))

    def _open_again(self) -> None:
        try:
            descriptor = self._open()
        except OSError as error:  # the old file is better than none
            self._lose(f"log file {self._file}: {error.strerror}")
            return
        os.close(self._descriptor)
        self._descriptor = descriptor

    def _write(self, line: str) -> bool:
        data = f"{line}\n".encode(errors="backslashreplace")
        if self._torn:  # what got into the file before the disk was full has no end
            data = b"\n" + data
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            self._why = error.strerror or str(error)
            return False
        self._torn = written < len(data)
        if self._torn:
            self._why = os.strerror(errno.ENOSPC)
        return not self._torn


def lines_lost() -> int:
    """Log lines that could not be written since the log was set up."""
    return sum(handler.lost for handler in logging.getLogger().handlers if isinstance(handler, LogWriter))


def setup(log: Log) -> LogWriter:
    """Sends the logger `gradlane` and all others to one writer, which replaces the one before. Raises AgentError."""
    writer = LogWriter(log.file)
    journal = log.file is None and systemd.journal_reads_stderr()
    formatter = JsonFormatter() if log.format == "json" else TextFormatter(journal=journal, times=log.file is not None)
    writer.setFormatter(formatter)
    writer.addFilter(RateLimit())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(writer)
    root.setLevel(logging.WARNING)
    logging.getLogger("gradlane").setLevel(log.level.upper())
    logging.raiseExceptions = False
    return writer
