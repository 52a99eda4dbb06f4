# SPDX-License-Identifier: Apache-2.0
"""Packets per second of gradlane-switch, of BMv2, and of a loop that only copies: side by side, alternately, one core.

Each target forwards between two veth links. The sender runs on a core of its own and the receiver drops at its
interface. A target's capacity is the highest rate that it forwards with at most `LOSS` lost, found by bisection.
"""

import argparse
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format

PIPELINE = Path(__file__).resolve().parent.parent / "p4src" / "build" / "v1model"
LOSS = 0.001
_SECONDS = 1.0  # of a trial
_STEPS = 7  # of a bisection
_MOST = 600_000  # packets/s; more than a copy loop does
_SETTLE_SECONDS, _READY_SECONDS = 0.3, 60.0
_SWITCH_CORE, _SENDER_CORE = 0, 1
_HEADERS = 14 + 20 + 8
_EXAMPLES = """examples:
  sudo python bench/switch.py
  sudo python bench/switch.py --targets gradlane,copy --sizes 64 --rounds 5 --json > switch.json
"""


class BenchError(Exception):
    """The machine lacks something, or a target failed."""


@dataclass(frozen=True)
class Result:
    """One bisection: datagrams of `size` bytes, packets/s without loss, CPU time of the target in us per packet.

    `at_least`: the sender could not send faster, so the target may be faster too.
    """

    target: str
    size: int
    round: int
    packets_per_second: int
    cpu_us: float
    at_least: bool


class Network:
    """Two links into the namespace of the switch: `in` from the sender, `out` to the receiver."""

    def __init__(self) -> None:
        self.switch, self.hosts = f"glb{os.getpid()}s", f"glb{os.getpid()}h"

    def __enter__(self) -> "Network":
        try:
            for namespace in (self.switch, self.hosts):
                _ip("netns", "add", namespace)
                _ip("-n", namespace, "link", "set", "lo", "up")
            for name in ("in", "out"):
                peer = ("peer", "name", f"host-{name}", "netns", self.hosts)
                _ip("link", "add", f"switch-{name}", "netns", self.switch, "type", "veth", *peer)
                for namespace, side in ((self.switch, "switch"), (self.hosts, "host")):
                    interface = f"{side}-{name}"
                    self.run(namespace, "sysctl", "-qw", f"net.ipv6.conf.{interface}.disable_ipv6=1")
                    offloads = [word for what in ("tx", "rx", "sg", "tso", "gso", "gro") for word in (what, "off")]
                    self.run(namespace, "ethtool", "-K", interface, *offloads)
                    _ip("-n", namespace, "link", "set", interface, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for namespace in (self.switch, self.hosts):
            subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)

    def run(self, namespace: str, *command: str) -> str:
        """Output of a command in a namespace. Raises BenchError."""
        return _run("ip", "netns", "exec", namespace, *command)

    def received(self) -> int:
        """Frames that have arrived at the receiver's interface."""
        return int(self.run(self.hosts, "cat", "/sys/class/net/host-out/statistics/rx_packets"))


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


# Targets


