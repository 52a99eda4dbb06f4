# SPDX-License-Identifier: Apache-2.0
"""Training with GRADLANE_CONTROLLER alone: the controller makes the job, and removes it when it is over."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gradlane import AgentError
from gradlane_controller.api.tokens import Scope
from tests.gradlane.torch import ranks
from tests.gradlane.torch.worker_training import from_the_controller, from_the_job_file
from tests.gradlane_controller.api.server import Server
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.support.agents import Agent, loopback, running, until

PLAIN = "[loss]\npush = 0.0\n"


@pytest.fixture
def switch() -> Iterator[FakeSwitch]:
    it = FakeSwitch()
    it.start()
    yield it
    it.stop()


@pytest.fixture
def server(switch: FakeSwitch, tmp_path: Path) -> Iterator[Server]:
    """Of a controller whose fabric has the agents' addresses: their datagrams go over the loopback interface, so what
    switches hold does not matter to them."""
    it = Server(tmp_path, fabric=fabric(switch.address, loopback(2, first=111)), grace=3.0)
    yield it
    it.close()


def fabric(switch: str, addresses: list[str]) -> str:
    ports = "".join(
        f'[[port]]\nnumber = {n}\nhost = "h{n}"\nmac = "02:00:00:00:0{n}:01"\nhost_mac = "02:00:00:00:0{n}:02"\n'
        f'address = "{address}"\nrate = "1gbit"\nbuffer = "64kB"\n'
        for n, address in enumerate(addresses, 1)
    )
    return f'[[switch]]\nname = "s1"\ndevice_id = 1\naddress = "{switch}"\n{ports}'


@pytest.fixture
def agents(server: Server, tmp_path: Path) -> Iterator[list[Agent]]:
    """That report to the controller, each with a token that names its host."""
    with running(*(agent(server, tmp_path, number) for number in (1, 2))) as found:
        yield found


def agent(server: Server, folder: Path, number: int) -> Agent:
    token = folder / f"agent{number}.token"
    token.write_text(server.make_token(Scope.AGENTS, host=f"h{number}")[1])
    config = folder / f"agent{number}.toml"
    config.write_text(f'[controller]\nurl = "127.0.0.1:{server.port}"\ntoken_file = "{token}"\n')
    return Agent(loopback(2, first=111)[number - 1], folder / f"{number}.sock", "--config", config)


def environment(server: Server, **more: str) -> dict[str, str]:
    return {
        "GRADLANE_CONTROLLER": f"127.0.0.1:1,127.0.0.1:{server.port}",  # of which the first is away
        "GRADLANE_TOKEN": server.tokens["jobs"],
        "GRADLANE_JOB_NAME": "small",
    } | more


def job_of(server: Server, name: str = "small") -> Any:
    status, found = server.ask("GET", f"/v1/jobs/{name}")
    return found if status == 200 else None


def test_a_model_trains_to_the_same_bits_as_with_a_job_file(
    server: Server, agents: list[Agent], tmp_path: Path
) -> None:
    expected = ranks.run(from_the_job_file, agents, ranks.job_file(tmp_path / "job.toml", agents))
    assert job_of(server) is None
    found = ranks.run(from_the_controller, agents, tmp_path / "none", environment=environment(server))
    assert found == expected
    until(lambda: job_of(server) is None)  # once all ranks have left


def test_what_agents_report_is_shown_and_a_job_that_is_left_is_removed(
    server: Server, agents: list[Agent], tmp_path: Path
) -> None:
    import gradlane

    def join(rank: int) -> Any:
        os.environ |= environment(server)
        return gradlane.Communicator(None, rank, agents[rank].socket, workers=2)

    ranks_of = both(join)
    until(lambda: state(server).get("agents") == 2)
    for step in range(20):
        both(lambda rank: ranks_of[rank].all_reduce(numbers(rank), name="x"))
        time.sleep(0.1)
        assert step < 20
    until(lambda: state(server)["step"]["number"] > 10 and state(server)["step"]["seconds"] is not None)
    assert 0.05 < state(server)["step"]["seconds"] < 60
    # One rank has come to the step, and the other has not.
    pending = ranks_of[0].all_reduce(numbers(0), name="x", asynchronous=True)
    until(lambda: [(it["who"], it["for"]) for it in state(server)["waits"]] == [("h1", "h2")])
    ranks_of[1].all_reduce(numbers(1), name="x")
    pending.wait()
    shown = server.ask("GET", "/v1/agents", token="read")[1]["items"]
    assert [(it["host"], it["jobs"], it["addresses"]) for it in shown] == [
        (f"h{n}", ["small"], [agents[n - 1].address]) for n in (1, 2)
    ]
    assert agents[0].status()["controller"]["problem"] == ""
    both(lambda rank: ranks_of[rank].close())
    until(lambda: job_of(server) is None)


def test_a_job_whose_agents_vanish_is_collected_after_the_grace_time(
    server: Server, agents: list[Agent], switch: FakeSwitch
) -> None:
    import gradlane

    held = dict(switch.entities)

    def join(rank: int) -> Any:
        os.environ |= environment(server)
        return gradlane.Communicator(None, rank, agents[rank].socket, workers=2)

    joined = both(join)
    until(lambda: state(server).get("agents") == 2)
    assert switch.entities != held
    time.sleep(4.0)  # longer than the grace time, but they report
    assert job_of(server) is not None
    for each in agents:
        each.kill()
    until(lambda: job_of(server) is None)
    assert switch.entities == held
    for rank in joined:
        with pytest.raises(AgentError):
            rank.all_reduce(numbers(0))


def test_an_agent_that_reports_to_no_controller_has_no_such_job(server: Server, tmp_path: Path) -> None:
    import gradlane

    address = loopback(1, first=111)[0]
    with running(Agent(address, tmp_path / "alone.sock")) as (alone,):
        os.environ |= environment(server)
        with pytest.raises(AgentError, match="reports to no controller"):
            gradlane.Communicator(None, 0, alone.socket, workers=1)


@pytest.fixture(autouse=True)
def untouched() -> Iterator[None]:
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ |= before


def both(act: Callable[[int], Any]) -> list[Any]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(act, (0, 1)))


def numbers(rank: int) -> Any:
    import numpy as np

    return np.full(5000, rank + 1.0, np.float32)


def state(server: Server) -> Any:
    """Of the job."""
    jobs = server.ask("GET", "/v1/state")[1]["jobs"]
    return next((it for it in jobs if it["name"] == "small"), {})
