# SPDX-License-Identifier: Apache-2.0
"""Strict priority and shaping in real time: a port of 100 Mbit/s gets twice that, a part of it in a higher class.

The higher class must lose nothing, the port must send at its rate within 1 % over any second, as the receiver's kernel
has the times of arrival, and must never hold more than its buffer. The machine must be idle.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import socket
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from finsy.proto import p4r

from bench.harness import benchmark
from bench.harness.netns import run
from bench.harness.switches import Client, Entries, RunningSwitch
from bench.harness.wires import HEADERS, Wires, compiled, frame
from lab.command_line import several
from lab.model.errors import ExperimentError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

RATE, BUFFER = 100_000_000, 64_000  # bit/s, bytes
_OVERLOAD = 2.0
_DSCP, _QUEUE = 46, 5
_TURNS = 20
_RETRIES = 3
_TOLERANCE = 0.01
_WINDOW = 10**9  # ns
_SILENCE = 0.5  # s
_CLONE_NEWNET, _ETH_P_IP, _SO_TIMESTAMPNS, _SO_RCVBUFFORCE = 0x40000000, 0x0800, 35, 33


@dataclass(frozen=True)
class Result:
    """One run: `size` bytes of payload; `share` of the rate is offered in the higher class.

    Rates in bit/s over windows of a second that begin at each frame; depth in bytes; frames lost and sent by class.
    `socket_drops` are those of both classes that the switch never saw, because the machine was too slow for the load;
    `left_out` are those that the sender did not send, because it was kept from the CPU at their time.
    """

    size: int
    share: float
    high_sent: int
    high_lost: int
    low_sent: int
    low_lost: int
    slowest: float
    fastest: float
    depth: int
    socket_drops: int
    left_out: int
    exact: bool


class Receiver:
    """Takes (time of arrival in ns, bytes, DSCP) of every frame at a host's interface."""

    def __init__(self, namespace: str, interface: str) -> None:
        self.arrivals: list[tuple[int, int, int]] = []
        self._socket = _socket_in(namespace)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.bind((interface, _ETH_P_IP))
        self._socket.settimeout(_SILENCE)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        room = bytearray(2048)
        while True:
            try:
                size, ancillary, _, _ = self._socket.recvmsg_into([room], 64)
            except TimeoutError:
                if self._done.is_set():
                    return
                continue
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            self.arrivals.append((seconds * 10**9 + nanoseconds, size, room[15] >> 2))

    def stop(self) -> None:
        """Waits until nothing has come for a while."""
        self._done.set()
        self._thread.join()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._socket.close()


def _socket_in(namespace: str) -> socket.socket:
    """A packet socket of another network namespace; made by a thread that moves there and ends."""
    made: list[socket.socket] = []

    def make() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{namespace}") as there:
            if libc.setns(there.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"setns {namespace}")
        made.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not made:
        raise ExperimentError(f"no packet socket in {namespace}")
    return made[0]


def rates(arrivals: Sequence[tuple[int, int, int]]) -> tuple[float, float]:
    """The least and the greatest rate in bit/s over windows of a second. Raises ExperimentError if there is none.

    A window has what arrives after its first frame, which was sent before, up to and with its last.
    """
    found: list[float] = []
    last, octets = 0, 0
    for first, (begin, _, _) in enumerate(arrivals):
        if first:
            octets -= arrivals[first][1]
        while last + 1 < len(arrivals) and arrivals[last][0] - begin < _WINDOW:
            last += 1
            octets += arrivals[last][1]
        if arrivals[last][0] - begin < _WINDOW:
            break
        found.append(octets * 8 * 1e9 / (arrivals[last][0] - begin))
    if not found:
        raise ExperimentError("the frames that arrived do not last for a second")
    return min(found), max(found)


def _turns(share: float) -> list[int]:
    """DSCPs of frames in turn, of which that part of the rate is in the higher class, spread evenly."""
    high = share / _OVERLOAD
    return [_DSCP if int((turn + 1) * high) > int(turn * high) else 0 for turn in range(_TURNS)]


