# SPDX-License-Identifier: Apache-2.0
"""A fork is like a process that Python has begun: what that would be is asked of one."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.net.forks import END_WITH_PARENT, Forks
from tests.support import zygote
from tests.support.namespaces import Namespaces
from tests.support.needs import needs_mininet, needs_root
from tests.support.paths import ROOT

ARGV = (sys.executable, "-m", "tests.support.introspection")
PATIENCE = 60


@pytest.fixture(autouse=True)
def _found_from_any_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))


def described(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    answer = json.loads(done.stdout)
    for name in ("LINES", "COLUMNS"):  # readline sets them behind Python's back
        answer["environment"].pop(name, None)
    return answer


def both(*argv: str, more: str = "", **options: Any) -> tuple["subprocess.CompletedProcess[str]", ...]:
    """What a process says that is begun, and what a fork says, each to its end."""

    def end(start: Callable[..., "subprocess.Popen[str]"]) -> "subprocess.CompletedProcess[str]":
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        with start([*argv], text=True, **streams, **options) as process:
            output, errors = process.communicate(more, PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    return end(subprocess.Popen), end(zygote.start)


def test_a_fork_has_what_a_process_has_that_is_begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    zygote.run(ARGV, PATIENCE)  # what follows is not of the time when the first was forked
    monkeypatch.setenv("SET_SINCE", "ü")
    before = os.umask(0o027)
    try:
        begun, forked = both(*ARGV, "some", "words", more="typed", cwd=tmp_path)
    finally:
        os.umask(before)
    assert forked.returncode == begun.returncode == 0
    assert forked.stderr == begun.stderr == "no more to say\n"
    there, here = described(begun), described(forked)
    assert {name: here[name] for name in there if here[name] != there[name]} == {}
    assert (here["typed"], here["parent"], here["environment"]["SET_SINCE"]) == ("typed", os.getpid(), "ü")


@needs_root
def test_a_fork_in_a_namespace_has_its_network() -> None:
    name = f"glz{os.getpid()}"
    with Namespaces(name) as network:
        begun, forked = both(*network.inside(name), *ARGV)
    there, here = described(begun), described(forked)
    assert os.readlink("/proc/self/ns/mnt") not in (here.pop("mounts"), there.pop("mounts"))  # each has its own
    assert here == there
    assert here["interfaces"] == ["lo"]


@needs_root
@needs_mininet
def test_a_fork_in_a_host_of_mininet_has_what_the_host_has(tmp_path: Path) -> None:
    with subprocess.Popen(["mnexec", "-dnp", "sleep", "60"], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        pid = host.stdout.readline().strip("\1\n")  # it says when it has namespaces of its own
        try:
            begun, forked = both("mnexec", "-a", pid, *ARGV, cwd=tmp_path)
        finally:
            host.kill()
    there, here = described(begun), described(forked)
    assert (here.pop("descriptors"), len(there.pop("descriptors"))) == ([], 2)  # mnexec leaves the namespaces open
    assert here == there
    assert here["mounts"] != os.readlink("/proc/self/ns/mnt")
    assert here["network"] != os.readlink("/proc/self/ns/net")


def test_a_fork_has_a_session_of_its_own_and_ends_with_its_parent_if_it_is_to() -> None:
    begun, forked = both(*END_WITH_PARENT, *ARGV, start_new_session=True)
    there, here = described(begun), described(forked)
    for name in ("session", "group"):
        assert os.getsid(0) not in (here.pop(name), there.pop(name))
    assert here == there
    assert here["signal at the end of its parent"] == signal.SIGKILL


def test_a_fork_ends_with_who_has_asked_for_it() -> None:
    asks = """if True:
        import subprocess, sys
        from lab.net.forks import END_WITH_PARENT, Forks

        forks = Forks({"tests.support.introspection": ()})
        argv = [*END_WITH_PARENT, sys.executable, "-m", "tests.support.introspection", "wait"]
        with forks.start(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as fork:
            fork.stdout.readline()
            print(fork.pid, flush=True)
            fork.wait()
    """
    with subprocess.Popen([sys.executable, "-c", asks], cwd=ROOT, stdout=subprocess.PIPE, text=True) as asker:
        assert asker.stdout is not None
        pid = int(asker.stdout.readline())
        fork = os.pidfd_open(pid)
        asker.kill()
    assert select.select([fork], [], [], PATIENCE)[0], f"{pid} has outlived who asked for it"
    os.close(fork)


@needs_root
def test_a_fork_has_the_priority_of_who_asks() -> None:
    zygote.run(ARGV, PATIENCE)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, before - 3)
    try:
        begun, forked = both(*ARGV)
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)
    assert described(forked)["nice"] == described(begun)["nice"] == before - 3


@pytest.mark.parametrize(("words", "code"), [(("exit", "3"), 3), (("raise",), 1)])
def test_a_fork_ends_as_a_process_does(words: tuple[str, ...], code: int) -> None:
    begun, forked = both(*ARGV, *words)
    assert forked.returncode == begun.returncode == code
    assert forked.stderr.splitlines()[-1:] == begun.stderr.splitlines()[-1:]


def test_a_fork_that_is_killed_says_so() -> None:
    with zygote.start([*ARGV, "wait"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        assert process.poll() is None
        process.kill()
        assert process.wait(PATIENCE) == -9


@pytest.fixture
def own() -> Iterator[Forks]:
    made = Forks({ARGV[2]: ()}, directory=ROOT)
    yield made
    made.close()


@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_process_that_does_not_fork_any_more_is_named_and_replaced(own: Forks, number: signal.Signals) -> None:
    assert own.start([*ARGV, "exit", "0"], stdout=subprocess.DEVNULL).wait(PATIENCE) == 0
    process, asker = own._askers[ARGV[2]]
    asker.settimeout(0.2)
    process.send_signal(number)
    with pytest.raises(ChildProcessError, match=rf"the process that forks {ARGV[2]} (does not answer|has ended)"):
        own.start(ARGV)
    assert process.poll() is not None
    assert own.start([*ARGV, "exit", "0"], stdout=subprocess.DEVNULL).wait(PATIENCE) == 0


def test_a_process_that_can_not_be_forked_keeps_nobody_waiting() -> None:
    own = Forks({ARGV[2]: ("tests.lab.net.unforkable",)}, directory=ROOT)
    try:
        for _ in range(2):
            with pytest.raises(ChildProcessError, match=f"{ARGV[2]} could not be forked"):
                own.start(ARGV)
    finally:
        own.close()


def test_what_needs_a_process_of_its_own_gets_one() -> None:
    done = zygote.run(ARGV, PATIENCE, env={**os.environ, "OTHER": "1"}, stdin=subprocess.DEVNULL)
    assert json.loads(done.stdout)["environment"]["OTHER"] == "1"
    less = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = zygote.run(ARGV, PATIENCE, env=less, stdin=subprocess.DEVNULL)
    assert "HOME" not in json.loads(done.stdout)["environment"]
