# SPDX-License-Identifier: Apache-2.0
"""The packages do what they are for in an environment that has nothing else."""

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.gradlane_controller.texts import fabric_text
from tests.packages.environments import Environment
from tests.support.agents import loopback
from tests.support.paths import EXAMPLES, ROOT
from tests.support.ports import free_ports

PATIENCE = 60.0
PROGRAMS = ("gradlane", "gradlane-switch", "gradlane-controller")
TRAINING = """
import sys
import numpy as np
import gradlane
with gradlane.Communicator("job.toml", rank=int(sys.argv[1]), socket=sys.argv[2]) as comm:
    mean = comm.all_reduce(np.full(100_000, float(comm.rank), np.float32))
print(comm.size, set(mean.tolist()))
"""


@contextlib.contextmanager
def stopped(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """Ends it after the block, which it has to outlive."""
    try:
        yield process
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(PATIENCE)


def until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"{process.args} has ended"
        assert time.monotonic() < end, f"it did not happen: {process.args}"
        time.sleep(0.05)


def get(address: str, path: str = "/", token: str = "") -> bytes | None:
    """What is there, None as long as nobody answers that it is."""
    request = urllib.request.Request(
        f"http://{address}{path}", headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.read()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_says_its_version_has_help_and_a_manual_page(
    everything: Environment, tmp_path: Path, program: str
) -> None:
    version = (ROOT / "VERSION").read_text().strip()
    assert everything.run(program, "--version", cwd=tmp_path).startswith(f"{program} {version}")
    assert f"usage: {program}" in everything.run(program, "--help", cwd=tmp_path)
    title = (everything.share / "man" / "man1" / f"{program}.1").read_text().splitlines()[0].replace("\\-", "-")
    assert title.startswith(f'.TH {program.upper()} "1"')


def test_the_units_are_there(everything: Environment) -> None:
    there = {file.name for file in (everything.share / "gradlane" / "systemd").iterdir()}
    assert there == {file.name for file in (ROOT / "deploy" / "systemd").iterdir()}


def test_two_agents_all_reduce(agent: Environment, tmp_path: Path) -> None:
    addresses = loopback(2)
    text = (EXAMPLES / "job.toml").read_text()
    for old, new in zip(("127.0.0.1", "127.0.0.2"), addresses, strict=True):
        text = text.replace(f'"{old}"', f'"{new}"')
    (tmp_path / "job.toml").write_text(text)
    (tmp_path / "training.py").write_text(TRAINING)
    sockets = [tmp_path / f"{rank}.sock" for rank in range(2)]
    with contextlib.ExitStack() as stack:
        for address, socket in zip(addresses, sockets, strict=True):
            process = agent.start("gradlane", "agent", "--address", address, "--socket", socket, cwd=tmp_path)
            stack.enter_context(stopped(process))
            until(socket.exists, process)
        ranks = [
            agent.start("python", "training.py", rank, socket, cwd=tmp_path, stdout=subprocess.PIPE)
            for rank, socket in enumerate(sockets)
        ]
        assert [rank.communicate(timeout=PATIENCE)[0] for rank in ranks] == ["2 {0.5}\n"] * 2


def test_a_controller_fills_a_switch_and_serves_its_page(everything: Environment, tmp_path: Path) -> None:
    grpc, http, *tunnels = free_ports(10)
    (tmp_path / "fabric.toml").write_text(fabric_text(f"127.0.0.1:{grpc}"))
    ports = [
        word
        for number in range(1, 5)
        for word in ("-i", f"{number}@udp:127.0.0.1:{tunnels[2 * number - 2]}-127.0.0.1:{tunnels[2 * number - 1]}")
    ]
    everything.run("gradlane-controller", "validate", "fabric.toml", cwd=tmp_path)
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    address = f"127.0.0.1:{grpc}"
    switch = everything.start("gradlane-switch", "--grpc-server-addr", address, *ports, cwd=tmp_path, env=cache)
    run = ("run", "--fabric", "fabric.toml", "--http", f"127.0.0.1:{http}")
    with stopped(switch), stopped(everything.start("gradlane-controller", *run, cwd=tmp_path)) as controller:
        until(lambda: get(f"127.0.0.1:{http}", "/readyz"), controller)
        page = get(f"127.0.0.1:{http}")
        assert page is not None
        assert b"<title>" in page
        script = page.decode().partition('src="')[2].partition('"')[0]
        assert get(f"127.0.0.1:{http}", f"/{script.lstrip('./')}")
        token = (tmp_path / "fabric.db.token").read_text().strip()
        status = json.loads(get(f"127.0.0.1:{http}", "/v1/status", token) or b"{}")
        assert [each["name"] for each in status["switches"]] == ["s1"]


def test_a_switch_starts_with_the_packaged_program(everything: Environment, tmp_path: Path) -> None:
    (grpc, metrics) = free_ports(2)
    found = everything.run(
        "python", "-c", "import gradlane_controller; print(gradlane_controller.__path__[0])", cwd=tmp_path
    )
    program = Path(found.strip()) / "p4"
    flags = ("--program", program / "gradlane.json", "--p4info", program / "gradlane.p4info.txtpb")
    served = ("--grpc-server-addr", f"127.0.0.1:{grpc}", "--metrics", f"127.0.0.1:{metrics}")
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    with stopped(everything.start("gradlane-switch", *flags, *served, cwd=tmp_path, env=cache)) as switch:
        until(lambda: get(f"127.0.0.1:{metrics}", "/metrics"), switch)
