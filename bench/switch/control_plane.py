# SPDX-License-Identifier: Apache-2.0
"""Entry writes per second over gRPC while packets are forwarded, and how long packets wait because of them.

A stream of time-stamped packets passes the switch all the time, through the table that is written: first with nothing
else going on, then while entries are inserted, read, modified and deleted in batches. Reads keep the machine as busy
as writes do, and take no lock, so what they do to the stream is not the tables' doing. At the end a batch of 100,000
entries shows what memory that takes. The sender of the stream has real-time priority, as the switch's forwarding has.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format

from bench.harness.netns import WireError, run
from bench.harness.worker import Worker
from bench.switch.packet_rate import Network
from bench.switch.table_cases import BUILD, CASES, Wanted, entity, frame, random_key
from gradlane_switch.errors import SwitchError
from gradlane_switch.management.admin_client import ask

_WRITE = "/p4.v1.P4Runtime/Write"
_SECONDS = 3.0  # of a phase without writes
_LARGE = 100_000
_TABLES = ("exact", "lpm_ipv4", "acl")
_EXAMPLES = """examples:
  sudo python -m bench.switch.control_plane
  sudo python -m bench.switch.control_plane --tables exact --batch 200 --atomicity rollback --json > control_plane.json
"""


@dataclass(frozen=True)
class Result:
    """One phase. Times in us.

    `cpu`: the switch's CPU time per write, less what it takes without writes. `wait`: the longest time for which the
    switch says that forwarding waited for a change. `gap`: the longest between two packets of the stream. Delays are
    from the sender to the receiver's interface.
    """

    table: str
    phase: str
    writes_per_second: int
    cpu: float
    wait: float
    gap: float
    delay_p50: float
    delay_p999: float
    delay_max: float
    sent: int
    lost: int


@dataclass(frozen=True)
class Memory:
    """A batch of so many entries: resident memory of the switch in MB before, at most during, and after it."""

    entries: int
    before: float
    peak: float
    after: float
    seconds: float


class Stream:
    """The packets whose delays tell of stalls."""

    def __init__(self, network: Network, probe: Path, rate: int, data: bytes) -> None:
        self._command = ["ip", "netns", "exec", network.hosts, "chrt", "--rr", "1", str(probe), "host-1", "host-2"]
        self._command += [str(rate), data.hex()]

    @contextmanager
    def running(self, figures: list[int]) -> Generator[None]:
        """Puts what the probe prints into `figures` when it has ended. Raises WireError."""
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "ready\n":
                raise WireError("the probe did not start")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            output, _ = process.communicate(timeout=10)
        figures.extend(map(int, output.split()))


class Controller:
    """The primary controller of the switch. Requests are made before the clock starts."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._identity: dict[str, Any] = {"device_id": 1, "election_id": U128.encode(1)}
        stub: Any = p4r_grpc.P4RuntimeStub(channel)
        self._ended = threading.Event()
        self._stream = stub.StreamChannel(self._hello())
        next(self._stream)
        # Takes bytes, so that what is timed is the switch, and not a client that serializes.
        self._read: Any = stub.Read
        self._write: Any = channel.unary_unary(_WRITE, request_serializer=None, response_deserializer=None)

    def _hello(self) -> Iterator[Any]:
        yield p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(**self._identity))
        self._ended.wait()

    def batches(self, kind: int, entities: list[Any], size: int, atomicity: Any) -> list[bytes]:
        """Serialized write requests."""
        found: list[bytes] = []
        for start in range(0, len(entities), size):
            request = p4r.WriteRequest(**self._identity, atomicity=atomicity)
            for item in entities[start : start + size]:
                request.updates.add(type=kind, entity=item)
            found.append(request.SerializeToString())
        return found

    def write(self, requests: list[bytes]) -> float:
        """Sends requests, one after the other. Returns seconds. Raises WireError."""
        began = time.monotonic()
        try:
            for request in requests:
                self._write(request)
        except grpc.RpcError as error:
            raise WireError(f"a write failed: {error}") from None
        return time.monotonic() - began

    def read(self, seconds: float) -> None:
        """Reads all table entries again and again."""
        request = p4r.ReadRequest(device_id=1, entities=[p4r.Entity(table_entry=p4r.TableEntry())])
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for _ in self._read(request):
                pass

    def close(self) -> None:
        """Ends the stream."""
        self._ended.set()
        self._stream.cancel()


@contextmanager
def running_switch(network: Network, folder: Path, port: int) -> Generator[tuple[Worker, Path]]:
    """Runs gradlane-switch with the benchmarks' program; its process and its admin socket. Raises WireError."""
    command = [sys.executable, "-m", "gradlane_switch", "--grpc-server-addr", f"unix:{folder}/p4runtime.sock"]
    command += ["--program", f"{BUILD}/tables.json", "--p4info", f"{BUILD}/tables.p4info.txtpb"]
    command += ["--admin", f"{folder}/admin.sock", "-i", f"{port}@switch-1", "-i", "2@switch-2,buffer=8MB"]
    command = ["ip", "netns", "exec", network.switch, *command]
    with Worker("gradlane-switch", command, asked=False, logs=True) as switch:
        switch.wait_for("ready device")
        yield switch, folder / "admin.sock"


def _resident(pid: int, key: str) -> float:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(key)]
    return int(line.split()[1]) / 1024


