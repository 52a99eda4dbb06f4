# SPDX-License-Identifier: Apache-2.0
"""Jobs whose gradients a switch sums, with agents in network namespaces: it comes, goes and comes back. It needs root.

Contributions are such that their sums have no rounding error, neither by the switch nor by hosts. So each step's result
must be exactly the sum of what the ranks contributed to it, whoever has summed it.
"""

import signal
import time
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradlane import Communicator
from gradlane.errors import AgentError
from tests.support import members
from tests.support.agents import PATIENCE, Agent, pause
from tests.support.communicators import each, join, joined
from tests.support.counted_steps import ELEMENTS, LINES, CountedSteps
from tests.support.needs import needs, needs_root
from tests.support.sum_relay import SumLan

pytestmark = [needs_root, needs("ethtool")]

HOSTS = 3
SUMS = IPv4Address("239.1.0.1") + HOSTS  # behind the addresses of the hosts' own results
TRANSPORT = 'collective = "switch"\nwire = "int32"\nmulticast = "239.1.0.1"\nbuffer = "1MB"\nsum_window = 16'
SIZES = (9000, 400)  # elements: of many slices, and of two


class Steps:
    """Steps of all ranks, each with the sum of several gradients."""

    def __init__(self, ranks: list[Communicator]) -> None:
        self.ranks = ranks
        self.number = 0

    def contribution(self, rank: int, size: int) -> np.ndarray:
        values = np.random.default_rng([self.number, rank, size]).integers(-255, 256, size)
        return (values / 256).astype(np.float32)

    def step(self, late: float = 0.0) -> None:
        """Rank 2 comes that many seconds after the others."""
        self.number += 1

        def reduce(comm: Communicator) -> list[np.ndarray]:
            if comm.rank == 2:
                time.sleep(late)
            pending = [
                comm.all_reduce(self.contribution(comm.rank, size), op="sum", name=f"w{size}", asynchronous=True)
                for size in SIZES
            ]
            return [it.wait(PATIENCE) for it in pending]

        for results in each(self.ranks, reduce):
            for size, result in zip(SIZES, results, strict=True):
                expected = sum(self.contribution(rank, size) for rank in range(len(self.ranks)))
                np.testing.assert_array_equal(result, expected, err_msg=f"step {self.number}, {size} elements")

    def until(self, condition: Callable[[], object], late: float = 0.0) -> None:
        begun = time.monotonic()
        while not condition():
            assert time.monotonic() < begun + PATIENCE, "it did not happen"
            self.step(late)
            pause(begun)


@pytest.fixture(scope="module", name="lan")
def _lan() -> Iterator[SumLan]:
    with SumLan(HOSTS) as lan:
        yield lan


@pytest.fixture(name="hosts")
def _hosts(lan: SumLan, tmp_path: Path) -> Iterator[list[Agent]]:
    with lan.agents(tmp_path) as hosts:
        yield hosts


@pytest.fixture(name="file")
def _file(lan: SumLan, tmp_path: Path) -> Path:
    return members.job_file(tmp_path, lan.addresses, lines=TRANSPORT)


def sums(host: Agent) -> dict[str, Any]:
    return host.status()["jobs"]["trial"]["sums"]


def counts(host: Agent) -> dict[str, int]:
    return host.status()["jobs"]["trial"]["counts"]


def test_the_switch_sums_and_results_are_exact(lan: SumLan, hosts: list[Agent], file: Path) -> None:
    with lan.switch(SUMS), joined(hosts, file, HOSTS) as ranks:
        steps = Steps(ranks)
        for _ in range(20):
            steps.step()
        for host in hosts:
            status, counted = sums(host), counts(host)
            assert (status["by_switch"], status["fallbacks"]) == (True, 0)
            assert status["share"] == pytest.approx(19 / 20)  # the first step is by hosts
            assert counted["summed_bytes"] == 19 * 4 * sum(SIZES)
            assert counted["sums_received"] >= 19 * 2
            assert (counted["sums_clipped"], counted["sum_reruns"]) == (0, 0)
        assert len({sums(host)["generation"] for host in hosts}) == 1
        # What hosts reduce is of the arrays' own type: a gradient's first step, and a collective.
        array = np.linspace(-3, 3, 5000, dtype=np.float32)
        for name in ("first", None):
            for result in each(ranks, lambda c, name=name: c.all_reduce(array * (c.rank == 0), op="sum", name=name)):
                np.testing.assert_array_equal(result, array)


