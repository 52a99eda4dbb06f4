# SPDX-License-Identifier: Apache-2.0
"""Which address an agent in a process takes where no job file says it."""

from pathlib import Path

import pytest

from gradlane import AgentError
from gradlane.client import in_process


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)


def test_it_is_the_one_by_which_the_master_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    for master in ("127.0.0.1", "::1"):
        monkeypatch.setenv("MASTER_ADDR", master)
        assert in_process.own_address("process") == master
    monkeypatch.setenv("MASTER_ADDR", "255.255.255.255")
    with pytest.raises(AgentError, match=r"not known: the way to MASTER_ADDR.*GRADLANE_SOCKET=process:FILE"):
        in_process.own_address("process")


def test_processes_of_one_machine_have_one_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    found: set[str] = set()
    for pid in (1, 2, 258, 4194303):
        monkeypatch.setattr(in_process.os, "getpid", lambda pid=pid: pid)
        found.add(in_process.own_address("process"))
    assert found == {"127.64.0.1", "127.64.0.2", "127.64.1.2", "127.127.255.255"}


def test_several_on_each_of_several_hosts_need_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(AgentError, match=r"LOCAL_WORLD_SIZE is 2.*start `gradlane agent` on each host"):
        in_process.own_address("process")


def test_a_configuration_may_say_it(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('address = ["10.9.8.7", "fd00::1"]')
    assert in_process.own_address(f"process:{file}") == "10.9.8.7"
