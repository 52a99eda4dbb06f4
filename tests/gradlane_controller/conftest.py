# SPDX-License-Identifier: Apache-2.0
"""Switches and controllers that end with their test."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from tests.gradlane_controller.controller_process import PATIENCE, Running
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.running_switches import FramesOverGrpc, Target, Tunnels, bmv2, find, gradlane_switch
from tests.support.ports import free_ports


@pytest.fixture
def make_fake_switch() -> Iterator[Callable[[], FakeSwitch]]:
    made: list[FakeSwitch] = []

    def make() -> FakeSwitch:
        made.append(FakeSwitch())
        made[-1].start()
        return made[-1]

    yield make
    for switch in made:
        switch.stop()


@pytest.fixture
def fake_switch(make_fake_switch: Callable[[], FakeSwitch]) -> FakeSwitch:
    return make_fake_switch()


@pytest.fixture(params=["simple_switch_grpc", "gradlane-switch"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    command = find(request.param)
    if command is None:
        pytest.skip(f"{request.param} is not installed")
    address, frames = (f"127.0.0.1:{port}" for port in free_ports(2))
    if request.param == "gradlane-switch":
        tunnels = Tunnels(range(1, 6))
        it = Target("gradlane-switch", gradlane_switch(address, tunnels.interfaces, tmp_path), tunnels)
    else:
        it = Target("bmv2", bmv2(command, address, frames, tmp_path), FramesOverGrpc(frames))
    try:
        it.process.start()
        it.process.wait_until_reachable()
        yield it
    finally:
        it.wires.close()
        it.process.stop()


@contextlib.contextmanager
def controllers(folder: Path) -> Generator[Callable[..., Running], None, None]:
    """Starts `gradlane-controller run` with a fabric file, job files and more arguments; ends it at its own end."""
    started: list[Running] = []

    def start(fabric: str, *jobs: str, more: tuple[str, ...] = (), http_port: int | None = None) -> Running:
        arguments = ["--fabric", str(write(folder / "fabric.toml", fabric))]
        for number, job in enumerate(jobs):
            arguments += ["--job", str(write(folder / f"job{number}.toml", job))]
        token_file = folder / "fabric.db.token"
        arguments += ["--token-file", str(token_file)]
        started.append(Running([*arguments, *more], http_port or free_ports(1)[0], token_file))
        return started[-1]

    try:
        yield start
    finally:
        for each in started:
            if each.process.poll() is None:
                each.process.kill()
            each.process.wait(timeout=PATIENCE)


@pytest.fixture
def run_controller(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Controllers of one test."""
    with controllers(tmp_path) as start:
        yield start


def write(path: Path, text: str) -> Path:
    """In one step, as another controller may just read it."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    return draft.replace(path)
