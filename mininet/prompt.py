# SPDX-License-Identifier: Apache-2.0
"""An interactive Mininet prompt on a fabric of P4 switches, with the controller running."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gradlane.units import checked, format_rate, parse_rate, parse_size
from lab import command_line
from lab.experiment.runner import ready_machine
from lab.model.errors import TopologyError
from lab.model.plan import FabricPlan
from lab.model.preconditions import find_program
from lab.model.topology import KINDS, Topology

HOSTS = (2, 64)
_EXAMPLES = """examples:
  sudo .venv/bin/python mininet/prompt.py
  sudo .venv/bin/python mininet/prompt.py --topo leafspine --leaves 2 --spines 2 --hosts 4
  sudo .venv/bin/python mininet/prompt.py --topo leafspine --switch gradlane,spine1=bmv2 --rate 50mbit --buffer 64kB
  sudo .venv/bin/python mininet/prompt.py --topo dumbbell --test
  echo 'h1 ping -c 3 h2' | sudo .venv/bin/python mininet/prompt.py --topo star --hosts 2

at the prompt:
  pingall                  every host pings every other
  h1 ping -c 3 h4          a command on a host; host names stand for their addresses
  h1 traceroute -n h4      the controller answers for the switches
  link leaf1 spine1 down   "up" brings it back; at least one end must not be BMv2's
  switch spine1 stop       it dies; "start" brings it back, empty
  sh .venv/bin/gradlane-controller counters
  h1 curl -s 127.0.0.1:9560/readyz   every host reaches the controller there, beside its links
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the prompt; returns the exit status: 0, 1 (something failed, or --test did), 2 (usage, or the machine)."""
    return command_line.run(_parser(), _prompt, arguments)


def _prompt(options: argparse.Namespace) -> int:
    if not HOSTS[0] <= options.hosts <= HOSTS[1]:
        raise TopologyError(f"hosts is {options.hosts}; it must be from {HOSTS[0]} to {HOSTS[1]}")
    topology = Topology(options.topo, options.leaves, options.spines)
    plan = FabricPlan.of_hosts(topology, options.hosts, options.rate, options.buffer, options.switch)
    find_program("ping")
    with ready_machine([plan]):
        return _serve(plan, options.out, options.test)


def _serve(plan: FabricPlan, out: Path, test: bool) -> int:
    # Imported only now: preconditions says it better than an ImportError if Mininet is missing.
    from lab.net.network import Network
    from lab.net.prompt import Prompt, as_mininet

    names = ", ".join(f"{switch.name} ({switch.target})" for switch in plan.switches)
    print(f"{plan.topology}, {len(plan.hosts)} hosts, links of {format_rate(plan.rate)}; switches {names}")
    with Network(plan, out, neighbours=False) as network:
        print(f"ready: see it live at {network.page}; logs: {out / 'logs'}", flush=True)
        if test:
            lost = as_mininet(network).pingAll(timeout="5")
            print(f"test: {lost:g} % of the pings were lost")
            return 1 if lost else 0
        if sys.stdin.isatty():
            Prompt(network)
        else:
            # A script. Mininet hands what comes on its standard input to the command that runs, so that is not ours.
            silent, _writer = os.pipe()
            Prompt(network, stdin=os.fdopen(silent), script="/dev/stdin")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = command_line.parser("prompt.py", __doc__, _EXAMPLES)
    parser.add_argument("--topo", choices=KINDS, default="star", help="(default: %(default)s)")
    parser.add_argument("--leaves", type=int, default=2, metavar="N", help="of a leafspine, 1 to 8 (default: 2)")
    parser.add_argument("--spines", type=int, default=2, metavar="N", help="of a leafspine, 1 to 8 (default: 2)")
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="spread over the edge switches (default: 4)")
    command_line.add_switch(parser)
    parser.add_argument(
        "--rate", type=checked(parse_rate), default="100mbit", metavar="R", help="of every link (default: 100mbit)"
    )
    parser.add_argument(
        "--buffer", type=checked(parse_size), default="64kB", metavar="B", help="of a port (default: 64kB)"
    )
    parser.add_argument("--test", action="store_true", help="ping between all hosts and exit: 0 if no ping was lost")
    command_line.add_out(parser, "out/mininet")
    return parser


if __name__ == "__main__":
    sys.exit(main())
