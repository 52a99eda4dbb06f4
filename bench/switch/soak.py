# SPDX-License-Identifier: Apache-2.0
"""Runs gradlane-switch at full load from both sides for long, while entries, ports and their settings change.

At the end every frame must be accounted for: what the hosts' kernels have sent is what came in, what found no room in
a socket, or was too long; that, and copies, is what left, what each reason dropped, and what waits; what left is what
the hosts' kernels have received. Memory and file descriptors must not grow, and the log must stay short.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from bench.harness import benchmark
from bench.harness.switches import Client, Entries, RunningSwitch
from bench.harness.usage import descriptors, memory
from bench.harness.wires import Wires, compiled, frame
from lab.model.errors import ControlError, ExperimentError, ProcessError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_LINKS = 3
_RATE = 400_000  # frames/s that a sender tries
_BATCH = 500  # updates
_PORT = "3@switch-3,rate=50mbit,buffer=64kB"
_SETTINGS = (
    {"rate": "20mbit", "loss": 0.02, "delay": "2ms", "jitter": "1ms"},
    {"rate": "80mbit", "buffer": "16kB", "weights": "1:1:1:1:2:2:4:8", "duplicate": 0.05},
    {"ecn": "4kB", "reorder": 0.05, "corrupt": 0.01, "burst-loss": "0.01:0.3", "delay": "0ms", "jitter": "0ms"},
    {
        "rate": "unlimited",
        "weights": "strict",
        "loss": 0,
        "burst-loss": "0",
        "duplicate": 0,
        "corrupt": 0,
        "reorder": 0,
    },
    {"up": "no"},
    {"up": "yes", "buffer": "64kB", "rate": "50mbit"},
)
_SETTLE_SECONDS = 10.0
_MOST_GROWTH = 8 << 20  # bytes; a hundredth of the packet buffers that the first seconds may take
_MOST_LINES = 50  # of the log, beside one for each time that a port comes, goes or is set up or down


@dataclass
class Report:
    """What happened, in frames; memory in bytes. `failures` says what must not have happened."""

    seconds: float = 0
    sent: int = 0
    received: int = 0
    socket_drops: int = 0
    drops: dict[str, int] = field(default_factory=dict[str, int])
    entry_updates: int = 0
    counter_reads: int = 0
    port_changes: int = 0
    memory_begin: int = 0
    memory_end: int = 0
    descriptors_begin: int = 0
    descriptors_end: int = 0
    log_lines: int = 0
    failures: list[str] = field(default_factory=list[str])


class Repeated:
    """Does something again and again in a thread, until it is stopped."""

    def __init__(self, work: Callable[[], None], report: Report) -> None:
        self._work, self._report = work, report
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Begins."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._work()
        except ControlError as error:
            self._report.failures.append(f"{self._work.__name__}: {error}")

    def stop(self) -> None:
        """Waits until the work in hand is done."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()


class Soak:
    """One run."""

    def __init__(self, switch: RunningSwitch, client: Client, report: Report) -> None:
        self._switch, self._client, self._report = switch, client, report
        self._entries = Entries()
        settings = [partial(self._set, **item) for item in _SETTINGS]
        others = [self._take_down, self._remove, self._add, self._stall]
        self._changes = cycle([*settings[:3], *others, *settings[3:], *others[1:3]])
        numbers = range(1, _LINKS + 1)
        client.write(p4r.Update.INSERT, [*self._entries.senders(numbers), *self._entries.next_hops(numbers)])
        client.write(p4r.Update.INSERT, [self._entries.route(bytes([10, 0, n, 0]), 24, n) for n in numbers])

    def churn(self) -> None:
        """Inserts, modifies and deletes a batch of routes, and reads counters meanwhile."""
        routes = [self._entries.route(bytes([10, 200, n >> 8, n & 255]), 32, 1 + n % 3) for n in range(_BATCH)]
        for kind in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE):
            self._client.write(kind, routes)
            self._report.entry_updates += _BATCH
            counters = self._client.read(
                p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=self._entries.ids["drop_map"]))
            )
            self._report.counter_reads += len(counters)

    def change_ports(self) -> None:
        """One change after the other, in turn: of settings of port 3, and what else may happen to a switch."""
        time.sleep(0.2)
        next(self._changes)()
        self._report.port_changes += 1

    def _set(self, **settings: Any) -> None:
        self._switch.request(op="set", port=3, **settings)

    def _take_down(self) -> None:
        for up in ("no", "yes"):
            self._switch.request(op="set", port=1, up=up)

    def _remove(self) -> None:
        self._switch.request(op="remove", port=3)

    def _add(self) -> None:
        self._switch.request(op="add", port=_PORT)

    def _stall(self) -> None:
        """The switch gets no CPU for so long that its sockets overflow."""
        os.kill(self._switch.pid, signal.SIGSTOP)
        time.sleep(0.5)
        os.kill(self._switch.pid, signal.SIGCONT)


