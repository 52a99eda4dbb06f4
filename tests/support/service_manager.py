# SPDX-License-Identifier: Apache-2.0
"""A service manager: what systemd's side of sd_notify(3) hears."""

import contextlib
import os
import socket
from pathlib import Path

# Where Python finds this it runs it first: SIGUSR1 then holds up the main thread for good, and no other one.
WEDGE = """import signal, sys, time
def wedge(*_):
    print("wedged", file=sys.stderr, flush=True)
    time.sleep(3600)
signal.signal(signal.SIGUSR1, wedge)
"""


class ServiceManager:
    """`environment`: of the process that it starts. `patience`: seconds to wait for what must come."""

    def __init__(self, folder: Path, watchdog: float, patience: float = 60.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(folder / "notify"))
        self._patience = patience
        (folder / "sitecustomize.py").write_text(WEDGE)
        found = os.environ.get("PYTHONPATH")
        self.environment = {
            **os.environ,
            "NOTIFY_SOCKET": str(folder / "notify"),
            "WATCHDOG_USEC": str(round(watchdog * 1e6)),
            "PYTHONPATH": os.pathsep.join([str(folder), *([found] if found else [])]),
        }

    def wait_for(self, assignment: str) -> list[str]:
        """The next message that has that assignment. Raises TimeoutError."""
        self._socket.settimeout(self._patience)
        while assignment not in (said := self._socket.recv(4096).decode().splitlines()):
            pass
        return said

    def hears(self, seconds: float) -> bytes | None:
        """What is said within so many seconds from now; None: nothing."""
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):  # what was said before
            while self._socket.recv(4096):
                pass
        self._socket.settimeout(seconds)
        try:
            return self._socket.recv(4096)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Hears nothing any more."""
        self._socket.close()
