# SPDX-License-Identifier: Apache-2.0
"""Packets per second of gradlane-switch, of BMv2, and of loops that only copy: side by side, alternately, one core.

Each target forwards between two veth links. The sender runs on a core of its own and the receiver drops at its
interface. A target's capacity is the highest rate that it forwards with at most `LOSS` lost, found by bisection.
Latency is from before the sender's system call to the receiver's interface, at 5,000 packets/s.

Targets: gradlane; offload (the same, from a host that leaves segmentation to hardware: 40 datagrams in a frame); bmv2;
and copy, copy-rings and copy-xdp: loops over the switch's own kind of sockets, over TPACKET_V3, and over AF_XDP.
"""

import argparse
import json
import os
import shutil
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
from typing import Any

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc
from google.protobuf import text_format

from bench.harness.netns import WireError, run
from bench.harness.wires import HEADERS, P4INFO, PROGRAM, Wires, frame, next_hops, program_ids, route
from bench.harness.worker import Worker

COPIES = {"copy": "sockets", "copy-rings": "rings", "copy-xdp": "xdp"}
TARGETS = ("gradlane", "offload", "bmv2", *COPIES)
LOSS = 0.001
_SECONDS = 1.0  # of a trial
_STEPS = 8  # of a bisection
_MOST = 1_200_000  # packets/s; more than a copy loop does
_MOST_OFFLOAD = 8_000_000
_TRAIN = 40  # datagrams in a frame
_PROBE_RATE, _PROBE_SECONDS, _PROBE_LOSS = 5_000, 2.0, 0.01
_SETTLE_SECONDS, _READY_SECONDS = 0.3, 60.0
_SWITCH_CORE, _SENDER_CORE = 0, 1
_EXAMPLES = """examples:
  sudo python -m bench.switch.packet_rate
  sudo python -m bench.switch.packet_rate --targets gradlane,copy --sizes 64 --rounds 5 --json > switch.json
  sudo python -m bench.switch.packet_rate --targets gradlane --rounds 1 --profile    (with perf: where the time goes)
"""


@dataclass(frozen=True)
class Result:
    """One bisection: datagrams of `size` bytes, packets/s without loss, CPU time of the target in us per packet.

    `at_least`: the sender could not send faster, so the target may be faster too. Latencies in us; 0: not measured.
    """

    target: str
    size: int
    round: int
    packets_per_second: int
    cpu_us: float
    at_least: bool
    p50_us: float
    p99_us: float


class Network(Wires):
    """Link 1 from the sender to the switch, link 2 from there to the receiver."""

    def __init__(self) -> None:
        super().__init__(2)

    def offload(self, state: str) -> None:
        """Turns the segmentation by hardware on or off, at the sender and at the switch's way out."""
        words = [word for what in ("tx", "sg", "tso", "gso", "tx-udp-segmentation") for word in (what, state)]
        for namespace, interface in ((self.hosts, "host-1"), (self.switch, "switch-2")):
            self.run(namespace, "ethtool", "-K", interface, *words)

    def received(self, size: int) -> int:
        """Datagrams of `size` bytes that have arrived at the receiver's interface, alone or many in a frame."""
        folder = "/sys/class/net/host-2/statistics"
        packets, octets = map(int, self.run(self.hosts, "cat", f"{folder}/rx_packets", f"{folder}/rx_bytes").split())
        return (octets - packets * HEADERS) // size


# Targets


@contextmanager
def target(name: str, network: Network, folder: Path) -> Generator[Worker]:
    """Runs a target on the switch's core. Raises WireError."""
    address = f"127.0.0.1:{50_000 + os.getpid() % 10_000}"
    match name:
        case "gradlane" | "offload":
            command = [_program("gradlane-switch"), "--grpc-server-addr", f"unix:{folder}/p4runtime.sock"]
            command += ["--program", str(PROGRAM), "--p4info", str(P4INFO)]
            command += ["--entries", str(_entries(folder)), "-i", "1@switch-1", "-i", "2@switch-2,buffer=8MB"]
        case "bmv2":
            command = [_program("simple_switch_grpc"), "--no-p4", "--log-level", "off", "--device-id", "1"]
            command += ["-i", "1@switch-1", "-i", "2@switch-2", "--", "--grpc-server-addr", address]
        case _:
            command = [f"{folder}/switch_copy", COPIES[name], "switch-1", "switch-2"]
    # gradlane-switch forwards with real-time priority, so the others get it as well.
    fair = ["chrt", "--rr", "1"] if name in COPIES or name == "bmv2" else []
    pinned = ["ip", "netns", "exec", network.switch, *fair, "taskset", "-c", str(_SWITCH_CORE), *command]
    with Worker(name, pinned, asked=False, logs=True) as process:
        if name == "bmv2":
            _configure(address, network)
        else:
            process.wait_for("ready")
        yield process


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None:
        raise WireError(f"{name} is not on PATH")
    return found


