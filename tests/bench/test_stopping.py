# SPDX-License-Identifier: Apache-2.0
"""A benchmark that is ended by SIGTERM in the midst of its work leaves no namespace, interface or process."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.needs import needs, needs_mininet, needs_root

# In a network and a /run of its own, so that what is left over can only be the benchmark's.
ISOLATED = (
    "ip link set lo up; mount -t tmpfs tmpfs /run; mkdir /run/netns; mount -t sysfs sysfs /sys; "
    '"$@" & echo $!; wait $! && status=0 || status=$?; ls /run/netns /sys/class/net; exit $status'
)
PATIENCE = 180.0
_SAMPLE = ("agent.all_reduce", "switch.soak", "transport.tails")  # of hosts, of wires, and of Mininet

pytestmark = [
    pytest.mark.alone,
    needs_root,
    needs("ip", "ethtool"),
]


def children(pid: int) -> dict[int, str]:
    """The command lines of the children of a process."""
    found: dict[int, str] = {}
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                found[int(child)] = Path(f"/proc/{child}/cmdline").read_text().replace("\0", " ")
    return found


def runs(pid: int) -> bool:
    """Whether there is such a process, other than one that has ended and waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("words", "busy"),
    [
        ("agent.all_reduce --hosts 2", "all_reduce_worker gradlane 1"),
        ("transport.fairness", "fairness_worker job 1"),
        ("switch.packet_rate", "switch_load send host-1"),
        ("switch.aggregation", "sum_load 2.0"),
        ("switch.control_plane", "probe host-1"),
        ("switch.shaping", "switch_load pace host-1"),
        ("switch.soak", "switch_load send host-2"),
        pytest.param(
            "transport.tails --senders 2",
            "tails_worker gradlane 2",
            marks=needs_mininet,
        ),
    ],
    ids=lambda value: value.partition(" ")[0],
)
def test_nothing_is_left_of_a_benchmark_that_is_told_to_stop(
    words: str, busy: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`busy`: what one of its processes is called that works in a namespace."""
    script, *options = words.split()
    if script not in _SAMPLE and not request.config.getoption("--thorough"):
        pytest.skip("each way to build the network has another case; --thorough runs all")
    command = ["unshare", "--net", "--mount", "sh", "-ec", ISOLATED, "sh", sys.executable, "-m", f"bench.{script}"]
    shell = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        deadline = time.monotonic() + PATIENCE
        while busy not in " ".join((started := children(pid)).values()):
            assert shell.poll() is None, shell.communicate()
            assert time.monotonic() < deadline, started
            time.sleep(0.05)
        os.kill(pid, signal.SIGTERM)
        said, errors = shell.communicate(timeout=PATIENCE)
    finally:
        # They have real-time priority: a test that fails is not to leave them to the tests after it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 128 + signal.SIGTERM, errors
    assert "stopped by SIGTERM: tearing down" in errors
    assert "Traceback" not in errors
    assert said.split()[-3:] == ["/run/netns:", "/sys/class/net:", "lo"]  # after what the benchmark has said
    while left := [line for child, line in started.items() if runs(child)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
