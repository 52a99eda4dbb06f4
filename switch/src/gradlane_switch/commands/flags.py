# SPDX-License-Identifier: Apache-2.0
"""The flags of `gradlane-switch`. Where simple_switch_grpc has the same flag, the name is the same."""

from __future__ import annotations

import argparse
from pathlib import Path

from gradlane import logs
from gradlane.flag_file import FlagFile
from gradlane.units import checked, parse_size
from gradlane_switch.dataplane.interfaces import DEFAULT_MTU
from gradlane_switch.dataplane.port_config import DEFAULT_COALESCE, parse_mtu, parse_time
from gradlane_switch.errors import UsageError
from gradlane_switch.p4runtime.server import DEFAULT_MAX_MESSAGE, MIN_MAX_MESSAGE, Tls

_EPILOG = """\
A port is NUMBER@INTERFACE with settings after commas. The interface is one of
  NAME                             a network interface (needs CAP_NET_RAW)
  tap:NAME                         a TAP interface, created if it does not exist
  udp:LOCAL:PORT-PEER:PORT         a tunnel: one frame per UDP datagram; needs no privileges
  pcap:IN,OUT                      pcap files, either or both. If all ports are files, the switch runs by the clock of
                                   their packets, and ends with them. Beside other ports: pcap:,OUT only.
                                   Tunnels and files also take mtu=1500
and the settings are
  rate=100mbit  buffer=64kB        towards the host; eight queues share the buffer
  weights=1:1:1:1:2:2:4:8          deficit round robin, queue 0 first; otherwise strict priority, queue 7 first
  ecn=30kB                         queue length above which ECN-capable packets are marked (CE)
  up=no                            drop packets in both directions
  loss=0.01                        share of packets that are lost, at random
  burst-loss=0.01:0.3              lost in bursts (Gilbert-Elliott): chance to enter a burst, and to leave it; then, if
                                   wanted, the share lost within (1) and outside (0)
  delay=1ms  jitter=200us  reorder=0.01  reorder-delay=1ms  duplicate=0.01  corrupt=0.001
loss and what follows impair the link to the host; with rx- in front (rx-delay=1ms), the link from the host.

To list, add, change and remove ports of a running switch, see `gradlane-switch port --help`.
To see what happens to a packet and why, see `gradlane-switch trace --help`.

examples:
  gradlane-switch --grpc-server-addr 127.0.0.1:9559 -i 1@s1-eth1,rate=100mbit,buffer=64kB -i 2@s1-eth2
  gradlane-switch --program gradlane.json --p4info gradlane.p4info.txtpb -i 1@s1-eth1 -i 2@s1-eth2,loss=0.01 --seed 7
  gradlane-switch -i 1@udp:127.0.0.1:5001-127.0.0.1:6001 -i 2@udp:127.0.0.1:5002-127.0.0.1:6002 --metrics 127.0.0.1:9561
  gradlane-switch --program p.json --p4info p.txtpb --entries e.txtpb -i 1@pcap:in.pcap -i 2@pcap:,out.pcap,rate=10mbit
"""