def measure(
    network: Network, probe: Path, name: str, options: argparse.Namespace
) -> tuple[list[Result], Memory | None]:
    """Every phase of one table, and for exact entries the large batch."""
    case, random, results = CASES[name], Random(options.seed), list[Result]()
    atomicity = p4r.WriteRequest.Atomicity.Value(f"{options.atomicity.upper()}_ON_ERROR")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        switch, admin = stack.enter_context(running_switch(network, folder, case.port))
        channel = stack.enter_context(
            grpc.insecure_channel(f"unix:{folder}/p4runtime.sock", [("grpc.max_send_message_length", -1)])
        )
        controller = Controller(channel)
        stack.callback(controller.close)
        stream = Stream(network, probe, options.rate, frame(case, random_key(random)) + bytes(8))
        ids = _ids()
        entries: dict[tuple[tuple[str, tuple[int, int]], ...], Wanted] = {}
        while len(entries) < (_LARGE if name == "exact" else options.entries):
            wanted = case.entry(random)
            entries[tuple(sorted(wanted.items()))] = wanted
        entities = [entity(ids, case, wanted, number) for number, wanted in enumerate(entries.values(), 1)]

        idle = 0.0  # the share of a core that the stream takes

        def phase(kind: str, requests: list[bytes], count: int) -> None:
            nonlocal idle
            ask(admin, {"op": "clear"})
            figures: list[int] = []
            spent, began = switch.cpu_seconds(), time.monotonic()
            with stream.running(figures):
                if requests:
                    rate = round(count / controller.write(requests))
                else:
                    rate = 0
                    if kind == "reads":
                        controller.read(_SECONDS)
                    else:
                        time.sleep(_SECONDS)
            wait = ask(admin, {"op": "forwarding"})["forwarding"]["longest_wait_ns"]
            spent, took = switch.cpu_seconds() - spent, time.monotonic() - began
            if kind == "no writes":
                idle = spent / took
            cpu = round((spent - idle * took) / count * 1e6, 1) if count else 0.0
            sent, received, gap, longest, p50, _, p999 = figures
            wait, gap, p50, p999, longest = (round(value / 1000, 1) for value in (wait, gap, p50, p999, longest))
            results.append(Result(name, kind, rate, cpu, wait, gap, p50, p999, longest, sent, sent - received))
            print(_line(results[-1]), file=sys.stderr)

        phase("no writes", [], 0)
        for kind in ("INSERT", "MODIFY", "DELETE"):
            chosen = entities[: options.entries]
            phase(kind, controller.batches(p4r.Update.Type.Value(kind), chosen, options.batch, atomicity), len(chosen))
            if kind == "INSERT":
                phase("reads", [], 0)
        return results, _large(controller, switch.pid, entities, atomicity) if name == "exact" else None


def _large(controller: Controller, pid: int, entities: list[Any], atomicity: Any) -> Memory:
    [request] = controller.batches(p4r.Update.INSERT, entities, _LARGE, atomicity)
    before = _resident(pid, "VmRSS")
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from now on
    seconds = controller.write([request])
    figures = (before, _resident(pid, "VmHWM"), _resident(pid, "VmRSS"), seconds)
    return Memory(_LARGE, *(round(value, 1) for value in figures))


def _ids() -> dict[str, int]:
    info = text_format.Parse((BUILD / "tables.p4info.txtpb").read_text(), p4i.P4Info())
    return {item.preamble.alias: item.preamble.id for item in [*info.tables, *info.actions]}


_COLUMNS = (
    f"{'table':10} {'phase':10} {'writes/s':>9} {'CPU us':>7} {'wait us':>8} {'gap us':>9} "
    f"{'p50 us':>8} {'p99.9 us':>9} {'longest':>9} {'lost':>5}"
)


def _line(item: Result) -> str:
    return (
        f"{item.table:10} {item.phase:10} {item.writes_per_second or '':>9} {item.cpu or '':>7} "
        f"{item.wait:8.1f} {item.gap:9.1f} {item.delay_p50:8.1f} {item.delay_p999:9.1f} {item.delay_max:9.1f} "
        f"{item.lost:5}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit code: 0, or 2 (usage, the machine, or something failed)."""
    options = _parser().parse_args(arguments)
    results: list[Result] = []
    memory: Memory | None = None
    try:
        if os.geteuid():
            raise WireError("it needs root, for network namespaces")
        for name in options.tables:
            if name not in _TABLES:
                raise WireError(f"{name!r} is not a table: there are {', '.join(_TABLES)}")
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            probe = folder / "probe"
            source = str(Path(__file__).with_name("probe.c"))
            run("cc", "-O2", "-D_GNU_SOURCE", "-o", str(probe), source)
            network = stack.enter_context(Network())
            print(_COLUMNS, file=sys.stderr)
            for name in options.tables:
                found, large = measure(network, probe, name, options)
                results += found
                memory = large or memory
    except (WireError, SwitchError) as error:
        print(f"control_plane: error: {error}", file=sys.stderr)
        return 2
    if options.json:
        large = None if memory is None else asdict(memory)
        print(json.dumps({"phases": [asdict(item) for item in results], "memory": large}, indent=1))
    else:
        print("\n".join([_COLUMNS, *map(_line, results)]))
        if memory is not None:
            print(
                f"{memory.entries} entries in one batch: {memory.seconds} s, resident memory "
                f"{memory.before} MB before, {memory.peak} MB at most, {memory.after} MB after"
            )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tables",
        type=lambda text: text.split(","),
        default=list(_TABLES),
        metavar="NAMES",
        help=f"of {', '.join(_TABLES)} (default all)",
    )
    parser.add_argument("--entries", type=int, default=10_000, help="of each phase (default 10000)")
    parser.add_argument("--batch", type=int, default=500, help="entries in a request (default 500)")
    parser.add_argument("--rate", type=int, default=20_000, help="packets/s of the stream (default 20000)")
    parser.add_argument("--atomicity", choices=("continue", "rollback"), default="continue")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="every figure as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
