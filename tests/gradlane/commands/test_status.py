# SPDX-License-Identifier: Apache-2.0
"""`gradlane status` and `gradlane top`: what they show of a job, and in which form."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from pathlib import Path

import pytest

from gradlane.commands import view
from gradlane.ipc.status import AgentStatus, StragglerStatus
from tests.support.agents import GRADLANE, agents, command, loopback
from tests.support.communicators import training
from tests.support.members import job_file
from tests.support.paths import DOCS

COUNTS = {
    "slices_sent": 1000,
    "slices_repaired": 10,
    "slices_expected": 500,
    "slices_delivered": 495,
    "slices_lost": 5,
    "slices_late": 1,
    "slices_duplicate": 0,
    "budget_total": 50,
    "ecn_marked": 99,
    "bytes_sent": 1_250_000,
    "bytes_received": 125_000,
}


def status_of(peers: dict[str, dict[str, int]], since: float = 990.0, rate: int = 90_000_000) -> AgentStatus:
    """An agent with one job."""
    return {
        "version": "1",
        "addresses": ["10.0.1.2"],
        "pid": 1,
        "started": 0.0,
        "clients": 1,
        "ended": 0,
        "failed": 0,
        "log_lines_lost": 0,
        "limits": {},
        "jobs": {
            "trial": {
                "id": 7,
                "rank": 0,
                "state": "running",
                "since": since,
                "counts": {},
                "peers": {
                    rank: {"host": f"h{rank}", "address": "10.0.2.2", "rate": rate, "srtt_us": 1250, "counts": counts}
                    for rank, counts in peers.items()
                },
            }
        },
    }


def test_rates_and_fractions_of_a_peer() -> None:
    job = status_of({"1": COUNTS})["jobs"]["trial"]
    (flow,), _, _ = view.flows(job, None, 10.0)
    assert (flow.out, flow.into) == (1e6, 1e5)
    assert (flow.repaired, flow.loss, flow.budget, flow.late, flow.marked) == (0.01, 0.01, 0.1, 0.002, 0.2)
    assert (flow.pace, flow.rtt) == (90e6, 0.00125)


def test_top_shows_what_happened_since_the_last_look_also_after_a_new_start() -> None:
    later = {key: value * 2 for key, value in COUNTS.items()} | {"slices_lost": 5}
    before, after = status_of({"1": COUNTS})["jobs"]["trial"], status_of({"1": later})["jobs"]["trial"]
    (flow,), _, _ = view.flows(after, before, 1.0)
    assert (flow.out, flow.loss, flow.repaired) == (1e7, 0.0, 0.01)
    (again,), _, _ = view.flows(before, after, 1.0)  # counts went down: the job was joined anew
    assert again.out == 1e7


def test_a_peer_that_is_near_its_budget_stands_out_and_rows_are_sorted() -> None:
    full = COUNTS | {"slices_lost": 48}
    lines = view.agent_lines(status_of({"1": COUNTS, "2": full}), None, 1000.0, sort="lost %")
    rows = [line for line in lines if line.text.startswith("  rank")]
    assert [(row.text.split()[1], row.look) for row in rows] == [("2", "warning"), ("1", "")]


def test_who_is_late_silent_or_not_there_is_told() -> None:
    status = status_of({"1": COUNTS, "2": COUNTS, "3": {}})
    job = status["jobs"]["trial"]
    job["late"] = "rank 1 did not start it"
    job["peers"]["2"] |= {"control": "silent", "heard_seconds": 4.2}
    job["peers"]["3"] |= {"control": "none"}
    found = {line.text: line.look for line in view.agent_lines(status, None, 1000.0)}
    for words in ("rank 1 did not start it", "h2 10.0.2.2, silent for 4 s", "h3 10.0.2.2, not connected"):
        assert [look for text, look in found.items() if words in text] == ["warning"]


def test_stragglers_are_named_with_the_evidence_and_so_is_who_owns_what() -> None:
    status = status_of({"1": COUNTS})
    job = status["jobs"]["trial"]
    first: StragglerStatus = {
        "rank": 1, "name": "rank 1 (h1, 10.0.2.2)", "straggler": True,
        "steps": 32, "late_steps": 30, "low": 0.29, "median": 0.3, "high": 0.31, "link": None,
    }  # fmt: skip
    second: StragglerStatus = {**first, "name": "rank 2 (h2, 10.0.3.2)", "straggler": False, "late_steps": 3}
    job["stragglers"] = [first, second]
    third: StragglerStatus = {**second, "name": "rank 0 (h0, 10.0.1.2)", "steps": 0, "late_steps": 0, "link": 48.66e6}
    fourth: StragglerStatus = {**first, "name": "rank 5 (h5, 10.0.6.2)", "link": 1e6}
    job["stragglers"] += [third, fourth]
    job["ownership"] = {
        "ranks": [0, 1, 2], "shares": [0.5, 0, 0.5], "first": 40, "reason": "rank 1 is late", "algorithm": "direct",
        "straggler": None, "least": 0,
    }  # fmt: skip
    found = {line.text: line.look for line in view.agent_lines(status, None, 1000.0)}
    by = "by 300 ms (290 to 310) in"
    assert found[f"  late: rank 1 (h1, 10.0.2.2), {by} 30 of the last 32 steps: a straggler"] == "warning"
    assert found[f"  late: rank 2 (h2, 10.0.3.2), {by} 3 of the last 32 steps"] == ""
    assert found["  slow: rank 0 (h0, 10.0.1.2), its link carries 48.7 Mbit/s"] == "warning"
    assert (
        f"  late: rank 5 (h5, 10.0.6.2), {by} 30 of the last 32 steps; its link carries 1 Mbit/s: a straggler" in found
    )
    assert "  plan from step 40 on: direct, owners rank 1 0%, all others 50% each (rank 1 is late)" in found
    job["ownership"]["shares"] = [0.33, 0.33, 0.33]
    lines = [line.text for line in view.agent_lines(status, None, 1000.0)]
    assert "  plan from step 40 on: direct, owners 33% each (rank 1 is late)" in lines
    job["ownership"]["algorithm"], job["ownership"]["straggler"], job["ownership"]["least"] = "stragglar", 1, 12_000
    lines = [line.text for line in view.agent_lines(status, None, 1000.0)]
    start = "  plan from step 40 on: stragglar without rank 1 from 12 kB on, else direct, owners 33% each"
    assert any(line.startswith(start) for line in lines)
    job["ownership"]["reason"] = ""
    assert not any("plan from" in line.text for line in view.agent_lines(status, None, 1000.0))


def test_who_sums_is_told_and_stands_out_where_it_should_be_a_switch() -> None:
    status = status_of({"1": COUNTS})
    job = status["jobs"]["trial"]
    job["counts"] = {
        "summed_bytes": 25_000_000, "sums_sent": 1000, "sums_repaired": 5, "sums_clipped": 7, "sum_reruns": 4,
        "sums_left_out": 20,
    }  # fmt: skip
    job["sums"] = {
        "by_switch": True, "reason": "as the job file says", "since": 995.0, "generation": 9, "halts": 3,
        "fallbacks": 2, "share": 0.5,
    }  # fmt: skip
    found = {line.text: line.look for line in view.agent_lines(status, None, 1000.0, 10.0)}
    much = (
        "20.0 Mbit/s of gradients by the switch, 50% of all bytes so far; 0.50% of its slices sent again, 7 elements "
        "clipped; 2.00% left out of sums within the budget; 4 steps run again by hosts, which took over 2 time(s)"
    )
    assert found[f"  the switch sums, for 5 s (as the job file says): {much}"] == ""
    job["sums"]["by_switch"], job["sums"]["reason"] = False, "it is gone"
    found = {line.text: line.look for line in view.agent_lines(status, status, 1000.0, 10.0)}
    (line,) = [text for text in found if text.startswith("  hosts sum, no switch, for 5 s (it is gone): 0.0 Mbit/s")]
    assert found[line] == "warning"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (61, "1 min 1 s"), (3600, "1 h 0 min"), (90061, "1 d 1 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert view.duration(seconds) == text


def test_status_and_top_of_a_running_job(tmp_path: Path) -> None:
    file = job_file(tmp_path, loopback(2), lines="[loss]\npush = 0.1")
    with agents(tmp_path, loopback(2)) as hosts, training(file, hosts):
        found = json.loads(command("status", "--json", "--socket", hosts[0].socket, check=True).stdout)
        job = found["jobs"]["trial"]
        assert (found["addresses"], job["rank"], job["state"]) == ([hosts[0].address], 0, "running")
        peer = job["peers"]["1"]
        assert (peer["host"], peer["address"]) == ("h1", hosts[1].address)
        # Two steps of 100,000 elements: half is sent and half received as contributions, and so are the results.
        assert peer["counts"]["bytes_sent"] >= 2 * 2 * 200_000
        assert peer["counts"]["slices_delivered"] + peer["counts"]["slices_lost"] == peer["counts"]["slices_expected"]
        assert job["classes"][0]["counts"] == peer["counts"]  # one class, one peer
        assert job["classes"][0]["push"] == 0.1
        for arguments in (["status"], ["top", "--once", "--interval", "0.2"]):
            shown = command(*arguments, "--socket", hosts[0].socket, check=True).stdout
            assert "job trial: rank 0, running, started " in shown
            (row,) = [line.split() for line in shown.splitlines() if line.startswith("  rank 1")]
            assert row[:4] == ["rank", "1", "h1", hosts[1].address]
            assert "others" in shown
            assert "budget used %" in shown
        assert row[4:6] == ["0.0", "0.0"]  # nothing happened while top looked


def test_the_page_shows_what_top_prints(tmp_path: Path) -> None:
    """Line by line, of a job like that of docs/agent.md; words are the same, and any numbers and units are."""
    lines = "[loss]\npush = 0.03\n[[loss.classes]]\nlayers = [0, 1]"
    page = (DOCS / "agent.md").read_text()
    [shown] = re.findall(r"^```text\n(agent .*?)^```", page, re.MULTILINE | re.DOTALL)
    with agents(tmp_path, loopback(3)) as hosts, training(job_file(tmp_path, loopback(3), lines=lines), hosts):
        printed = command("top", "--once", "--socket", hosts[0].socket, check=True).stdout

    def words(text: str) -> list[str]:
        plain = re.sub(r"\b\d+(?:\.\d+)*(?: ?(?:[kMG]?B|us|ms|s|[kmg]?bit)\b)?", "N", text)
        plain = re.sub(r"(?<= )-(?= |$)", "N", plain, flags=re.MULTILINE)
        return [" ".join(line.split()) for line in plain.splitlines() if line.strip()]

    # On a busy machine a worker may have been late.
    assert words(shown) == [line for line in words(printed) if not line.startswith("late: ")]


def _shows(terminal: int, words: bytes) -> None:
    """Waits until the program has written the words; only what has changed on the screen is written."""
    shown = b""
    deadline = time.monotonic() + 60
    while words not in shown:
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536)


@pytest.mark.parametrize("kind", ["xterm-256color", "vt100", "linux"])
def test_top_in_a_terminal_sorts_goes_on_without_the_agent_and_quits(tmp_path: Path, kind: str) -> None:
    with agents(tmp_path, loopback(1)) as hosts:
        terminal, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 150, 0, 0))
        argv = [*GRADLANE, "top", "--interval", "0.2", "--socket", str(hosts[0].socket)]
        process = subprocess.Popen(argv, stdin=other, stdout=other, env={**os.environ, "TERM": kind})
        os.close(other)
        _shows(terminal, b"sorted by name")
        os.write(terminal, b"s")
        _shows(terminal, b"out Mbit")
        hosts[0].end()
        _shows(terminal, b"no agent listens")
        os.write(terminal, b"q")
        assert process.wait(60) == 0
        os.close(terminal)


def test_what_a_narrow_terminal_cuts_off_is_reached_sideways(tmp_path: Path) -> None:
    with agents(tmp_path, loopback(1)) as hosts:
        terminal, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        argv = [*GRADLANE, "top", "--interval", "3600", "--socket", str(hosts[0].socket)]
        process = subprocess.Popen(argv, stdin=other, stdout=other, env={**os.environ, "TERM": "xterm-256color"})
        os.close(other)
        _shows(terminal, b"sorted by name")
        os.write(terminal, b"\x1bOC" * 20)  # the right arrow, beyond the end
        _shows(terminal, b"ended, 0 failed")
        os.write(terminal, b"q")
        assert process.wait(10) == 0
        os.close(terminal)


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    argv = [*GRADLANE, "doctor", "--socket", str(tmp_path / "none.sock")]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == ""
    assert process.wait(20) == 128 + signal.SIGPIPE


def test_top_ends_with_its_terminal_and_sleeps_in_between(tmp_path: Path) -> None:
    with agents(tmp_path, loopback(1)) as hosts:
        terminal, other = pty.openpty()
        argv = [*GRADLANE, "top", "--interval", "3600", "--socket", str(hosts[0].socket)]
        process = subprocess.Popen(argv, stdin=other, stdout=other, env={**os.environ, "TERM": "vt100"})
        os.close(other)
        _shows(terminal, b"sorted by name")
        used = _cpu_seconds(process.pid)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        assert _cpu_seconds(process.pid) - used < 0.2
        os.close(terminal)
        process.wait(60)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_top_says_what_to_do_without_a_terminal_or_an_agent(tmp_path: Path) -> None:
    gone = command("top", "--socket", tmp_path / "none.sock")
    assert gone.returncode == 1
    assert f"no agent listens on {tmp_path}/none.sock (No such file or directory): start it" in gone.stderr
    with agents(tmp_path, loopback(1)) as hosts:
        piped = command("top", "--socket", hosts[0].socket)
        assert piped.returncode == 1
        assert "top needs a terminal; for a script there is `gradlane top --once`" in piped.stderr
    assert command("top", "--interval", "0").returncode == 2