def test_slices_of_one_word_and_sums_without_a_checksum(lan: SumLan, hosts: list[Agent], tmp_path: Path) -> None:
    """What a Tofino would do (docs/tofino.md): the job file says how large slices are."""
    file = members.job_file(tmp_path, lan.addresses, lines=f"{TRANSPORT}\nslice_bytes = 144")
    with lan.switch(SUMS, kind="tofino"), joined(hosts, file, HOSTS) as ranks:
        steps = Steps(ranks)
        for _ in range(10):
            steps.step()
        for host in hosts:
            assert (sums(host)["by_switch"], sums(host)["fallbacks"]) == (True, 0)
            assert counts(host)["summed_bytes"] == 9 * 4 * sum(SIZES)


def test_hosts_reduce_what_the_cost_model_gives_to_them_and_the_switch_the_rest(
    lan: SumLan, hosts: list[Agent], tmp_path: Path
) -> None:
    """There are slots for the first tensor alone."""
    lines = TRANSPORT.replace('"switch"', '"auto"') + "\nsum_slots = 32"
    file = members.job_file(tmp_path, lan.addresses, lines=lines)
    file.write_text(file.read_text().replace("1gbit", "20mbit"))  # so that ports are what matters
    with lan.switch(SUMS), joined(hosts, file, HOSTS) as ranks:
        steps = Steps(ranks)
        for _ in range(5):
            steps.step()
        for host in hosts:
            assert counts(host)["summed_bytes"] == 4 * 4 * SIZES[0]
            assert counts(host)["reduced_bytes"] == 5 * 4 * sum(SIZES)
            assert (sums(host)["fallbacks"], counts(host)["sum_reruns"]) == (0, 0)
            host.wait_for("all-reduce of 1 MiB: a switch: switch ")


def test_without_slots_hosts_sum_and_the_switch_does_as_soon_as_it_has_some(
    lan: SumLan, hosts: list[Agent], file: Path
) -> None:
    with joined(hosts, file, HOSTS) as ranks:
        steps = Steps(ranks)
        steps.step()
        begun = time.monotonic()
        steps.step()
        assert time.monotonic() - begun < 2
        for _ in range(5):
            steps.step()
        for host in hosts:
            status = sums(host)
            assert (status["by_switch"], status["fallbacks"], status["share"]) == (False, 1, 0)
            assert "has no slots for the job, or does not sum" in status["reason"]
            host.wait_for("hosts sum from now on: the switch has not answered")
        with lan.switch(SUMS):
            steps.until(lambda: all(sums(host)["by_switch"] for host in hosts))
            steps.until(lambda: all(sums(host)["share"] > 0 for host in hosts))
            for _ in range(10):
                steps.step()
            assert all(sums(host)["by_switch"] for host in hosts)
        hosts[0].wait_for("a switch sums: it is tried again after 1")
        assert len({sums(host)["generation"] for host in hosts}) == 1


def test_a_switch_that_is_killed_in_the_middle_costs_no_step(lan: SumLan, hosts: list[Agent], file: Path) -> None:
    with joined(hosts, file, HOSTS) as ranks:
        steps = Steps(ranks)
        with lan.switch(SUMS) as process:
            for _ in range(10):
                steps.step()
            process.send_signal(signal.SIGKILL)
            for _ in range(10):
                steps.step()
        for host in hosts:
            status = sums(host)
            assert (status["by_switch"], status["fallbacks"]) == (False, 1)
            assert "does not answer any more" in status["reason"]
            assert counts(host)["summed_bytes"] >= 9 * 4 * sum(SIZES)
        with lan.switch(SUMS):
            steps.until(lambda: all(sums(host)["by_switch"] for host in hosts))
            for _ in range(10):
                steps.step()
            assert [sums(host)["fallbacks"] for host in hosts] == [1] * HOSTS


def test_a_switch_that_forgets_everything_again_and_again_costs_no_step(
    lan: SumLan, hosts: list[Agent], file: Path
) -> None:
    """It is restarted while slices are on their way."""
    with joined(hosts, file, HOSTS) as ranks:
        steps = Steps(ranks)
        for restart in range(3):
            with lan.switch(SUMS) as process:
                for _ in range(3 + restart):
                    steps.step()
                process.send_signal(signal.SIGSTOP)  # slots half full
                process.send_signal(signal.SIGKILL)
        for _ in range(5):
            steps.step()
        assert all(sums(host)["fallbacks"] == 1 for host in hosts)


def test_a_late_worker_is_no_fault_of_the_switch(lan: SumLan, hosts: list[Agent], file: Path) -> None:
    with lan.switch(SUMS), joined(hosts, file, HOSTS) as ranks:
        steps = Steps(ranks)
        for _ in range(3):
            steps.step()
        steps.step(late=1.0)
        steps.step(late=2.0)
        for _ in range(3):
            steps.step()
        for host in hosts:
            status = sums(host)
            assert (status["by_switch"], status["fallbacks"]) == (True, 0)
            assert 2 <= status["halts"] <= 8
        hosts[0].wait_for("wait for rank 2 (h2")
        named = "rank 2 (h2, 10.77.0.3) is a straggler: late by"
        # As many steps as it takes: on a busy machine the others are late in some, too.
        steps.until(lambda: all(any(named in line for line in host.log) for host in hosts), late=0.03)


