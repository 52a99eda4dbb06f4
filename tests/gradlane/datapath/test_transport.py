# SPDX-License-Identifier: Apache-2.0
"""The sockets' loop: several jobs on one set of sockets, both families, and what the kernel refuses. It needs root."""

import contextlib
import ctypes
import errno
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from ipaddress import ip_address
from pathlib import Path

import numpy as np
import pytest
from gradlane._core import ffi, lib

from gradlane import job as jobs
from gradlane import wire
from gradlane.datapath import sockets, steering
from gradlane.datapath.engine import Engine
from gradlane.datapath.transport import Transport
from gradlane.errors import AgentError
from gradlane.job.agreement import Agreement
from gradlane.job.costs import Conditions
from tests.support.needs import needs_root
from tests.support.paths import ROOT

pytestmark = needs_root
FOUR, SIX = ("10.47.0.1", "10.47.0.2"), ("fd47::1", "fd47::2")
CLONE_NEWNET = 0x40000000
SECONDS = 60.0


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


@pytest.fixture(autouse=True)
def _network() -> Iterator[None]:
    """This thread is in a network of its own; addresses of both families are on its loopback interface."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open("/proc/thread-self/ns/net") as before:
        assert libc.unshare(CLONE_NEWNET) == 0
        try:
            ip("link", "set", "lo", "mtu", "1500", "up")
            for address in FOUR:
                ip("addr", "add", f"{address}/32", "dev", "lo")
            for address in SIX:
                ip("addr", "add", f"{address}/128", "dev", "lo", "nodad")
            yield
        finally:
            assert libc.setns(before.fileno(), CLONE_NEWNET) == 0


@contextlib.contextmanager
def transports(*addresses: Sequence[str], runners: int = 1) -> Iterator[list[Transport]]:
    """A transport for each host's addresses, with so many runners."""

    def failed(reason: str) -> None:
        raise AssertionError(reason)

    started: list[Transport] = []
    try:
        for own in addresses:
            started.append(Transport(map(ip_address, own), failed, realtime=False, runners=runners))
        yield started
    finally:
        for transport in started:
            transport.close()


class Trial:
    """A job of two hosts, with an engine at each."""

    def __init__(
        self, hosts: Sequence[Transport], addresses: Sequence[str], number: int = 1, slice_bytes: int = 1000, more=""
    ) -> None:
        text = f'[job]\nname = "job{number}"\nid = {number}\nkey = "{"5a" * 16}"\n'
        for rank, address in enumerate(addresses):
            text += f'[[worker]]\nrank = {rank}\nhost = "h{rank}"\naddress = "{address}"\n'
        text += f'[transport]\nrate = "1gbit"\n{more}\n[slots]\nbase = 0\nmask = 4095\n'
        parsed = jobs.parse(text, "job.toml")
        agreement = Agreement(secrets.randbits(64), number << 24, slice_bytes, Conditions(1e9, 1e-4))
        self.done = [0, 0]
        self.engines: list[Engine] = []
        for rank, host in enumerate(hosts):
            self.engines.append(Engine(host, parsed, rank, agreement))

    def take_events(self) -> None:
        for rank, engine in enumerate(self.engines):
            with engine.locked() as pointer:
                while (event := lib.gl_next_event(pointer)) != ffi.NULL:
                    self.done[rank] += event.kind == lib.GL_EVENT_COMPLETED
                    lib.gl_event_free(event)

    def submit(self, elements: int = 100_000, step: int = 0) -> None:
        generator = np.random.default_rng(step)
        self.values = [generator.standard_normal(elements).astype(np.float32) for _ in self.engines]
        self.results = [np.zeros(elements, np.float32) for _ in self.engines]
        for engine, value, result in zip(self.engines, self.values, self.results, strict=True):
            facts = {
                "step": step,
                "collective": lib.GL_ALL_REDUCE,
                "algorithm": lib.GL_DIRECT,
                "element_type": wire.ElementType.FLOAT32,
                "reduction": lib.GL_MEAN,
                "elements": elements,
                "in": ffi.from_buffer("uint8_t[]", value),
                "out": ffi.from_buffer("uint8_t[]", result),
            }
            with engine.locked() as pointer:
                assert lib.gl_submit(pointer, ffi.new("gl_submission *", facts), lib.gl_now()) == 0
            lib.gl_runner_wake(engine.runner)

    def check(self) -> None:
        for result in self.results:
            np.testing.assert_array_equal(result, (self.values[0] + self.values[1]) / np.float32(2))


