# SPDX-License-Identifier: Apache-2.0
"""Open MPI over TCP on a benchmark's hosts: a process of mpi_worker.c on each, asked through the first.

Its settings are the best found for hosts that share a few cores: ranks in turn have a core each, who waits gives it up
after each look for messages (MPI never sleeps), and Open MPI chooses the algorithm itself.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path

from bench.harness.agent_hosts import AgentHosts
from bench.harness.netns import run
from bench.harness.worker import Worker

PACKAGES = "openmpi-bin libopenmpi-dev"
"""Debian's, that this needs."""
_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
_NAMED = ("unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"')  # or all hosts would be one node


def installed() -> bool:
    """Whether Open MPI is, and what compiles for it."""
    return shutil.which("mpirun") is not None and shutil.which("mpicc") is not None


def start(stack: ExitStack, hosts: AgentHosts, folder: Path, *, slow: bool) -> Worker:
    """The processes on all hosts, ready, as the one that answers for them; until the stack ends.

    `slow`: ports, not CPUs, are the limit. Raises FabricError or ProcessError.
    """
    program = folder / "mpi_worker"
    run("mpicc", "-O3", "-o", str(program), str(Path(__file__).with_name("mpi_worker.c")))
    places: dict[str, list[int]] = {}
    for host in range(hosts.count):
        places.setdefault(hosts.namespace(host), []).append(host)
    slots = ",".join(f"{hosts.address(members[0])}:{len(members)}" for members in places.values())
    settings = {
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": hosts.interface,
        "oob_tcp_if_include": hosts.interface,
        "mpi_yield_when_idle": "1",
        # A large message in one piece ("put") costs less CPU, but at a port its two directions wait for each other, and
        # an exchange takes twice as long.
        **({"btl_tcp_flags": "send"} if slow else {}),
        "orte_tmpdir_base": str(folder),
        "plm_rsh_agent": str(_write_rsh(folder / "rsh", hosts, places)),
        "plm_rsh_no_tree_spawn": "1",
    }
    command = ["ip", "netns", "exec", hosts.namespace(0), *_NAMED, hosts.namespace(0), "mpirun"]
    command += ["--host", slots, "-np", f"{hosts.count}", "--oversubscribe", "--bind-to", "none"]
    command += [word for name, value in settings.items() for word in ("--mca", name, value)]
    worker = stack.enter_context(Worker("Open MPI", [*command, str(program)], environment=_AS_ROOT))
    worker.wait_for("ready")
    return worker


def _write_rsh(path: Path, hosts: AgentHosts, places: dict[str, list[int]]) -> Path:
    """What mpirun calls in place of ssh, with an address and a command for the shell there."""
    cases = "\n".join(f"{hosts.address(members[0])}) name={name} ;;" for name, members in places.items())
    there = f'exec ip netns exec $name {" ".join(_NAMED[:3])} -c "hostname $name && $*"'
    path.write_text(f"#!/bin/sh\ncase $1 in\n{cases}\n*) exit 1 ;;\nesac\nshift\n{there}\n", encoding="utf-8")
    path.chmod(0o755)
    return path
