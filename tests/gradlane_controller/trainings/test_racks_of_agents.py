# SPDX-License-Identifier: Apache-2.0
"""Agents whose job the controller makes reduce by the racks of its fabric file."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradlane
from gradlane_controller.api.tokens import Scope
from tests.gradlane_controller.api.server import Server
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.support.agents import Agent, loopback, running

# Of each rank's host. By rank, 0 and 1 would be in a row, and 2 and 3.
LEAVES = ("s1", "s2", "s2", "s1")
ADDRESSES = loopback(len(LEAVES), first=141)


def fabric(switches: list[str]) -> str:
    """A thin link between two switches, on paper: the agents' datagrams go over the loopback interface."""
    text = ""
    for number, address in enumerate(switches, 1):
        text += f'[[switch]]\nname = "s{number}"\ndevice_id = {number}\naddress = "{address}"\n'
    text += '[[link]]\nends = ["s1:9", "s2:9"]\nrate = "50mbit"\nbuffer = "64kB"\n'
    for rank, (leaf, address) in enumerate(zip(LEAVES, ADDRESSES, strict=True)):
        text += (
            f'[[port]]\nswitch = "{leaf}"\nnumber = {rank + 1}\nhost = "h{rank}"\nmac = "02:00:00:00:0{rank}:01"\n'
            f'host_mac = "02:00:00:00:0{rank}:02"\naddress = "{address}"\nrate = "1gbit"\nbuffer = "64kB"\n'
        )
    return text


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with ExitStack() as stack:
        switches = [FakeSwitch() for _ in range(2)]
        for it in switches:
            it.start()
            stack.callback(it.stop)
        server = Server(tmp_path, fabric=fabric([it.address for it in switches]))
        stack.callback(server.close)
        yield server


def agent(server: Server, folder: Path, rank: int) -> Agent:
    token, config = folder / f"{rank}.token", folder / f"{rank}.toml"
    token.write_text(server.make_token(Scope.AGENTS, host=f"h{rank}")[1])
    config.write_text(f'[controller]\nurl = "127.0.0.1:{server.port}"\ntoken_file = "{token}"\n')
    return Agent(ADDRESSES[rank], folder / f"{rank}.sock", "--config", config)


def test_a_grid_has_the_racks_of_the_fabric_as_rows(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADLANE_CONTROLLER", f"127.0.0.1:{server.port}")
    monkeypatch.setenv("GRADLANE_TOKEN", server.tokens["jobs"])
    monkeypatch.setenv("GRADLANE_JOB_NAME", "racks")
    template = tmp_path / "template.toml"
    template.write_text('[transport]\ncollective = "grid"\n')
    monkeypatch.setenv("GRADLANE_TEMPLATE", str(template))
    ranks = range(len(LEAVES))
    with running(*(agent(server, tmp_path, rank) for rank in ranks)) as agents, ThreadPoolExecutor(len(ranks)) as pool:

        def train(rank: int) -> tuple[Any, set[int]]:
            with gradlane.Communicator(None, rank, agents[rank].socket, workers=len(ranks)) as communicator:
                values = np.arange(60_000, dtype=np.float32) * (rank + 1)
                found = communicator.all_reduce(values, name="x")
                counts = agents[rank].status()["jobs"]["racks"]["peers"]
                spoken_to = {int(other) for other, it in counts.items() if it["counts"]["slices_sent"]}
                communicator.barrier()
                return found, spoken_to

        results = list(pool.map(train, ranks))
    for found, _ in results:
        np.testing.assert_array_equal(found, results[0][0])
        np.testing.assert_allclose(found, np.arange(60_000) * 2.5, rtol=1e-6)
    # Each with the other one of its rack, and with one of the other rack.
    assert [spoken_to for _, spoken_to in results] == [{3, 1}, {2, 0}, {1, 3}, {0, 2}]