@contextmanager
def target(name: str, network: Network, load: Path, folder: Path) -> Generator[int]:
    """Runs a target on the switch's core; its process id. Raises BenchError."""
    address = f"127.0.0.1:{50_000 + os.getpid() % 10_000}"
    match name:
        case "gradlane":
            command = [_program("gradlane-switch"), "--grpc-server-addr", f"unix:{folder}/p4runtime.sock"]
            command += ["--program", f"{PIPELINE}/gradlane.json", "--p4info", f"{PIPELINE}/gradlane.p4info.txtpb"]
            command += ["--entries", str(_entries(folder)), "-i", "1@switch-in", "-i", "2@switch-out,buffer=8MB"]
        case "bmv2":
            command = [_program("simple_switch_grpc"), "--no-p4", "--log-level", "off", "--device-id", "1"]
            command += ["-i", "1@switch-in", "-i", "2@switch-out", "--", "--grpc-server-addr", address]
        case _:
            command = [str(load), "copy", "switch-in", "switch-out"]
    # gradlane-switch forwards with real-time priority, so the others get it as well.
    fair = [] if name == "gradlane" else ["chrt", "--rr", "1"]
    pinned = ["ip", "netns", "exec", network.switch, *fair, "taskset", "-c", str(_SWITCH_CORE), *command]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(pinned, stdout=output, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + _READY_SECONDS
        if name == "bmv2":
            _configure(address, network, deadline)
        while name != "bmv2" and "ready" not in log.read_text(errors="replace"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError(f"{name} is not ready: {log.read_text(errors='replace').strip()[-300:]}")
            time.sleep(0.05)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise BenchError(f"{name} is not on PATH")
    return found


def _request() -> Any:
    """A route of 10.0.2.0/24 through port 2, as p4.v1.WriteRequest."""
    info = text_format.Parse((PIPELINE / "gradlane.p4info.txtpb").read_text(), p4i.P4Info())
    ids = {item.preamble.alias: item.preamble.id for item in [*info.tables, *info.actions]}
    request = p4r.WriteRequest()
    entry = request.updates.add(type=p4r.Update.INSERT).entity.table_entry
    entry.table_id = ids["routes"]
    entry.match.add(field_id=1).lpm.CopyFrom(p4r.FieldMatch.LPM(value=bytes([10, 0, 2, 0]), prefix_len=24))
    entry.action.action.action_id = ids["forward"]
    for number, value in enumerate((b"\x02", b"\x02\0\0\0\0\x02", b"\x02\0\0\0\0\xff"), 1):
        entry.action.action.params.add(param_id=number, value=value)
    return request


def _entries(folder: Path) -> Path:
    path = folder / "entries.txtpb"
    path.write_text(text_format.MessageToString(_request()))
    return path


def _configure(address: str, network: Network, deadline: float) -> None:
    """Gives BMv2 the program and the route; its server is in the switch's namespace, so the client goes there."""
    script = [sys.executable, __file__, "--configure", address, str(deadline - time.monotonic())]
    network.run(network.switch, *script)


def configure(address: str, seconds: float) -> None:
    """Sets the pipeline of a P4Runtime server, and the route."""
    with grpc.insecure_channel(address) as channel:
        grpc.channel_ready_future(channel).result(seconds)
        stub: Any = p4r_grpc.P4RuntimeStub(channel)
        identity: dict[str, Any] = {"device_id": 1, "election_id": U128.encode(1)}
        hello = p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(**identity))
        ended = threading.Event()

        def requests() -> Iterator[Any]:
            yield hello
            ended.wait()  # the stream's end would be the end of being primary

        stream = stub.StreamChannel(requests())
        next(stream)
        info = text_format.Parse((PIPELINE / "gradlane.p4info.txtpb").read_text(), p4i.P4Info())
        config = p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=(PIPELINE / "gradlane.json").read_bytes())
        action = p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT
        stub.SetForwardingPipelineConfig(
            p4r.SetForwardingPipelineConfigRequest(**identity, action=action, config=config)
        )
        request = _request()
        request.device_id = 1
        request.election_id.CopyFrom(identity["election_id"])
        stub.Write(request)
        ended.set()
        stream.cancel()


# Measuring


def _frame(size: int) -> str:
    """A UDP datagram to 10.0.2.2 in a frame of so many bytes, in hex."""
    length = size - 14
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, length, 0, 0, 64, 17, 0, b"\x0a\0\1\2", b"\x0a\0\2\2")
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", (total & 0xFFFF) + (total >> 16) ^ 0xFFFF) + header[12:]
    udp = struct.pack("!HHHH", 9, 9, length - 20, 0)
    ethernet = bytes.fromhex("0200000000ff0200000000010800")
    return (ethernet + header + udp).ljust(size, b"\0").hex()