def test_steps_go_on_without_a_late_worker_within_its_budget_and_it_owes_what_it_has(
    lan: SumLan, hosts: list[Agent], tmp_path: Path
) -> None:
    rule = "\n[loss.late]\nafter = 0.5\nsteps = 2\nwindow = 6\n"
    file = members.job_file(tmp_path, lan.addresses, lines=TRANSPORT + rule)
    with lan.switch(SUMS), joined(hosts, file, HOSTS) as ranks:

        def step(comm: Communicator, value: float) -> Any:
            return comm.all_reduce(np.full(5000, value, np.float32), name="w", asynchronous=True)

        def ends(pending: list[Any], mean: float) -> None:
            for it in pending:
                np.testing.assert_array_equal(it.wait(PATIENCE), np.full(5000, mean, np.float32))

        for _ in range(2):
            ends([step(comm, 3.0) for comm in ranks], 3.0)
        for _ in range(2):
            begun = time.monotonic()
            ends([step(comm, 6.0) for comm in ranks[:2]], 4.0)
            assert time.monotonic() - begun >= 0.5
        third = [step(comm, 6.0) for comm in ranks[:2]]
        time.sleep(1)
        assert not any(it.done() for it in third), "the budget is used up"
        for _ in range(2):
            ends([step(ranks[2], 9.0)], 4.0)  # it is there already
        ends([*third, step(ranks[2], 6.0)], (6 + 6 + 6 + 9 + 9) / 3)
        ends([step(comm, 3.0) for comm in ranks], 3.0)
        (seen,) = hosts[2].status()["jobs"]["trial"]["left_out"]
        assert (seen["rank"], seen["steps"], seen["recent"], seen["budget"]) == (2, 2, 2, 2)
        assert [counts(host)["left_out"] for host in hosts] == [0, 0, 2]
        assert [(sums(host)["by_switch"], sums(host)["fallbacks"]) for host in hosts] == [(True, 0)] * HOSTS
        hosts[2].wait_for("was late, and has been left out: of 2 of the last 6 steps, 2 in all: as many as it may be")


def test_what_a_switch_loses_is_not_waited_for_within_the_budget_and_hosts_complete_what_it_has_begun(
    lan: SumLan, hosts: list[Agent], tmp_path: Path
) -> None:
    """It loses a twelfth of rank 0's contributions, of which a tenth may be missing, and is killed."""
    file = members.job_file(tmp_path, lan.addresses, lines=TRANSPORT + LINES.format(push=0.1))
    with joined(hosts, file, HOSTS) as ranks:
        steps = CountedSteps(ranks, 0.1)
        with lan.switch(SUMS, loss=1 / 12) as process:
            for _ in range(20):
                steps.step()
            assert sum(counts(host)["sums_closed"] for host in hosts) > 20
            assert counts(hosts[0])["sums_left_out"] == steps.missing[0] / (ELEMENTS / 100)
            assert counts(hosts[0])["sums_repaired"] < 20 * 100 / 12
            process.kill()
            for _ in range(5):
                steps.step()
        assert [sums(host)["fallbacks"] for host in hosts] == [1] * HOSTS
        with lan.switch(SUMS, loss=1 / 12):
            steps.until(lambda: all(sums(host)["by_switch"] for host in hosts))
            for _ in range(5):
                steps.step()
        assert [counts(host)["sums_over_budget"] for host in hosts] == [0] * HOSTS


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_dies_while_all_have_halted_is_named_and_nobody_waits_for_ever(
    lan: SumLan, hosts: list[Agent], file: Path, rank: int
) -> None:
    with lan.switch(SUMS) as process:
        ranks = join(file, hosts, HOSTS)
        steps = Steps(ranks)
        for _ in range(3):
            steps.step()
        process.kill()
        process.wait()
        hosts[rank].kill(signal.SIGSTOP)
        begun = time.monotonic()

        def fails(comm: Communicator) -> str:
            with pytest.raises(AgentError) as error:
                comm.all_reduce(np.ones(SIZES[0], np.float32), op="sum", name=f"w{SIZES[0]}", asynchronous=True).wait(
                    PATIENCE
                )
            return str(error.value)

        others = [comm for comm in ranks if comm.rank != rank]
        for reason in each(others, fails):
            assert f"rank {rank} (h{rank}, {lan.addresses[rank]})" in reason
        assert time.monotonic() - begun < 12
