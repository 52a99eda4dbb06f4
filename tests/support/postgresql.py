# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server of a test's own, on a loopback address."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.ports import free_ports

BIN = Path("/usr/lib/postgresql/15/bin")  # where Debian's package puts it
START_SECONDS = 60

needs_postgresql = pytest.mark.skipif(not (BIN / "initdb").exists(), reason="Debian's postgresql (15) is not installed")


class Postgresql:
    """Made by `initdb`; the server refuses to run as root, so there it is the user of Debian's package who runs it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="gradlane-pg-"))
        # Not Popen's `user`, for which Python forks: where gRPC has threads, a child may die before it is the program.
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            self._as_user = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        self._data = self._folder / "data"
        self.port = free_ports(1)[0]
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0
        self._run("initdb", "-D", str(self._data), "-U", "gradlane", "--auth=trust", "--no-sync", "-E", "UTF8")

    def start(self) -> None:
        """Returns once it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._folder),
            "fsync": "off",
        }
        flags = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as_user, str(BIN / "postgres"), "-D", str(self._data), *flags],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        deadline = time.monotonic() + START_SECONDS
        while self._call("pg_isready", "-h", "127.0.0.1", "-p", str(self.port)).returncode:
            if self._process.poll() is not None:
                self._process, code = None, self._process.returncode
                raise AssertionError(f"ended with {code}: {(self._folder / 'log').read_text()}")
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.05)

    @property
    def running(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def stop(self, number: int = signal.SIGQUIT) -> None:
        """It ends at once (SIGQUIT), or as a clean stop does that throws its clients out (SIGINT)."""
        if self._process is not None and self.running:
            self.pause(resume=True)
            self._process.send_signal(number)
            self._process.wait(START_SECONDS)
        self._process = None

    def pause(self, *, resume: bool = False) -> None:
        """All its processes stop where they are, or go on."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        for pid in (self._process.pid, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT if resume else signal.SIGSTOP)

    def make_database(self) -> str:
        """The URL of a new one."""
        self._databases += 1
        name = f"test{self._databases}"
        self._run("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "gradlane", name)
        return f"postgresql+psycopg://gradlane@127.0.0.1:{self.port}/{name}"

    def close(self) -> None:
        """Nothing is left of it."""
        self.stop()
        shutil.rmtree(self._folder)

    def _call(self, command: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        argv = [*self._as_user, str(BIN / command), *arguments]
        return subprocess.run(
            argv, cwd=self._folder, capture_output=True, text=True, timeout=START_SECONDS, check=False
        )

    def _run(self, command: str, *arguments: str) -> None:
        done = self._call(command, *arguments)
        assert done.returncode == 0, done.stderr
