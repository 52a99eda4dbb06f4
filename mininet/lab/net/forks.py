# SPDX-License-Identifier: Apache-2.0
"""Starts Python programs as forks of processes that have imported what they need: PyTorch alone takes seconds.

    python -m lab.net.forks DESCRIPTOR PROGRAM MODULE ...        the process that forks, one for each program

A fork is like a process that Python has begun with `-m PROGRAM`: a child of who asks for it, with arguments,
environment, directory, descriptors, priority, session and namespaces of its own. It is forked where no other thread
runs.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Before a command line: the kernel kills that process when who started it dies (PR_SET_PDEATHSIG, prctl(2)).
END_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")

_OPTIONS = {"stdin", "stdout", "stderr", "text", "errors", "cwd", "env", "start_new_session"}  # that a fork may have
_NAMESPACES = {("ip", "netns", "exec"), ("mnexec", "-a")}  # before the name of one, or the pid of who is in it
_ENV, _CWD, _PIPES, _NEW_SESSION = 6, 5, slice(10, 16), 21  # of subprocess' own arguments
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CLONE_NEWNS, _CLONE_NEWNET = 0x20000, 0x40000000
_MS_REC, _MS_SLAVE, _MNT_DETACH = 0x4000, 0x80000, 2
_LARGEST = 1 << 17  # bytes of a request
_FORK_SECONDS = 120.0  # that a fork may take, with what is imported before the first
_STREAMS = 3
_NONE = b"none"  # in place of a pid

_one_at_a_time = threading.Lock()


class Forks:
    """The programs that start as forks, with the modules that each imports when it runs, beside what it does at once.

    The processes that fork have this `environment` beside their starter's, and begin in `directory`. They end with
    this process at the latest.
    """

    def __init__(
        self,
        imported: Mapping[str, Sequence[str]],
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        self._imported = imported
        # OpenBLAS's threads would not be in the forks.
        self._environment = {"OPENBLAS_NUM_THREADS": "1", **(environment or {})}
        self._directory = directory
        self._askers: dict[str, tuple[subprocess.Popen[bytes], socket.socket]] = {}
        atexit.register(self.close)

    def start(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
        """As `subprocess.Popen`: a fork where `argv` is one of the programs, maybe inside of a host. What is to have
        another environment, user or limit is a process of its own from the beginning."""
        words = list(argv)
        ends_with_parent = tuple(words[: len(END_WITH_PARENT)]) == END_WITH_PARENT
        own = words[len(END_WITH_PARENT) * ends_with_parent :]
        within: list[str] = []
        for words_before in _NAMESPACES:
            if tuple(own[: len(words_before)]) == words_before:
                within, own = own[: len(words_before) + 1], own[len(words_before) + 1 :]
                break
        ours = own[:2] == [sys.executable, "-m"] and own[2] in self._imported
        if ours and self._allows({name: value for name, value in options.items() if value is not None}):
            request = {"words": own[2:], "within": within, "parent": os.getpid() if ends_with_parent else 0}
            return _Fork(words, self, request, **options)
        return subprocess.Popen(words, **options)

    def ask(self, request: Mapping[str, Any], streams: Sequence[int]) -> int:
        """The pid of a new fork, with these as its standard streams. Raises ChildProcessError if there is none."""
        program = request["words"][0]
        with _one_at_a_time, _adopting():
            asker = self._asker(program)
            try:
                socket.send_fds(asker, [json.dumps(request).encode()], streams)
                answer = asker.recv(64)
            except OSError as error:
                self._end(program)  # what it may still say would be taken for the answer to another
                raise ChildProcessError(f"the process that forks {program} does not answer: {error}") from error
            if not answer:
                self._end(program)
                raise ChildProcessError(f"the process that forks {program} has ended")
        if answer == _NONE:
            raise ChildProcessError(f"{program} could not be forked: the standard error of what forks says why")
        return int(answer)

    def close(self) -> None:
        """Ends the processes that fork; what they have forked goes on."""
        for program in list(self._askers):
            self._end(program)

    def _end(self, program: str) -> None:
        process, asker = self._askers.pop(program)
        asker.close()
        process.kill()
        process.wait()

    def _allows(self, options: Mapping[str, Any]) -> bool:
        """Whether a fork can have these options of `subprocess.Popen`."""
        there = options.get("env", os.environ)
        differ = {name for name, _ in there.items() ^ os.environ.items()}
        return options.keys() <= _OPTIONS and all(
            name in there and there[name] == self._environment.get(name) for name in differ
        )

    def _asker(self, program: str) -> socket.socket:
        """The connection to the process that forks a program."""
        if program not in self._askers:
            mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            mine.settimeout(_FORK_SECONDS)
            with its:
                argv = [sys.executable, "-m", __name__, str(its.fileno()), program, *self._imported[program]]
                process = subprocess.Popen(
                    argv,
                    pass_fds=[its.fileno()],
                    cwd=self._directory,
                    env=os.environ | self._environment,
                    stdin=subprocess.DEVNULL,
                )
            self._askers[program] = process, mine
        return self._askers[program][1]


class _Fork(subprocess.Popen[Any]):
    """All that a Popen does, but for how its process comes to be."""

    def __init__(self, argv: list[str], forks: Forks, request: dict[str, Any], **options: Any) -> None:
        self._forks, self._request = forks, request
        super().__init__(argv, **options)

    def _execute_child(self, *given: Any) -> None:
        pipes = given[_PIPES]
        os.umask(umask := os.umask(0))  # there is no other way to see it
        request = {
            **self._request,
            "environment": dict(os.environ if given[_ENV] is None else given[_ENV]),
            "directory": os.fspath(given[_CWD] or os.getcwd()),
            "umask": umask,
            "nice": os.getpriority(os.PRIO_PROCESS, 0),
            "new_session": bool(given[_NEW_SESSION]),
        }
        streams = [own if own != -1 else number for number, own in enumerate((pipes[0], pipes[3], pipes[5]))]
        self.pid = self._forks.ask(request, streams)
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
        os.close(tell)  # else nothing would end the read where the one in between could not fork
        os.waitpid(between, 0)  # the parent of the fork is now who asked for it
        pid = os.read(told, 64)
        for each in (*streams, adopted, go_on, told):
            os.close(each)
        connection.send(pid or _NONE)


def _call(function: Any, *arguments: Any) -> None:
    if function(*arguments):
        raise OSError(ctypes.get_errno(), f"{function.__name__}: {os.strerror(ctypes.get_errno())}")


def _enter(within: Sequence[str]) -> None:
    """What `ip netns exec` does: the network, and a /sys that shows it; or `mnexec`: what a process sees."""
    libc = ctypes.CDLL(None, use_errno=True)

    def join(path: str, kind: int) -> None:
        with open(path) as there:
            _call(libc.setns, there.fileno(), kind)

    if within[0] == "mnexec":
        directory = os.getcwd()
        join(f"/proc/{within[-1]}/ns/net", _CLONE_NEWNET)
        join(f"/proc/{within[-1]}/ns/mnt", _CLONE_NEWNS)
        os.chdir(directory)
        return
    join(f"/run/netns/{within[-1]}", _CLONE_NEWNET)
    _call(libc.unshare, _CLONE_NEWNS)
    _call(libc.mount, b"", b"/", b"none", _MS_REC | _MS_SLAVE, None)
    _call(libc.umount2, b"/sys", _MNT_DETACH)
    _call(libc.mount, within[-1].encode(), b"/sys", b"sysfs", 0, None)


def _become(request: Mapping[str, Any]) -> None:
    """This fork gets what is its own."""
    if parent := request["parent"]:
        _call(ctypes.CDLL(None, use_errno=True).prctl, _PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it has died before
            os._exit(1)
    if request["new_session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.umask(request["umask"])
    os.setpriority(os.PRIO_PROCESS, 0, request["nice"])
    os.chdir(request["directory"])
    sys.path[0] = os.getcwd()
    if request["within"]:
        _enter(request["within"])


def _main() -> None:
    descriptor, program, *imported = sys.argv[1:]
    interrupted = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks, with whom this ends
    for name in imported:
        importlib.import_module(name)
    if not importlib.util.find_spec(program).submodule_search_locations:  # pyright: ignore
        importlib.import_module(program)
        del sys.modules[program]  # it is to run as __main__
    gc.collect()
    gc.freeze()  # else each fork looks through all modules again and again, and once more when it ends
    request = _serve(socket.socket(fileno=int(descriptor)))
    if request is None:
        return
    signal.signal(signal.SIGINT, interrupted)
    _become(request)
    sys.argv[:] = request["words"]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