def wait(trials: Sequence[Trial], steps: int = 1) -> None:
    """Until all hosts have completed so many all-reduces of each job."""
    deadline = time.monotonic() + SECONDS
    while any(trial.done != [steps, steps] for trial in trials):
        assert time.monotonic() < deadline, [engine.statistics() for trial in trials for engine in trial.engines]
        for trial in trials:
            trial.take_events()
        time.sleep(0.005)


def test_two_jobs_of_two_families_share_the_transport() -> None:
    with transports((FOUR[0], SIX[0]), (FOUR[1], SIX[1])) as hosts:
        trials = [Trial(hosts, FOUR, 1), Trial(hosts, SIX, 2)]
        for trial in trials:
            trial.submit()
        wait(trials)
        for trial in trials:
            trial.check()
            assert all(engine.statistics()["slices_delivered"] > 0 for engine in trial.engines)
        for host in hosts:
            counts = host.statistics()
            assert (counts["foreign"], counts["send_errors"], counts["socket_drops"]) == (0, 0, 0)


def test_a_job_goes_on_after_the_other_has_ended() -> None:
    with transports(FOUR[:1], FOUR[1:]) as hosts:
        first, second = Trial(hosts, FOUR, 1), Trial(hosts, FOUR, 2)
        first.submit()
        wait([first])
        for engine in first.engines:
            engine.close()
        second.submit()
        wait([second])
        second.check()