def add(parser: argparse.ArgumentParser) -> FlagFile:
    """The flags of a switch that runs, which may stand in a file."""
    parser.epilog = _EPILOG
    parser.add_argument("--device-id", type=int, default=1, help="P4Runtime device id (default 1)")
    parser.add_argument(
        "--grpc-server-addr",
        default="127.0.0.1:9559",
        metavar="ADDRESS:PORT",
        help="where to serve P4Runtime, or unix:PATH (default 127.0.0.1:9559)",
    )
    _add_tls(parser)
    parser.add_argument("--admin", type=Path, metavar="PATH", help="Unix socket for `gradlane-switch port` and `trace`")
    parser.add_argument("--metrics", type=_endpoint, metavar="ADDRESS:PORT", help="serve Prometheus metrics over HTTP")
    parser.add_argument(
        "-i",
        "--interface",
        action="append",
        default=[],
        metavar="PORT",
        dest="ports",
        help="a port, see below; repeat it for each port",
    )
    parser.add_argument(
        "--cpu-port", type=_port_number, metavar="NUMBER", help="port for packets to and from the controller"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the links' impairments (default 0)")
    parser.add_argument(
        "--mtu",
        type=checked(parse_mtu),
        default=DEFAULT_MTU,
        metavar="BYTES",
        help="largest MTU of ports that are added later (default 1500, or the largest at the start)",
    )
    parser.add_argument(
        "--coalesce",
        type=checked(parse_time),
        default=DEFAULT_COALESCE,
        metavar="TIME",
        help="how long packets may gather before they are received together, like ethtool's rx-usecs: less CPU time "
        f"for more latency (default {DEFAULT_COALESCE // 1000}us)",
    )
    parser.add_argument("--program", type=Path, metavar="JSON", help="start with this program; needs --p4info")
    parser.add_argument("--p4info", type=Path, metavar="TXTPB", help="the program's P4Info in text format")
    parser.add_argument(
        "--entries", type=Path, metavar="TXTPB", help="write this p4.v1.WriteRequest (text format) at the start"
    )
    parser.add_argument(
        "--drain",
        type=checked(parse_time),
        default=10**9,
        metavar="TIME",
        help="how long queued packets may still leave after SIGTERM (default 1s)",
    )
    parser.add_argument("--json", action="store_true", help="with pcap ports: print the counts at the end as JSON")
    parser.add_argument(
        "-L",
        "--log-level",
        choices=logs.LEVELS,
        default="info",
        help="what to log (default info)",
    )
    parser.add_argument(
        "--log-format", choices=logs.FORMATS, default="text", help="text for people, or json (default text)"
    )
    return FlagFile(parser, "/etc/gradlane-switch/s1.toml")


def _endpoint(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not ADDRESS:PORT, e.g. 127.0.0.1:9561")
    return host.strip("[]"), int(port)


def _add_tls(parser: argparse.ArgumentParser) -> None:
    """Flags of the gRPC server, named as those of simple_switch_grpc."""
    group = parser.add_argument_group("gRPC server")
    group.add_argument("--grpc-server-ssl", action="store_true", help="use TLS: needs a certificate and its key")
    group.add_argument("--grpc-server-cert", type=Path, metavar="PEM", help="the switch's certificate")
    group.add_argument("--grpc-server-key", type=Path, metavar="PEM", help="the certificate's private key")
    group.add_argument("--grpc-server-cacert", type=Path, metavar="PEM", help="who signs the controllers' certificates")
    group.add_argument(
        "--grpc-server-with-client-auth", action="store_true", help="mutual TLS: controllers need a certificate too"
    )
    group.add_argument(
        "--grpc-server-max-message",
        type=checked(parse_size),
        default=DEFAULT_MAX_MESSAGE,
        metavar="SIZE",
        help="longest request: a pipeline or a batch (default 64MiB)",
    )


def check(args: argparse.Namespace) -> None:
    """Raises UsageError if flags contradict one another."""
    if (args.program is None) != (args.p4info is None):
        raise UsageError("--program and --p4info go together")
    if args.entries is not None and args.program is None:
        raise UsageError("--entries needs --program")
    if args.grpc_server_max_message < MIN_MAX_MESSAGE:
        raise UsageError("--grpc-server-max-message must be at least 4MiB, the least that P4Runtime demands")
    if not args.grpc_server_ssl:
        for name in ("cert", "key", "cacert", "with_client_auth"):
            if getattr(args, f"grpc_server_{name}"):
                raise UsageError(f"--grpc-server-{name.replace('_', '-')} needs --grpc-server-ssl")
        return
    if args.grpc_server_cert is None or args.grpc_server_key is None:
        raise UsageError("--grpc-server-ssl needs --grpc-server-cert and --grpc-server-key")
    if args.grpc_server_with_client_auth and args.grpc_server_cacert is None:
        raise UsageError("--grpc-server-with-client-auth needs --grpc-server-cacert")


def tls_of(args: argparse.Namespace) -> Tls | None:
    """The TLS files that the flags name; None without TLS."""
    if not args.grpc_server_ssl:
        return None
    authority, mutual = args.grpc_server_cacert, args.grpc_server_with_client_auth
    return Tls(args.grpc_server_cert, args.grpc_server_key, authority, mutual)


def _port_number(text: str) -> int:
    """A port number. Raises ArgumentTypeError."""
    if not text.isdecimal() or not 0 < int(text) < 511:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number (1..510; v1model drops by 511)")
    return int(text)
