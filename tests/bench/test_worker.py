# SPDX-License-Identifier: Apache-2.0
"""A benchmark's worker process answers what it is asked, and says why it can't; nobody waits for it in vain."""

import os
import signal
import sys

import pytest

from bench.harness import worker
from lab.model.errors import ProcessError

ECHO = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin: print(line.strip(), flush=True)"


def script(text: str, **settings: bool):  # pyright: ignore[reportUnknownParameterType]
    return worker.Worker("the worker", [sys.executable, "-c", text], **settings)


def test_workers_are_asked_together_and_their_answers_come_in_order() -> None:
    with script(ECHO) as first, script(ECHO) as second:
        for process in (first, second):
            process.wait_for("ready")
        assert worker.ask_all([first, second], {"count": 3}) == [{"count": 3}, {"count": 3}]
        assert first.end() == 0, "the end of its input ends it"


@pytest.mark.parametrize("logs", [False, True])
def test_one_that_ends_is_quoted(logs: bool) -> None:
    text = "import sys\nprint('ready', flush=True)\nsys.exit('no such port')"
    with script(text, logs=logs) as process:
        process.wait_for("ready")
        with pytest.raises(ProcessError, match=r"the worker ended: (.*\n)*no such port"):
            process.wait_for("listening")


def test_one_that_is_asked_when_it_has_ended_is_quoted_too() -> None:
    with script("import sys; sys.exit('no such port')") as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(ProcessError, match="ended: no such port"):
            process.ask({})


def test_silence_ends_the_wait() -> None:
    with script("import time\nprint('not yet', flush=True)\ntime.sleep(60)", asked=False) as process:
        process.wait_for("not yet")
        with pytest.raises(ProcessError, match=r"the worker has said nothing for .* s, but before: not yet"):
            process.wait_for("ready", seconds=0.2)


def test_one_that_says_more_than_a_pipe_holds_goes_on_and_all_of_it_is_heard() -> None:
    text = "import signal\nfor n in range(100_000): print(n)\nprint('ready', flush=True)\nsignal.pause()"
    with script(text, asked=False) as process:
        assert process.hear(60) == "0"
        process.wait_for("ready")
        assert process.rest() == []
        assert process.said[:-1] == [str(n) for n in range(100_000)]
        assert process.end() == -signal.SIGTERM


def test_its_cpu_time_has_that_of_threads_that_ended() -> None:
    busy = "while time.thread_time() < 0.2: pass"
    text = f"import threading, time\ndef work():\n    {busy}\nt = threading.Thread(target=work)\nt.start()\nt.join()\n"
    with script(text + "print('ready', flush=True)\ntime.sleep(60)", asked=False) as process:
        process.wait_for("ready")
        assert 0.2 <= process.cpu_seconds() < 5
