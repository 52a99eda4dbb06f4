# SPDX-License-Identifier: Apache-2.0
"""What the agent's file lets a job have: no more, and what was given back may be had again."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gradlane._core import lib

from gradlane import AgentError, Communicator
from tests.support.agents import PATIENCE, Agent, agents, loopback, running, until
from tests.support.communicators import Ranks, joined
from tests.support.members import job_file
from tests.support.resources import holds_no_more_after


@contextlib.contextmanager
def limited(folder: Path, count: int, **limits: str) -> Iterator[tuple[list[Agent], Ranks]]:
    """Agents with these limits, and a job on them."""
    addresses = loopback(count, first=31)
    config = folder / "agent.toml"
    config.write_text("[limits]\n" + "".join(f'{name} = "{value}"\n' for name, value in limits.items()))
    file = job_file(folder, addresses, lines='collective = "direct"')
    with agents(folder, addresses, "--config", config) as started, joined(started, file, count) as ranks:
        yield started, ranks


def region(c: Communicator, nbytes: int) -> int:
    """The number of a region that the process has from now on."""
    answer, fds = c.connection.link.request({"op": "region", "bytes": nbytes}, descriptors=1)
    for fd in fds:
        os.close(fd)
    return answer["region"]


def test_what_waits_for_a_slower_worker_takes_as_much_memory_as_the_agents_file_says(tmp_path: Path) -> None:
    limit = 256 << 10
    with limited(tmp_path, 2, memory="256KiB") as (started, workers):

        def late() -> Any:
            return started[1].status()["jobs"]["trial"]

        ones = np.ones(1 << 20, np.float32)
        early = workers[0].all_reduce(ones, op="sum", asynchronous=True)
        until(lambda: late()["counts"]["no_memory"] > 0)
        assert late()["memory"]["limit"] == limit
        assert limit / 2 < late()["memory"]["used"] <= limit
        workers[1].all_reduce(ones, op="sum")
        assert (early.wait(PATIENCE) == 2).all()


def test_regions_residuals_and_tensors_are_given_back_whole(tmp_path: Path) -> None:
    with limited(tmp_path, 1, shared="64KiB") as ([agent], [only]):
        only.gradient("kept", (4096,))
        with holds_no_more_after(agent):
            for _ in range(8):
                only.connection.link.tell({"op": "release", "region": region(only, 40_000)})
                assert not only.residuals()["kept"].any()
                only.connection.tensor("other", 4096, "float32").close()
            assert only.statistics()["kept_slices"] == 0  # all before it has been done
        assert region(only, 48 << 10) == 0


def test_a_job_that_is_over_holds_nothing_whenever_python_collects_garbage(tmp_path: Path) -> None:
    never = ("-c", "import gc, sys; gc.disable(); from gradlane.cli import main; sys.exit(main())")
    [address] = loopback(1, first=31)
    file = job_file(tmp_path, [address])

    def train() -> None:
        with joined([agent], file, 1) as [only]:
            for name in ("first", "second"):
                only.all_reduce(only.empty((4096,)), name)
            only.residuals()
            only.all_reduce(only.empty((4096,)), op="sum")
        until(lambda: not agent.status()["jobs"])

    with running(Agent(address, tmp_path / "agent.sock", program=never)) as [agent]:
        train()
        with holds_no_more_after(agent):
            for _ in range(3):
                train()


def test_a_process_has_no_more_regions_than_commands_can_name(tmp_path: Path) -> None:
    with limited(tmp_path, 1, shared=f"{lib.GL_MAX_REGIONS + 1}B") as (_, [only]):
        assert [region(only, 1) for _ in range(lib.GL_MAX_REGIONS)] == list(range(lib.GL_MAX_REGIONS))
        for _ in range(2):  # what was refused takes nothing of limits.shared
            with pytest.raises(AgentError, match="a process has at most 4096 regions"):
                region(only, 1)