def whole(accounts: dict[str, Any]) -> list[dict[str, Any]]:
    """Everything that has counts."""
    return [*accounts["ports"], accounts["removed"], accounts["controller"]]


def drops(counted: dict[str, Any]) -> dict[str, int]:
    """Frames that were dropped, by reason."""
    found = {name: drop["packets"] for name, drop in counted["drops"].items()}
    for name in ("tail_dropped", "flushed"):
        found[name] = sum(queue[name]["packets"] for queue in counted["queues"])
    return found | {f"{link}_lost": counted[link]["lost"]["packets"] for link in ("tx_link", "rx_link")}


def waiting(counted: dict[str, Any]) -> int:
    """Frames in queues and on links."""
    links = counted["tx_link"]["in_flight"] + counted["rx_link"]["in_flight"]
    return links + sum(queue["depth_packets"] for queue in counted["queues"])


def settled(switch: RunningSwitch) -> dict[str, Any]:
    """The accounts once nothing comes in any more and nothing waits. Raises ExperimentError."""
    deadline, before = time.monotonic() + _SETTLE_SECONDS, None
    while True:
        accounts = switch.request(op="ports")
        if accounts == before and not any(map(waiting, whole(accounts))):
            return accounts
        if time.monotonic() > deadline:
            raise ExperimentError(f"frames still wait after {_SETTLE_SECONDS:g} s")
        before = accounts
        time.sleep(0.2)


def closed(pid: int, most: int) -> int:
    """The switch's open files, once there are at most `most`; or what there are after a while: it closes its end of a
    connection a little after its client has."""
    deadline = time.monotonic() + _SETTLE_SECONDS
    while (found := descriptors(pid)) > most and time.monotonic() < deadline:
        time.sleep(0.1)
    return found


def check(
    accounts: dict[str, Any], before: dict[int, tuple[int, int]], after: dict[int, tuple[int, int]], report: Report
) -> None:
    """Compares the switch's counts with one another and with the kernel's."""
    made = gone = 0
    for counted in whole(accounts):
        twins = sum(counted[link]["duplicated"]["packets"] for link in ("tx_link", "rx_link"))
        made += counted["rx"]["packets"] + counted["copies"]["packets"] + twins
        gone += counted["tx"]["packets"] + counted["replaced"]["packets"] + sum(drops(counted).values())
        report.socket_drops += counted["socket_drops"]
        for reason, count in drops(counted).items():
            report.drops[reason] = report.drops.get(reason, 0) + count
    report.drops = {reason: count for reason, count in report.drops.items() if count}
    if made != gone:
        report.failures.append(f"{made} frames came or were copied, {gone} left or were dropped")
    ports = {port["port"]: port for port in accounts["ports"]}
    for number in before:
        sent, received = (late - early for early, late in zip(before[number], after[number], strict=True))
        report.sent += sent
        report.received += received
        counted = [ports[number]] if number in ports else []
        counted += [accounts["removed"]] if number == _LINKS else []
        came = sum(item["rx"]["packets"] + item["oversize"]["packets"] + item["socket_drops"] for item in counted)
        left = sum(item["tx"]["packets"] for item in counted)
        if (came, left) != (sent, received):
            text = f"host {number} has sent {sent} and received {received} frames; the switch has {came} and {left}"
            report.failures.append(text)


