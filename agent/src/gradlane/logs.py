# SPDX-License-Identifier: Apache-2.0
"""A program's log. Whatever happens to it (a full disk, a reader that is gone or does not read), the program continues.

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
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from gradlane import systemd
from gradlane.errors import GradlaneError

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")
QUEUE_LINES = 1000
CLOSE_SECONDS = 1.0
# Of one place in the source: this many lines at once, then as many per second.
BURST_LINES = 20
LINES_PER_SECOND = 1.0


class LogError(GradlaneError):
    """A log that can't be written; the message names the file."""


@dataclass(frozen=True)
class Log:
    """What is logged, how, and where: without a file on stderr, which systemd sends to the journal."""

    level: str = "info"
    format: str = "text"
    file: Path | None = None


@dataclass(frozen=True)
class Program:
    """Whose log it is.

    `name`: before each line for people. `loggers`: its own, of which `Log.level` is that of the log; of all others
    there are warnings. `context`: what records may say about themselves (`extra`), in JSON always there; `details`: the
    same, there where a record says it. From the level `limited` on (of `logging`) lines of one place in the source are
    limited, of each `subject` by itself if that is one of what records say.
    """

    name: str
    loggers: tuple[str, ...]
    context: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    limited: int = logging.NOTSET
    subject: str = ""


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, message, and the program's context; its details, suppressed and error where
    there is something."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        line |= {key: getattr(record, key, None) for key in self._program.context}
        line |= {key: getattr(record, key) for key in self._program.details if hasattr(record, key)}
        if suppressed := getattr(record, "suppressed", 0):
            line["suppressed"] = suppressed
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """For people, and for the journal, which knows the time and takes the level from a prefix (sd-daemon(3))."""

    _PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6), (0, 7))

    def __init__(self, name: str, *, journal: bool, times: bool) -> None:
        super().__init__()
        self._name = name
        self._journal = journal
        self._times = times

    def format(self, record: logging.LogRecord) -> str:
        """The line (several, with a traceback), without its end."""
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        text = f"{self._name}: {level}{record.getMessage()}"
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
    """Lets through BURST_LINES of one place in the source, then LINES_PER_SECOND; the next line counts the others.
    `least` and `subject`: as `limited` and `subject` of a program."""

    def __init__(self, least: int = logging.NOTSET, subject: str = "") -> None:
        super().__init__()
        self._least, self._subject = least, subject
        self._places: dict[
            tuple[str, int, str], tuple[float, float, int]
        ] = {}  # tokens, when counted, suppressed since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        if record.levelno < self._least:
            return True
        now = time.monotonic()
        place = record.pathname, record.lineno, str(getattr(record, self._subject, ""))
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
        """Raises LogError if the file can't be opened."""
        super().__init__()
        self.lost = 0
        self._reported = 0
        self._why = ""
        self._torn = False
        self._file = file
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise LogError(f"log file {file}: {error.strerror}") from error
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


def announce(logger: logging.Logger, message: str, *args: object) -> None:
    """Says something at the level info, and whatever the least level is: somebody waits for it."""
    logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, message, args, None))


def setup(log: Log, program: Program) -> LogWriter:
    """Sends the program's loggers and all others to one writer, which replaces the one before. Raises LogError."""
    writer = LogWriter(log.file)
    journal = log.file is None and systemd.journal_reads_stderr()
    text = TextFormatter(program.name, journal=journal, times=log.file is not None)
    writer.setFormatter(JsonFormatter(program) if log.format == "json" else text)
    writer.addFilter(RateLimit(program.limited, program.subject))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
        old.close()
    root.addHandler(writer)
    root.setLevel(logging.WARNING)
    for name in program.loggers:
        logging.getLogger(name).setLevel(log.level.upper())
    logging.raiseExceptions = False
    return writer