def _cpu(pid: int) -> float:
    """CPU time of a process in s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _trial(network: Network, load: Path, pid: int, rate: int, size: int) -> tuple[int, int, float]:
    """Frames sent, frames received, and CPU time of the target in s."""
    before, cpu = network.received(), _cpu(pid)
    words = ("taskset", "-c", str(_SENDER_CORE), str(load), "send", "host-in", str(rate), str(_SECONDS), _frame(size))
    sent = int(network.run(network.hosts, *words))
    time.sleep(_SETTLE_SECONDS)
    return sent, network.received() - before, _cpu(pid) - cpu


def capacity(network: Network, load: Path, pid: int, size: int) -> tuple[int, float, bool]:
    """The highest rate in packets/s that the target forwards, its CPU time in us per packet, and whether that is
    the sender's limit."""
    low, high, cost = 0, _MOST, 0.0
    _trial(network, load, pid, 10_000, size)
    for _ in range(_STEPS):
        rate = (low + high) // 2
        began = time.monotonic()
        sent, received, cpu = _trial(network, load, pid, rate, size)
        took = time.monotonic() - began - _SETTLE_SECONDS
        if received >= sent * (1 - LOSS):
            # A sender that can't keep the rate up is the limit.
            low, cost = min(rate, round(sent / took)), cpu / max(received, 1) * 1e6
            if took > 1.2 * _SECONDS:
                return low, cost, True
        else:
            high = rate
    return low, cost, False


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit code: 0, 1 (something failed), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    if options.configure:
        configure(options.configure[0], float(options.configure[1]))
        return 0
    results: list[Result] = []
    try:
        if os.geteuid() or (os.cpu_count() or 1) < 2:
            raise BenchError("it needs root, for network namespaces, and two cores")
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            load = folder / "switch_load"
            _run("cc", "-O2", "-D_GNU_SOURCE", "-o", str(load), str(Path(__file__).with_name("switch_load.c")))
            network = stack.enter_context(Network())
            for round_number in range(options.rounds):
                for size in options.sizes:
                    for name in options.targets:
                        with target(name, network, load, folder) as pid:
                            rate, cost, at_least = capacity(network, load, pid, size + _HEADERS)
                        results.append(Result(name, size, round_number, rate, round(cost, 2), at_least))
                        limit = "  (the sender's limit)" if at_least else ""
                        print(f"{name:10} {size:5} B  {rate:8} packets/s  {cost:6.2f} us CPU{limit}", file=sys.stderr)
    except BenchError as error:
        print(f"switch: error: {error}", file=sys.stderr)
        return 2
    print(json.dumps([asdict(item) for item in results], indent=1) if options.json else _table(results))
    return 0


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _table(results: list[Result]) -> str:
    """Medians over the rounds, and their ratios to the copy loop's."""
    lines = ["target      payload  packets/s  us CPU  of copy loop"]
    for size in sorted({item.size for item in results}):
        rates = {
            name: _median([item.packets_per_second for item in results if (item.target, item.size) == (name, size)])
            for name in dict.fromkeys(item.target for item in results)
        }
        for name, rate in rates.items():
            cost = _median([item.cpu_us for item in results if (item.target, item.size) == (name, size)])
            share = f"{rate / rates['copy']:12.0%}" if rates.get("copy") else ""
            same = [item for item in results if (item.target, item.size) == (name, size)]
            limit = "  at least: the sender's limit" if any(item.at_least for item in same) else ""
            lines.append(f"{name:10} {size:6} B {rate:10.0f} {cost:7.2f}  {share}{limit}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--targets",
        type=lambda text: text.split(","),
        default=["gradlane", "bmv2", "copy"],
        metavar="NAMES",
        help="of gradlane, bmv2 and copy, in turn (default all)",
    )
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(item) for item in text.split(",")],
        default=[64, 1448],
        metavar="BYTES",
        help="of the UDP payload (default 64,1448)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="(default 3)")
    parser.add_argument("--json", action="store_true", help="every bisection as JSON")
    parser.add_argument("--configure", nargs=2, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