def load(wires: Wires, sender: Path, seconds: float, stack: ExitStack) -> list[subprocess.Popen[bytes]]:
    """Starts what the hosts send: to one another what they can, to the slow port more than it takes, and to nobody."""
    core = str((os.cpu_count() or 1) - 1)
    started: list[subprocess.Popen[bytes]] = []
    for host, to, rate, size in (
        (1, "10.0.2.2", _RATE, 64),
        (2, "10.0.1.2", _RATE, 512),
        (1, "10.0.3.2", 8000, 1400),
        (2, "10.99.0.1", 1000, 64),
    ):
        # A sender spins until its next frame is due: the slow ones are to leave most of the core to the fast ones, but
        # have some of it every few ms, so that they send in every state that the ports are in.
        polite = () if rate == _RATE else ("nice", "-n", "5")
        words = ("ip", "netns", "exec", wires.hosts, "taskset", "-c", core, *polite, str(sender), "send")
        command = [*words, f"host-{host}", str(rate), str(seconds), "1", frame(to, size)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        started.append(process)
    return started


def soak(seconds: float, folder: Path, stack: ExitStack) -> Report:
    """Runs it. Raises ExperimentError."""
    report = Report()
    wires = stack.enter_context(Wires(_LINKS))
    sender = compiled(Path(__file__).with_name("switch_load.c"), folder)
    switch = stack.enter_context(RunningSwitch(wires, folder, ("1@switch-1", "2@switch-2", _PORT)))
    pid = switch.pid
    client = stack.enter_context(Client(switch.address))
    run = Soak(switch, client, report)
    report.descriptors_begin = descriptors(pid)
    before, began = wires.frames(), time.monotonic()
    senders = load(wires, sender, seconds * 10, stack)
    workers = [Repeated(run.churn, report), Repeated(run.change_ports, report)]
    for worker in workers:
        stack.callback(worker.stop)
        worker.start()
    try:
        # What grows at first: packet buffers, up to what a full port and the sockets hold.
        settle = began + seconds / 3
        while (now := time.monotonic()) < began + seconds and not switch.ended() and not report.failures:
            if not report.memory_begin and now > settle:
                report.memory_begin = memory(pid)
            time.sleep(min(1.0, max(0.0, began + seconds - now)))
            _progress(now - began, seconds, wires.frames(), before, report, memory(pid))
    finally:
        for worker in workers:
            worker.stop()
        for process in senders:
            process.terminate()
            process.wait()
    report.seconds = round(time.monotonic() - began, 1)
    if switch.ended():
        raise ProcessError(f"the switch ended: {switch.last_words()}")
    accounts = settled(switch)
    check(accounts, before, wires.frames(), report)
    report.memory_end, report.descriptors_end = memory(pid), closed(pid, report.descriptors_begin)
    if report.memory_end > report.memory_begin + _MOST_GROWTH:
        report.failures.append(f"memory grew from {report.memory_begin} to {report.memory_end} bytes")
    if report.descriptors_end > report.descriptors_begin:
        report.failures.append(f"open files grew from {report.descriptors_begin} to {report.descriptors_end}")
    report.log_lines = len(switch.said)
    if report.log_lines > _MOST_LINES + 2 * report.port_changes:
        report.failures.append(f"the log has {report.log_lines} lines for {report.port_changes} changes of ports")
    return report


def _progress(
    elapsed: float,
    seconds: float,
    now: dict[int, tuple[int, int]],
    before: dict[int, tuple[int, int]],
    report: Report,
    resident: int,
) -> None:
    sent, received = (sum(now[n][k] - before[n][k] for n in now) / 1e6 for k in (0, 1))
    text = f"{elapsed:5.0f} of {seconds:.0f} s: {sent:.2f}M frames in, {received:.2f}M out, "
    text += f"{report.entry_updates} updates, {report.port_changes} changes of ports, {resident >> 20} MiB"
    terminal = sys.stderr.isatty()
    print(f"\r{text}  " if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)


def table(report: Report) -> TextTable:
    """What happened, in words."""
    drops = ", ".join(f"{reason} {count:,}" for reason, count in report.drops.items()) or "none"
    rows = [
        ("frames in", f"{report.sent:,}"),
        ("frames out", f"{report.received:,}"),
        ("no room in sockets", f"{report.socket_drops:,}"),
        ("dropped", drops),
        ("updates of entries", f"{report.entry_updates:,}"),
        ("counters read", f"{report.counter_reads:,}"),
        ("changes of ports", f"{report.port_changes:,}"),
        ("memory, MiB", f"{report.memory_begin >> 20} to {report.memory_end >> 20}"),
        ("open files", f"{report.descriptors_begin} to {report.descriptors_end}"),
        ("lines in the log", f"{report.log_lines:,}"),
    ]
    title = "FAILED" if report.failures else "Every frame is accounted for"
    return TextTable(f"{title}, in {report.seconds:g} s", ("what", "how much"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; the exit status: 1 also if something happened that must not."""
    parser = benchmark.parser("switch.soak", __doc__, "--seconds 3600 --json > soak.json")
    parser.add_argument("--seconds", type=float, default=600.0, metavar="S", help="(default: %(default)g)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        report = soak(options.seconds, folder, stack)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    document = benchmark.document(benchmark.chosen(options, "seconds"), [report])
    present(make_console(to_stderr=options.json), options, "soak.json", document, [table(report)])
    if report.failures:
        raise ExperimentError("; ".join(report.failures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