def test_the_loop_has_no_turn_while_a_job_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or it would work on an engine that has left the port already, and crash."""
    had_a_turn = threading.Event()

    class Watched:
        """The core, which tries for the loop before it forgets the engine."""

        def __getattr__(self, name: str) -> object:
            return getattr(lib, name)

        def gl_runner_remove(self, runner: object, pointer: object) -> None:
            def turn() -> None:
                lib.gl_runner_lock(runner)
                had_a_turn.set()
                lib.gl_runner_unlock(runner)

            loops.append(threading.Thread(target=turn))
            loops[0].start()
            assert not had_a_turn.wait(0.2)
            lib.gl_runner_remove(runner, pointer)

    loops: list[threading.Thread] = []
    with transports(FOUR[:1], FOUR[1:]) as hosts:
        trial = Trial(hosts, FOUR)
        trial.submit()
        wait([trial])
        monkeypatch.setattr("gradlane.datapath.engine.lib", Watched())
        trial.engines[0].close()
        loops[0].join()
    assert had_a_turn.is_set()


def test_datagrams_of_no_job_are_counted_and_change_nothing() -> None:
    with transports(FOUR[:1], FOUR[1:]) as hosts:
        trial = Trial(hosts, FOUR)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            unknown = wire.Header(kind=wire.Kind.DATA, job=9, source=1, message=0, token=0).pack()
            for datagram in (b"", b"short", unknown, unknown + bytes(100)):
                sender.sendto(datagram, (FOUR[0], wire.UDP_PORT))
        trial.submit()
        wait([trial])
        trial.check()
        assert hosts[0].statistics()["foreign"] == 4
        assert hosts[1].statistics()["foreign"] == 0
        assert trial.engines[0].statistics()["bad_job"] == 0


def test_a_watched_descriptor_may_be_taken_away_by_its_own_callback_and_by_another() -> None:
    with transports(FOUR[:1]) as (host,):
        called: list[int] = []
        over = threading.Event()
        descriptors = [os.eventfd(1), os.eventfd(1)]

        @ffi.callback("void(void *, uint64_t)")
        def ready(context: object, now: int) -> None:
            del context, now
            called.append(1)
            for descriptor in descriptors:
                lib.gl_runner_unwatch(host.loops[0].runner, descriptor)
            over.set()

        with host.loops[0].locked():  # so that both are readable when the thread looks
            for descriptor in descriptors:
                assert lib.gl_runner_watch(host.loops[0].runner, descriptor, ready, ffi.NULL) == 0
        assert over.wait(SECONDS)
        trial_of_the_loop = threading.Event()

        @ffi.callback("void(void *, uint64_t)")
        def later(context: object, now: int) -> None:
            del context, now
            lib.gl_runner_unwatch(host.loops[0].runner, third)
            trial_of_the_loop.set()

        third = os.eventfd(1)
        assert lib.gl_runner_watch(host.loops[0].runner, third, later, ffi.NULL) == 0
        assert trial_of_the_loop.wait(SECONDS), "the loop goes on"
        assert called == [1], "the other one was taken away before its turn"
        for descriptor in (*descriptors, third):
            os.close(descriptor)


def test_a_descriptor_that_can_not_be_watched_is_refused() -> None:
    with transports(FOUR[:1]) as (host,), open(__file__) as file:
        assert lib.gl_runner_socket(host.loops[0].runner, file.fileno()) == -1


def test_what_does_not_fit_is_sent_again_in_batches_once_it_does() -> None:
    """Neither EINVAL for a batch nor EMSGSIZE for a datagram turns segmentation off for good."""
    with transports(FOUR[:1], FOUR[1:]) as hosts:
        trial = Trial(hosts, FOUR, slice_bytes=4000)
        trial.submit()
        deadline = time.monotonic() + SECONDS
        while not all(engine.statistics()["send_errno"] == errno.EMSGSIZE for engine in trial.engines):
            assert time.monotonic() < deadline
        assert hosts[0].statistics()["unsegmented"] > 0
        ip("link", "set", "lo", "mtu", "9000")
        wait([trial])
        trial.check()
        before = hosts[0].statistics()
        trial.submit(step=1)
        wait([trial], 2)
        after = hosts[0].statistics()
        assert after["unsegmented"] == before["unsegmented"]
        assert after["send_errors"] == before["send_errors"]


REFUSING = """
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
int sendmmsg(int fd, struct mmsghdr *m, unsigned count, int flags) {
    for (unsigned i = 0; i < count; i++)
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m[i].msg_hdr); c; c = CMSG_NXTHDR(&m[i].msg_hdr, c))
            if (c->cmsg_level == IPPROTO_UDP) {
                if (i) return syscall(SYS_sendmmsg, fd, m, i, flags);
                errno = EIO;
                return -1;
            }
    return syscall(SYS_sendmmsg, fd, m, count, flags);
}
"""


def test_an_interface_without_checksum_offload_gets_datagrams_one_by_one(tmp_path: Path) -> None:
    source, library = tmp_path / "refusing.c", tmp_path / "refusing.so"
    source.write_text("#define _GNU_SOURCE\n" + REFUSING)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    script = (
        "import tests.gradlane.datapath.test_transport as t\n"
        "with t.transports(t.FOUR[:1], t.FOUR[1:]) as hosts:\n"
        "    trial = t.Trial(hosts, t.FOUR)\n"
        "    trial.submit()\n"
        "    t.wait([trial])\n"
        "    trial.check()\n"
        "    for host in hosts:\n"
        "        counts = host.statistics()\n"
        "        assert counts['unsegmented'] == 1, counts\n"
        "        assert counts['send_errors'] == 0, counts\n"
    )
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    environment["PYTHONPATH"] = f"{ROOT}:{environment.get('PYTHONPATH', '')}"
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("group", "own"), [("239.47.0.1", "10.47.1.1"), ("ff05::4747", "fd48::1")])
def test_a_multicast_group_is_joined_on_the_interface_of_the_address(group: str, own: str) -> None:
    ip("link", "add", "here", "type", "veth", "peer", "name", "there")
    ip("link", "set", "here", "up")
    ip("link", "set", "there", "up")
    ip("addr", "add", f"{own}/{24 if '.' in own else 64}", "dev", "here", *(["nodad"] if ":" in own else []))
    fallbacks: list[str] = []
    with sockets.join(ip_address(group), wire.UDP_PORT, ip_address(own), fallbacks):
        assert group in subprocess.check_output(["ip", "maddr", "show", "dev", "here"], text=True)
    assert group not in subprocess.check_output(["ip", "maddr", "show", "dev", "here"], text=True)


def test_two_jobs_share_a_multicast_group_and_it_is_free_again_at_once() -> None:
    ip("link", "add", "here", "type", "veth", "peer", "name", "there")
    ip("link", "set", "here", "up")
    ip("addr", "add", "10.47.1.1/24", "dev", "here")
    group, own = ip_address("239.47.0.1"), ip_address("10.47.1.1")
    with transports(["10.47.1.1"]) as (host,):
        for _ in range(20):
            loop = host.loops[0]
            loop.join(group, own)
            loop.join(group, own)
            loop.leave(group)
            with pytest.raises(Exception, match="in use"):
                sockets.bind(group, wire.UDP_PORT, [])
            loop.leave(group)
            sockets.bind(group, wire.UDP_PORT, []).close()


def test_what_the_kernel_refuses_is_told() -> None:
    """Without CAP_SYS_NICE and CAP_NET_ADMIN."""
    small = int(Path("/proc/sys/net/core/rmem_max").read_text()) < sockets.BUFFER_BYTES
    script = (
        "import ipaddress, logging, gradlane.datapath.transport as t\n"
        "logging.basicConfig()\n"
        f"host = t.Transport([ipaddress.ip_address('{FOUR[0]}')], print)\n"
        "told = host.statistics()['fallbacks']\n"
        "host.close()\n"
        "assert any('CAP_SYS_NICE' in line for line in told), told\n"
        f"assert any('rmem_max' in line for line in told) == {small}, told\n"
    )
    command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--reuid=65534", "--regid=65534", "--clear-groups"]
    done = subprocess.run([*command, sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("CAP_SYS_NICE") == 1


def test_jobs_are_spread_over_runners_and_each_gets_what_is_its_own() -> None:
    with transports((FOUR[0], SIX[0]), (FOUR[1], SIX[1]), runners=3) as hosts:
        trials = [Trial(hosts, SIX if number % 2 else FOUR, number) for number in range(1, 6)]
        for host in hosts:
            assert sorted(host.statistics()["runners"]) == [1, 2, 2]
        for step in range(3):
            for trial in trials:
                trial.submit(step=step)
            wait(trials, step + 1)
            for trial in trials:
                trial.check()
        for host in hosts:
            counts = host.statistics()
            assert (counts["foreign"], counts["send_errors"], counts["socket_drops"]) == (0, 0, 0)
            assert all(int(loop.counts().received) > 0 for loop in host.loops)
        for trial in trials[:4]:
            for engine in trial.engines:
                engine.close()
        again = Trial(hosts, FOUR, 1)  # where there is room now
        again.submit()
        wait([again])
        again.check()
        for host in hosts:
            assert sorted(host.statistics()["runners"]) == [0, 1, 1]


def test_two_agents_do_not_share_a_port_though_its_sockets_do() -> None:
    with transports(FOUR[:1], runners=2), pytest.raises(AgentError, match="in use"), transports(FOUR[:1], runners=2):
        pass


def test_one_runner_where_the_kernel_can_not_steer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(steering, "steer", refuse)
    with transports(FOUR[:1], FOUR[1:], runners=2) as hosts:
        trials = [Trial(hosts, FOUR, number) for number in (1, 2)]
        for trial in trials:
            trial.submit()
        wait(trials)
        assert all(len(host.loops) == 1 for host in hosts)
        assert all("one runner instead of 2" in host.statistics()["fallbacks"][-1] for host in hosts)
