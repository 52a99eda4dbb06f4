# SPDX-License-Identifier: Apache-2.0
"""One shell in which commands run after one another, as somebody would type them; whatever they start ends with it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.isolation import ISOLATED
from tests.support.paths import ROOT

# What it has started ends with it, wherever that is, and it ends with these tests.
_OWN_PROCESSES = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class Failed(Exception):
    """A command failed, or took too long: which, and what all printed."""


class Shell(contextlib.AbstractContextManager["Shell"]):
    """`folder`: for this shell alone, with a short name, as it is where Unix sockets are made (TMPDIR)."""

    def __init__(self, folder: Path, isolated: bool) -> None:
        self._folder = folder
        self._read, write = os.pipe()
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "TMPDIR": str(folder),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "120",
            "STATUS": str(write),
        }
        self._process = subprocess.Popen(
            [*((*_OWN_PROCESSES, *ISOLATED) if isolated else ()), "bash", "--noprofile", "--norc", "-s"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment,
            pass_fds=[write],
            start_new_session=True,
        )
        os.close(write)
        self._say("set -E", "trap 'echo \"$BASH_COMMAND\" >&$STATUS' ERR")

    def run(self, commands: str, seconds: float) -> str:
        """What they print; a Failed if one of them fails, or not all end in time."""
        script, printed = self._folder / "commands", self._folder / "printed"
        script.write_text(commands)
        printed.unlink(missing_ok=True)  # what an earlier one left in the background may write to it yet
        self._say(f". {script} < /dev/null > {printed} 2>&1", "echo >&$STATUS")
        failed = self._status(time.monotonic() + seconds)
        output = printed.read_text(errors="replace")
        if failed:
            raise Failed(f"{failed} of:\n{commands}\nwhich printed:\n{output}")
        return output

    def _say(self, *lines: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("".join(f"{line}\n" for line in lines).encode())
        self._process.stdin.flush()

    def _status(self, end: float) -> str:
        """What failed, of what has to be over by then; nothing if all is well."""
        told = b""
        while not (told == b"\n" or told.endswith(b"\n\n")):
            if not select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                return "too slow"
            part = os.read(self._read, 4096)
            if not part:
                return "the shell ended"
            told += part
        return f"failed: {told.decode().strip()}" if told.strip() else ""

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        os.close(self._read)