def measure(size: int, share: float, seconds: float) -> Result:
    """One run. Raises ExperimentError."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wires = stack.enter_context(Wires(2))
        sender = compiled(Path(__file__).with_name("switch_load.c"), folder)
        ports = ("1@switch-1", f"2@switch-2,rate={RATE}bit,buffer={BUFFER}B")
        switch = stack.enter_context(RunningSwitch(wires, folder, ports))
        with Client(switch.address) as client:
            entries = Entries()
            client.write(p4r.Update.INSERT, [*entries.senders([1]), *entries.next_hops([2])])
            rules = [entries.route(bytes([10, 0, 2, 0]), 24, 2), entries.dscp_class(_DSCP)]
            client.write(p4r.Update.INSERT, rules)
        receiver = stack.enter_context(Receiver(wires.hosts, "host-2"))
        core = str((os.cpu_count() or 1) - 1)
        # A sender that is kept from the CPU would send in bursts, or not at all, and the port's buffer is 5 ms long.
        words = ("ip", "netns", "exec", wires.hosts, "chrt", "--rr", "1", "taskset", "-c", core, str(sender), "pace")
        offered = _OVERLOAD * RATE / ((size + HEADERS) * 8)
        frames = [frame("10.0.2.2", size, dscp) for dscp in _turns(share)]
        left_out = int(offered * seconds) - int(run(*words, "host-1", str(offered), str(seconds), *frames))
        receiver.stop()
        time.sleep(_SILENCE)
        sent = wires.frames()[1][0]
        ports = {item["port"]: item for item in switch.request(op="ports")["ports"]}
        port, unseen = ports[2], sum(item["socket_drops"] for item in ports.values())
    arrivals = receiver.arrivals
    queue = port["queues"][_QUEUE]
    high = queue["enqueued"]["packets"] + queue["tail_dropped"]["packets"] - queue["pushed_out"]["packets"]
    low = sent - unseen - high
    got = {dscp: sum(item[2] == dscp for item in arrivals) for dscp in (_DSCP, 0)}
    slowest, fastest = rates(arrivals)
    lost, depth = high - got[_DSCP], port["max_depth_bytes"]
    exact = lost == 0 and depth <= BUFFER and max(abs(rate / RATE - 1) for rate in (slowest, fastest)) <= _TOLERANCE
    if port["tx"]["packets"] != len(arrivals):
        raise ExperimentError(f"the switch has sent {port['tx']['packets']} frames, and {len(arrivals)} have arrived")
    return Result(size, share, high, lost, low, low - got[0], slowest, fastest, depth, unseen, left_out, exact)


def table(results: Sequence[Result]) -> TextTable:
    """A row for each run."""
    columns = (
        "payload, bytes",
        "higher class",
        "its frames",
        "lost",
        "others lost",
        "rate over 1 s, Mbit/s",
        "most in the buffer, bytes",
        "unseen",
        "left out",
        "exact",
    )
    rows = [
        [
            f"{item.size}",
            f"{item.share:.0%}",
            f"{item.high_sent:,}",
            f"{item.high_lost:,}",
            f"{item.low_lost / item.low_sent:.1%}",
            f"{item.slowest / 1e6:.2f} to {item.fastest / 1e6:.2f}",
            f"{item.depth:,}",
            f"{item.socket_drops:,}",
            f"{item.left_out:,}",
            "yes" if item.exact else "NO",
        ]
        for item in results
    ]
    return TextTable(f"A port of {RATE / 1e6:g} Mbit/s that is offered {_OVERLOAD:g} times that", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; the exit status: 1 also if something was not exact."""
    parser = benchmark.parser(
        "switch.shaping", __doc__, "--sizes 1448 --shares 0.5,0.9 --seconds 10 --json > shaping.json"
    )
    add = parser.add_argument
    add("--sizes", type=several(int), default=(1448, 512), metavar="A,B", help="of the payload (default: 1448,512)")
    add(
        "--shares",
        type=several(float),
        default=(0.5, 0.9),
        metavar="A,B",
        help="of the higher class (default: 0.5,0.9)",
    )
    add("--seconds", type=float, default=5.0, metavar="S", help="of each run (default: %(default)g)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    results: list[Result] = []
    for size in options.sizes:
        for share in options.shares:
            console.print(f"{size} bytes, {share:.0%} of the rate in the higher class ...", soft_wrap=True)
            result = measure(size, share, options.seconds)
            for _ in range(_RETRIES):
                # Without twice the rate at every moment, there is nothing to see.
                if result.left_out or result.socket_drops:
                    result = measure(size, share, options.seconds)
            results.append(result)
    settings = benchmark.chosen(options, "sizes", "shares", "seconds")
    present(console, options, "shaping.json", benchmark.document(settings, results), [table(results)])
    return int(not all(item.exact for item in results))


if __name__ == "__main__":
    sys.exit(main())