def _request() -> Any:
    """A route of 10.0.2.0/24 through port 2, as p4.v1.WriteRequest."""
    ids = program_ids()
    entities = [*next_hops(ids, [2]), route(ids, bytes([10, 0, 2, 0]), 24, 2)]
    return p4r.WriteRequest(updates=[p4r.Update(type=p4r.Update.INSERT, entity=entity) for entity in entities])


def _entries(folder: Path) -> Path:
    path = folder / "entries.txtpb"
    path.write_text(text_format.MessageToString(_request()))
    return path


def _configure(address: str, network: Network) -> None:
    """Gives BMv2 the program and the route; its server is in the switch's namespace, so the client goes there."""
    script = [sys.executable, "-m", "bench.switch.packet_rate", "--configure", address, str(_READY_SECONDS)]
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
        info = text_format.Parse(P4INFO.read_text(), p4i.P4Info())
        config = p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=PROGRAM.read_bytes())
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


@dataclass(frozen=True)
class Load:
    """What is sent: datagrams of `size` bytes, `train` of them in a frame."""

    network: Network
    program: Path
    size: int
    train: int

    def trial(self, process: Worker, rate: int) -> tuple[int, int, float]:
        """Datagrams sent at a rate, datagrams received, and CPU time of the target in s."""
        before, cpu = self.network.received(self.size), process.cpu_seconds()
        sent = int(self._run("send", "host-1", str(rate), str(_SECONDS), str(self.train), frame("10.0.2.2", self.size)))
        time.sleep(_SETTLE_SECONDS)
        return sent, self.network.received(self.size) - before, process.cpu_seconds() - cpu

    def capacity(self, process: Worker) -> tuple[int, float, bool]:
        """The highest rate in packets/s that the target forwards, its CPU time in us per packet, and whether that is
        the sender's limit."""
        low, high, cost = 0, _MOST_OFFLOAD if self.train > 1 else _MOST, 0.0
        self.trial(process, 10_000)
        for _ in range(_STEPS):
            rate = (low + high) // 2
            began = time.monotonic()
            sent, received, cpu = self.trial(process, rate)
            took = time.monotonic() - began - _SETTLE_SECONDS
            if received >= sent * (1 - LOSS):
                # A sender that can't keep the rate up is the limit.
                low, cost = min(rate, round(sent / took)), cpu / max(received, 1) * 1e6
                if took > 1.2 * _SECONDS:
                    return low, cost, True
            else:
                high = rate
        return low, cost, False

    def latency(self) -> tuple[float, float]:
        """Median and 99th percentile in us. Raises WireError if packets are lost."""
        words = ("probe", "host-1", "host-2", str(_PROBE_RATE), str(_PROBE_SECONDS), frame("10.0.2.2", self.size))
        found = sorted(int(line) / 1e3 for line in self._run(*words).split())
        if len(found) < _PROBE_RATE * _PROBE_SECONDS * (1 - _PROBE_LOSS):
            raise WireError(f"{len(found)} of {_PROBE_RATE * _PROBE_SECONDS:.0f} packets arrived at a low rate")
        return found[len(found) // 2], found[len(found) * 99 // 100]

    def _run(self, *words: str) -> str:
        return self.network.run(self.network.hosts, "taskset", "-c", str(_SENDER_CORE), str(self.program), *words)


def profile(load: Load, process: Worker, rate: int, folder: Path) -> str:
    """What the target's time goes into at a rate: shares of programs and of functions above 1 %. Raises WireError."""
    data = folder / "perf.data"
    data.unlink(missing_ok=True)
    perf = shutil.which("perf")
    if perf is None:
        raise WireError("--profile needs perf (Debian: linux-perf)")
    recording = subprocess.Popen([perf, "record", "-q", "-F", "4999", "-o", str(data), "-p", str(process.pid)])
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while not data.exists() and recording.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        load.trial(process, rate)
    finally:
        recording.send_signal(signal.SIGINT)
        recording.wait(30)
    lines: list[str] = []
    for what in ("dso", "dso,symbol"):
        report = run(perf, "report", "-i", str(data), "--stdio", "--percent-limit", "1", "--sort", what)
        lines += [line.rstrip() for line in report.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit code: 0, 1 (something failed), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    if options.configure:
        configure(options.configure[0], float(options.configure[1]))
        return 0
    results: list[Result] = []
    try:
        if os.geteuid() or (os.cpu_count() or 1) < 2:
            raise WireError("it needs root, for network namespaces, and two cores")
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for name in ("switch_load", "switch_copy"):
                source = Path(__file__).with_name(f"{name}.c")
                run("cc", "-O2", "-D_GNU_SOURCE", "-o", str(folder / name), str(source))
            network = stack.enter_context(Network())
            for round_number in range(options.rounds):
                for size in options.sizes:
                    for name in options.targets:
                        train = max(1, min(_TRAIN, 60_000 // size)) if name == "offload" else 1
                        load = Load(network, folder / "switch_load", size, train)
                        network.offload("on" if train > 1 else "off")
                        with target(name, network, folder) as process:
                            rate, cost, at_least = load.capacity(process)
                            median, tail = (0.0, 0.0) if train > 1 else load.latency()
                            if options.profile:
                                print(profile(load, process, rate, folder), file=sys.stderr)
                        results.append(Result(name, size, round_number, rate, round(cost, 2), at_least, median, tail))
                        print(_line(results[-1]), file=sys.stderr)
    except WireError as error:
        print(f"switch: error: {error}", file=sys.stderr)
        return 2
    print(json.dumps([asdict(item) for item in results], indent=1) if options.json else _table(results))
    return 0


def _line(item: Result) -> str:
    limit = "  (the sender's limit)" if item.at_least else ""
    cost = f"{item.packets_per_second:9} packets/s {item.cpu_us:6.2f} us CPU"
    latency = f"  latency {item.p50_us:.0f} us, p99 {item.p99_us:.0f} us" if item.p50_us else ""
    return f"{item.target:10} {item.size:5} B {cost}{latency}{limit}"


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _table(results: list[Result]) -> str:
    """Medians over the rounds, and their ratios to the copy loop's and to BMv2's."""
    lines = ["target      payload  packets/s  us CPU  of copy  of BMv2  latency p50   p99 us"]
    for size in sorted({item.size for item in results}):
        same = [item for item in results if item.size == size]
        rates = {
            name: _median([item.packets_per_second for item in same if item.target == name])
            for name in dict.fromkeys(item.target for item in same)
        }
        for name, rate in rates.items():
            mine = [item for item in same if item.target == name]
            cost, p50, p99 = (_median([getattr(item, key) for item in mine]) for key in ("cpu_us", "p50_us", "p99_us"))
            copy = f"{rate / rates['copy']:8.0%}" if rates.get("copy") else " " * 8
            bmv2 = f"{rate / rates['bmv2']:8.1f}x" if rates.get("bmv2") else " " * 9
            latency = f"{p50:11.0f} {p99:8.0f}" if p50 else ""
            limit = "  at least: the sender's limit" if any(item.at_least for item in mine) else ""
            lines.append(f"{name:10} {size:6} B {rate:10.0f} {cost:7.2f} {copy} {bmv2} {latency}{limit}")
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--targets",
        type=lambda text: text.split(","),
        default=list(TARGETS),
        metavar="NAMES",
        help=f"of {', '.join(TARGETS)}; in turn (default all)",
    )
    parser.add_argument(
        "--sizes",
        type=lambda text: [int(item) for item in text.split(",")],
        default=[64, 1448],
        metavar="BYTES",
        help="of the UDP payload (default 64,1448)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="(default 3)")
    parser.add_argument("--profile", action="store_true", help="a profile by perf of each target, at its capacity")
    parser.add_argument("--json", action="store_true", help="every bisection as JSON")
    parser.add_argument("--configure", nargs=2, help=argparse.SUPPRESS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
