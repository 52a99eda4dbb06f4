# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of a benchmark, which never outlive it: not when it fails, nor when a signal ends it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TypeVar

from lab.model import stopping
from lab.model.errors import FabricError
from lab.model.preconditions import check_root

_Namespaces = TypeVar("_Namespaces", bound="Namespaces")


def run(*command: str) -> str:
    """Output of a command. Raises FabricError."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FabricError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def _remove(name: str) -> None:
    # A signal may have come when a process was started and nobody held it yet.
    pids = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True, check=False).stdout
    for pid in pids.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Namespaces:
    """Use as a context manager: they are there, with their loopbacks up, and what `_build` adds, until it is left.

    What still runs in them then is killed. Within it SIGINT, SIGTERM and SIGHUP raise SystemExit. Raises FabricError,
    and PreconditionError unless this is root.
    """

    def __init__(self, names: Sequence[str]) -> None:
        check_root()
        self._names = names
        self._stack = ExitStack()

    def __enter__(self: _Namespaces) -> _Namespaces:
        with ExitStack() as stack:
            stack.enter_context(stopping.in_good_order())
            for name in self._names:
                stack.callback(_remove, name)
                run("ip", "netns", "add", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            self._build()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _build(self) -> None:
        """Adds links and so on to the namespaces; here nothing."""
