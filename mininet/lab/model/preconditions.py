# SPDX-License-Identifier: Apache-2.0
"""What a run needs of the machine, checked before anything is built; and the lock against a second run."""

import fcntl
import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import IO

from lab.model.errors import PreconditionError

RUN_DIRECTORY = Path("/run/gradlane")
BMV2_OLDEST = (1, 15, 0)
_WHY_OLDEST = "its program and P4Runtime are used as they have been since then"
_COMMANDS = {
    "mnexec": "mininet",
    "ifconfig": "net-tools",
    "ethtool": "ethtool",
    "ip": "iproute2",
    "tc": "iproute2",
    "ping": "iputils-ping",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
_DEBIAN_PACKAGES = {**_COMMANDS, "cc": "gcc libc6-dev"}


def find_program(name: str) -> str:
    """The path of a program: beside the running Python (its virtual environment), else on PATH.

    Raises PreconditionError that says which package brings it.
    """
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if found:
        return found
    if name in _DEBIAN_PACKAGES:
        raise PreconditionError(f"{name} is not on PATH: apt-get install {_DEBIAN_PACKAGES[name]}")
    if name == "simple_switch_grpc":
        raise PreconditionError(
            "simple_switch_grpc (BMv2) is not on PATH: build it from github.com/p4lang/behavioral-model, "
            "or use --switch gradlane, which needs no BMv2"
        )
    raise PreconditionError(f"{name} is not installed beside {sys.executable}: make .venv/.ready")


def check_root() -> None:
    """Raises PreconditionError unless this is root."""
    if os.geteuid() != 0:
        raise PreconditionError("not root: network namespaces need it; run it with sudo")


def check(targets: Collection[str], ports: Iterable[int], interfaces: Sequence[str], pipeline: Path) -> None:
    """Checks everything that a run on these `targets` ("gradlane", "bmv2") needs. Raises PreconditionError.

    `ports` are the TCP ports that the switches and the controller will use on the loopback; `interfaces` the names that
    the switches' ends of the links will have; `pipeline` the folder of p4c's output.
    """
    try:
        importlib.import_module("mininet.node")
    except ImportError as problem:
        raise PreconditionError(f"Mininet's Python package is missing ({problem}): apt-get install mininet") from None
    for program in (
        "mnexec",
        "ifconfig",
        "ethtool",
        "ip",
        "tc",
        "unshare",
        "setpriv",
        "gradlane",
        "gradlane-controller",
    ):
        find_program(program)
    if "gradlane" in targets:
        find_program("cc")
        find_program("gradlane-switch")
    if "bmv2" in targets:
        _check_bmv2(find_program("simple_switch_grpc"))
    for program in ("gradlane", "gradlane-aggregation"):
        for path in (pipeline / f"{program}.json", pipeline / f"{program}.p4info.txtpb"):
            if not path.is_file():
                raise PreconditionError(f"{path} is missing: make p4")
    _check_kernel(targets)
    present = {name for _, name in socket.if_nameindex()}
    for interface in interfaces:
        if interface in present:
            raise PreconditionError(
                f"interface {interface} exists already, perhaps of another Mininet: end that, "
                f"or remove it with `ip link delete {interface}`"
            )
    for port in ports:
        _check_port(port)


def _check_bmv2(program: str) -> None:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    match = re.search(r"(\d+)\.(\d+)\.(\d+)", done.stdout + done.stderr)
    oldest = ".".join(map(str, BMV2_OLDEST))
    if match is None:
        raise PreconditionError(f"{program} --version names no version; BMv2 {oldest} or newer is needed")
    if tuple(int(part) for part in match.groups()) < BMV2_OLDEST:
        raise PreconditionError(
            f"{program} is BMv2 {match[0]}; {oldest} (of 2024-11) or newer is needed: {_WHY_OLDEST}"
        )


def _check_kernel(targets: Collection[str]) -> None:
    """Tries in a throw-away namespace what the fabric is made of, and looks whether the kernel really did it."""
    needed = {
        "veth": ("ip link add gl0 type veth peer name gl1", "veth links are", "veth"),
        "tbf": ("tc qdisc add dev gl0 root tbf rate 100mbit burst 10000b limit 64000b", "the qdisc tbf is", "sch_tbf"),
    }
    if "bmv2" in targets:
        htb = "tc qdisc replace dev gl1 root handle 1: htb default 1"
        u32 = "tc filter add dev gl1 parent 1: protocol ip prio 1 u32 match ip dsfield 0 0 flowid 1:1"
        needed |= {"htb": (htb, "the qdisc htb is", "sch_htb"), "u32": (u32, "the filter u32 is", "cls_u32")}
    words = [f"{command} && echo done {name}" for name, (command, *_) in needed.items()]
    argv = ["unshare", "--net", "sh", "-c", "; ".join([*words, "tc qdisc show; tc filter show dev gl1"])]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    said = (done.stderr.strip().splitlines() or ["no reason given"])[0]
    if not done.stdout and done.returncode:
        raise PreconditionError(
            f"network namespaces are refused here ({said}): run on the machine itself, "
            "or in a container with --privileged"
        )
    for name, (_, what, module) in needed.items():
        if f"done {name}" not in done.stdout or (name != "veth" and done.stdout.count(name) < 2):
            raise PreconditionError(f"{what} not supported here ({said}): modprobe {module}")


def _check_port(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as problem:
            raise PreconditionError(
                f"TCP port {port} on 127.0.0.1 is busy ({problem.strerror}): "
                f"end what holds it, see `ss -ltnp sport = :{port}`"
            ) from None


def lock() -> IO[str]:
    """Takes the lock that only one run on a machine can have; it goes with the returned file. Raises PreconditionError.

    Interface names and ports are the same in every run, so two runs would get in each other's way.
    """
    RUN_DIRECTORY.mkdir(parents=True, exist_ok=True)
    file = (RUN_DIRECTORY / "lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise PreconditionError(
            f"another run (pid {holder}) holds {RUN_DIRECTORY / 'lock'}: wait for its end, or end it"
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
