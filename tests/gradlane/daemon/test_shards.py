# SPDX-License-Identifier: Apache-2.0
"""Jobs over several runners: tensors are spread over them, or cut, and everything else is as with one."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from gradlane import AgentError
from tests.support import members
from tests.support.agents import Agent, loopback, running, until
from tests.support.communicators import Ranks, each, join, joined

HOSTS = 3
TYPES = ("float32", "float16", "float64", "int8", "int64")


@contextmanager
def started(folder: Path, runners: Sequence[int | str]) -> Iterator[list[Agent]]:
    """An agent for each, with so many runners."""
    starting: list[Agent] = []
    for number, (address, count) in enumerate(zip(loopback(len(runners), 61), runners, strict=True)):
        config = folder / f"{number}.toml"
        config.write_text(f'address = "{address}"\n[scheduling]\nrunners = {count}\n')
        starting.append(Agent(address, folder / f"{number}.sock", "--config", config))
    with running(*starting) as agents:
        yield agents


DIRECT = 'collective = "direct"'  # then sums are to the last bit those in the order of the ranks


def job_file(folder: Path, lines: str = DIRECT, hosts: int = HOSTS, **job: object) -> Path:
    file = members.job_file(folder, loopback(hosts, 61), lines=f'buffer = "4MB"\n{lines}', **job)
    file.write_text(file.read_text().replace("1gbit", "10gbit"))
    return file


def shards(agent: Agent, name: str = "trial") -> int:
    return int(agent.status()["jobs"][name]["shards"])


def arrays(count: int, dtype: str, seed: int, ranks: int) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    if dtype.startswith("float"):
        return [random.standard_normal(count).astype(dtype) for _ in range(ranks)]
    return [random.integers(-20, 20, count).astype(dtype) for _ in range(ranks)]


def reduced(ranks: Ranks, sizes: Sequence[int], steps: int = 2) -> None:
    """Sums of tensors of all types, together in flight, to the last bit as rank order gives them."""
    for step in range(steps):
        waiting = []
        for number, count in enumerate(sizes):
            for dtype in TYPES:
                values = arrays(count, dtype, number + 100 * step, len(ranks))
                wide = np.float32 if dtype == "float16" else dtype  # what it is added up in
                total = values[0].astype(wide)
                for value in values[1:]:
                    total = total + value.astype(wide)
                total = total.astype(dtype)
                name = f"{dtype} {count}"
                handles = [c.all_reduce(v, name, "sum", asynchronous=True) for c, v in zip(ranks, values, strict=True)]
                waiting.append((total, handles))
        for total, handles in waiting:
            for handle in handles:
                np.testing.assert_array_equal(handle.wait(60), total)


@pytest.mark.parametrize("runners", [2, 3])
def test_results_are_the_same_to_the_last_bit(tmp_path: Path, runners: int) -> None:
    with started(tmp_path, [runners] * HOSTS) as agents:
        with joined(agents, job_file(tmp_path), HOSTS) as ranks:
            reduced(ranks, [1, 4096, 300_001, 1_500_007])
            for name in ("one", "two", "three"):  # groups are on shards by their numbers
                pair = [c.group([0, 2], name) for c in (ranks[0], ranks[2])]
                for total in each(pair, lambda c: c.all_reduce(np.full(200_000, 2, np.int32), op="sum")):
                    assert (total == 4).all()
            for agent in agents:
                assert shards(agent) == runners
                transport = agent.status()["transport"]
                assert transport["runners"] == [1] * runners
                assert (transport["foreign"], transport["send_errors"]) == (0, 0)
                counts = agent.status()["jobs"]["trial"]["counts"]
                assert sum(counts[name] for name in counts if name.startswith("bad_")) == 0
        for agent in agents:
            assert agent.status()["transport"]["runners"] == [0] * runners


@pytest.mark.parametrize("collective", ["ring", "grid"])
def test_partial_sums_are_the_same_at_all_ranks(tmp_path: Path, collective: str) -> None:
    lines = f'collective = "{collective}"'
    with started(tmp_path, [2] * 4) as agents, joined(agents, job_file(tmp_path, lines, 4), 4) as ranks:
        for step in range(3):
            values = arrays(900_001, "float32", step, 4)
            handles = [c.all_reduce(v, "it", "sum", asynchronous=True) for c, v in zip(ranks, values, strict=True)]
            totals = [handle.wait(60) for handle in handles]
            np.testing.assert_allclose(totals[0], np.sum(values, axis=0, dtype=np.float64), rtol=1e-4, atol=1e-5)
            for total in totals[1:]:
                np.testing.assert_array_equal(total, totals[0])
        assert [shards(agent) for agent in agents] == [2] * 4


def test_the_fewest_runners_of_any_member_are_those_of_the_job(tmp_path: Path) -> None:
    with (
        started(tmp_path, [4, 1, 2]) as agents,
        beside_of(agents, tmp_path),
        joined(agents, job_file(tmp_path), HOSTS) as ranks,
    ):
        reduced(ranks, [300_001])
        assert [shards(agent) for agent in agents] == [1, 1, 1]
        assert [sorted(agent.status()["transport"]["runners"]) for agent in agents] == [[0, 0, 1, 1], [2], [1, 1]]
        assert [agent.status()["transport"]["foreign"] for agent in agents] == [0, 0, 0]


@contextmanager
def beside_of(agents: list[Agent], folder: Path) -> Iterator[None]:
    """Another job on these agents, which goes on all the while."""
    file = job_file(folder, file="beside.toml", name="beside", id=99)
    with joined(agents, file, len(agents)) as ranks:
        reduced(ranks, [4096], steps=1)
        yield
        reduced(ranks, [4096], steps=1)


@pytest.mark.parametrize(
    "lines",
    [
        'ownership = "adaptive"',
        "[loss]\npush = 0.02\n[loss.late]\nafter = 0.5\nsteps = 1\nwindow = 4",
        "[loss]\npush = 0.02\n[loss.adaptive]\ncritical = 0.5\nthreshold = 0.5\nwindow = 3",
    ],
    ids=["adaptive shares", "late workers", "adaptive tolerance"],
)
def test_what_concerns_all_tensors_of_a_job_at_once_has_one_shard(tmp_path: Path, lines: str) -> None:
    with started(tmp_path, [2] * HOSTS) as agents, joined(agents, job_file(tmp_path, lines), HOSTS) as ranks:
        each(ranks, lambda c: c.all_reduce(np.full(400_000, c.rank, np.float32), "gradient"))
        assert [shards(agent) for agent in agents] == [1] * HOSTS


def test_a_killed_worker_is_named_in_time_on_all_shards(tmp_path: Path) -> None:
    with ExitStack() as stack:
        agents = stack.enter_context(started(tmp_path, [2] * HOSTS))
        ranks = join(job_file(tmp_path), agents, HOSTS)
        reduced(ranks, [600_000], steps=1)
        pending = [
            c.all_reduce(np.ones(600_000, np.float32), f"gradient {k}", asynchronous=True)
            for c in ranks[:2]
            for k in range(3)
        ]
        agents[2].kill()
        for waiting in pending:
            with pytest.raises(AgentError, match=r"rank 2 \(h2, .* its agent closed the connection"):
                waiting.wait(10)
        until(lambda: all(agent.status()["transport"]["runners"] == [0, 0] for agent in agents[:2]))


def test_a_residual_of_a_cut_tensor_is_one(tmp_path: Path) -> None:
    """It comes and goes as a whole, and is what the next step adds."""
    file = job_file(tmp_path, f"{DIRECT}\n[loss]\npush = 0.02", hosts=2)
    with started(tmp_path, [2, 2]) as agents, joined(agents, file, 2) as ranks:
        count = 400_000
        each(ranks, lambda c: c.all_reduce(np.zeros(count, np.float32), "gradient"))
        assert not any(c.residuals()["gradient"].any() for c in ranks)
        owed = np.arange(count, dtype=np.float32)
        ranks[0].load_residuals({"gradient": owed})
        np.testing.assert_array_equal(ranks[0].residuals()["gradient"], owed)
        found = each(ranks, lambda c: c.all_reduce(np.zeros(count, np.float32), "gradient"))
        for mean in found:
            np.testing.assert_array_equal(mean, owed / 2)


def test_another_job_goes_on_beside_one_that_is_cut(tmp_path: Path) -> None:
    with (
        started(tmp_path, [2] * HOSTS) as agents,
        beside_of(agents, tmp_path),
        joined(agents, job_file(tmp_path), HOSTS) as ranks,
    ):
        reduced(ranks, [600_000])
        for agent in agents:
            assert agent.status()["transport"]["runners"] == [2, 2]
