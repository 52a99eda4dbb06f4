# SPDX-License-Identifier: Apache-2.0
"""Starts the programs as forks of processes that have imported them: what they import takes longer than most tests.

    python -m tests.support.zygote DESCRIPTOR PROGRAM        the process that forks: one for each program and pytest

A fork is like a process that Python has begun with `-m PROGRAM`: a child of the test's process, with arguments,
environment, directory, descriptors, priority and network namespace of its own. It is forked where no other thread runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from typing import Any

from tests.support.paths import ROOT

# What a program imports when it runs, beside what it imports at once.
_IMPORTED: dict[str, tuple[str, ...]] = {
    "gradlane.cli": (
        *(f"gradlane.commands.{name}" for name in ("agent", "config", "doctor", "serve", "status", "top")),
        "gradlane.daemon.service",
        "cryptography.hazmat.backends.openssl.backend",
    ),
    "gradlane_controller.cli": (),
    "gradlane_switch": ("gradlane_switch.cli",),
    "tests.gradlane.sync.surviving_worker": (),
    "tests.support.introspection": (),
}
_OPTIONS = {"stdin", "stdout", "stderr", "text", "cwd"}  # that a fork may have
_INSIDE = ("ip", "netns", "exec")
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
_MS_REC, _MS_SLAVE, _MNT_DETACH = 0x4000, 0x80000, 2
_LARGEST = 1 << 17  # bytes of a request
_STREAMS = 3

_zygotes: dict[str, socket.socket] = {}
_one_at_a_time = threading.Lock()


def start(argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """As `subprocess.Popen`: a fork where `argv` is one of the programs, maybe inside of a network namespace. What
    is to have another environment, user or limit is a process of its own from the beginning."""
    words = list(argv)
    inside = words[3] if tuple(words[:3]) == _INSIDE else ""
    own = words[4:] if inside else words
    plain = _OPTIONS.issuperset(name for name, value in options.items() if value is not None)
    if plain and own[:2] == [sys.executable, "-m"] and own[2] in _IMPORTED:
        return _Fork(words, inside, own[2:], **options)
    return subprocess.Popen(words, **options)


def run(argv: Sequence[str], timeout: float, check: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of what `start` starts, with its output as text."""
    with start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            output, errors = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


class _Fork(subprocess.Popen[Any]):
    """All that a Popen does, but for how its process comes to be."""

    def __init__(self, argv: list[str], namespace: str, words: list[str], **options: Any) -> None:
        self._namespace, self._words = namespace, words
        super().__init__(argv, **options)

    def _execute_child(self, *given: Any) -> None:
        cwd, pipes = given[5], given[10:16]
        os.umask(umask := os.umask(0))  # there is no other way to see it
        request = {"words": self._words, "namespace": self._namespace, "environment": dict(os.environ)}
        request |= {"directory": os.fspath(cwd or os.getcwd()), "umask": umask}
        request |= {"nice": os.getpriority(os.PRIO_PROCESS, 0)}
        streams = [own if own != -1 else number for number, own in enumerate((pipes[0], pipes[3], pipes[5]))]
        with _one_at_a_time, _adopting():
            zygote = _zygote(self._words[0])
            socket.send_fds(zygote, [json.dumps(request).encode()], streams)
            answer = zygote.recv(64)
        assert answer, f"the process that forks {self._words[0]} has ended"
        self.pid = int(answer)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # pyright: ignore


@contextlib.contextmanager
def _adopting() -> Generator[None]:
    """A process whose parent ends meanwhile becomes a child of this one."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _zygote(program: str) -> socket.socket:
    """The connection to the process that forks a program; it ends with this one."""
    if program not in _zygotes:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            argv = [sys.executable, "-m", __name__, str(its.fileno()), program]
            # OpenBLAS's threads would not be in the forks.
            environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
            subprocess.Popen(argv, pass_fds=[its.fileno()], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL)
        _zygotes[program] = mine
    return _zygotes[program]


def _serve(connection: socket.socket) -> dict[str, Any] | None:
    """Forks for each request. Returns the request in each fork, and None when nobody is left who asks."""
    while True:
        message, streams, *_ = socket.recv_fds(connection, _LARGEST, _STREAMS)
        if not message:
            return None
        tasks = len(os.listdir("/proc/self/task"))
        assert tasks == 1, f"{tasks} threads: a fork would have one of them"
        adopted, go_on = os.pipe()
        told, tell = os.pipe()
        if not (between := os.fork()):
            if pid := os.fork():
                os.write(tell, str(pid).encode())
                os._exit(0)
            for each in (go_on, told, tell):
                os.close(each)
            os.read(adopted, 1)
            os.close(adopted)
            connection.close()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return json.loads(message)
        os.waitpid(between, 0)  # the parent of the fork is now who asked for it
        pid = os.read(told, 64)
        for each in (*streams, adopted, go_on, told, tell):
            os.close(each)
        connection.send(pid)


def _enter(namespace: str) -> None:
    """What `ip netns exec` does: the network, and a /sys that shows it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: Any, *arguments: Any) -> None:
        if function(*arguments):
            raise OSError(ctypes.get_errno(), f"namespace {namespace}: {os.strerror(ctypes.get_errno())}")

    with open(f"/run/netns/{namespace}") as there:
        call(libc.setns, there.fileno(), _CLONE_NEWNET)
    call(libc.unshare, _CLONE_NEWNS)
    call(libc.mount, b"", b"/", b"none", _MS_REC | _MS_SLAVE, None)
    call(libc.umount2, b"/sys", _MNT_DETACH)
    call(libc.mount, namespace.encode(), b"/sys", b"sysfs", 0, None)


def _main() -> None:
    descriptor, program = sys.argv[1:]
    for name in _IMPORTED[program]:
        importlib.import_module(name)
    if not importlib.util.find_spec(program).submodule_search_locations:  # pyright: ignore
        importlib.import_module(program)
        del sys.modules[program]  # it is to run as __main__
    request = _serve(socket.socket(fileno=int(descriptor)))
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["environment"])
    os.umask(request["umask"])
    os.setpriority(os.PRIO_PROCESS, 0, request["nice"])
    os.chdir(request["directory"])
    sys.path[0] = os.getcwd()
    if request["namespace"]:
        _enter(request["namespace"])
    sys.argv[:] = request["words"]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
