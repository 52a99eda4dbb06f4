# SPDX-License-Identifier: Apache-2.0
"""The benchmark of schemes of synchronisation: a short one for real, and what its figures are made of."""

import itertools
import json
import math
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.sync import bootstrap, finish, slowness, tables, training
from bench.sync.cases import ARMS, CASES, Case, Order, Settings
from bench.sync.evaluation import Run, evaluate
from bench.sync.finish import Finish
from bench.sync.team import rate_of
from tests.support.effort import only_thorough
from tests.support.needs import needs_root

TRAINING = [sys.executable, "-m", "bench.sync.training"]


@pytest.mark.alone
@only_thorough("trains twice")
@needs_root
def test_two_workers_train_and_what_was_run_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--workers", "2", "--cases", "slow5", "--arms", "ddp,ripples", "--seeds", "3"]
    options += ["--computation", "20", "--seconds", "3", "--out", str(tmp_path)]
    done = subprocess.run([*TRAINING, *options], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    runs: dict[str, Any] = {run["arm"]: run for run in json.loads((tmp_path / "sync.json").read_text())["runs"]}
    assert set(runs) == {"ddp", "ripples"}
    for run in runs.values():
        assert run["accuracies"][-1] > run["accuracies"][0] + 0.1, "it does not learn"
        assert 3.0 <= run["seconds"] < 5.0
        assert run["sent"] > 1.5 * 150_794  # bytes: each number once in float16, or in most steps as float32
    assert runs["ddp"]["steps"] == int(runs["ddp"]["steps"]), "its workers take equally many"
    assert runs["ddp"]["seconds"] / runs["ddp"]["steps"] > 5 * 0.02
    assert runs["ripples"]["steps"] > runs["ddp"]["steps"], "its first worker does not wait for the other"
    for name in ("sync.png", "sync-waiting.png"):
        assert (tmp_path / name).stat().st_size > 10_000
    monkeypatch.setattr(training.benchmark, "take_priority", lambda: None)  # in this process others run, too
    assert training.main([*options, "--json"]) == 0
    again = capsys.readouterr()
    assert "2 runs, 2 of them already" in again.err
    assert {run["arm"]: run["steps"] for run in json.loads(again.out)["runs"]} == {
        arm: run["steps"] for arm, run in runs.items()
    }


@pytest.mark.alone
@needs_root
def test_exchanges_take_no_less_than_their_bytes_need(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.sync.communication", "--hosts", "2", "--repeats", "1", "--count", "3"]
    command += ["--rate", "50mbit", "--size", "1MiB", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    runs = json.loads((tmp_path / "sync-communication.json").read_text())["runs"]
    assert [run["arm"] for run in runs] == ["gloo", "ring", "direct", "grid", "pairs"]
    for run in runs:  # of two, each receives the array once; a port sends some at once
        assert run["seconds"] > 0.9 * 8 * 2**20 / 50e6


@pytest.mark.parametrize("tail", [1.5, 3.0])
def test_the_quantiles_of_slowness_are_what_the_case_says(tail: float) -> None:
    times = np.sort(slowness.factors(Case("", 1, slow=5, tail=tail), 7, 2, 8, 200_001))
    assert times[100_000] == pytest.approx(1, rel=0.02)
    assert times[198_000] / times[100_000] == pytest.approx(tail, rel=0.03)


def test_slowness_is_the_same_for_all_arms_and_differs_by_worker_and_seed() -> None:
    case = Case("", 1, slow=5, tail=3)
    first = slowness.factors(case, 1, 0, 4, 50)
    assert (first == slowness.factors(case, 1, 0, 4, 100)[:50]).all(), "also for those that take more steps"
    assert (first != slowness.factors(case, 1, 1, 4, 50)).all()
    assert (first != slowness.factors(case, 2, 0, 4, 50)).all()
    usual = Case("", 1, slow=5)
    assert slowness.factors(usual, 1, 2, 4, 5).tolist() == [1.0] * 5
    assert slowness.factors(usual, 1, 3, 4, 5).tolist() == [5.0] * 5


def test_the_interval_is_that_of_all_resamples() -> None:
    """Of five pairs there are 3125 resamples with equal chances, which can be counted one by one."""
    base, times = [10.0, 20.0, 30.0, 40.0, 50.0], [5.0, 16.0, 12.0, 50.0, 50.0]
    logs = [math.log(b / t) for b, t in zip(base, times, strict=True)]
    means = sorted(sum(drawn) / 5 for drawn in itertools.product(logs, repeat=5))
    ratio = bootstrap.speed_up(base, times)
    assert ratio.value == pytest.approx((2 * 1.25 * 2.5 * 0.8) ** 0.2)
    assert ratio.interval is not None
    for end, share in zip(ratio.interval, (0.025, 0.975), strict=True):
        below = sum(mean < math.log(end) - 1e-9 for mean in means) / len(means)
        up_to = sum(mean <= math.log(end) + 1e-9 for mean in means) / len(means)
        assert below - 0.01 <= share <= up_to + 0.01
    assert bootstrap.speed_up(base, times) == ratio


def test_pairs_count_as_pairs() -> None:
    """Seeds that differ much do not widen the interval, as long as an arm is always twice as fast."""
    ratio = bootstrap.speed_up([1.0, 100.0, 10.0, 3.0, 4.0], [0.5, 50.0, 5.0, 1.5, 2.0])
    assert ratio.value == pytest.approx(2)
    assert ratio.interval == pytest.approx((2, 2))
    with pytest.raises(ValueError, match="no pairs"):
        bootstrap.speed_up([1.0], [1.0, 2.0])


def test_few_seeds_have_no_interval() -> None:
    assert bootstrap.speed_up([1.0] * 4, [0.5] * 4) == bootstrap.Ratio(pytest.approx(2), None)


def test_a_run_ends_at_all_workers_after_the_same_step(tmp_path: Path) -> None:
    """Threads that take steps as fast as they can, and only by chance at the same time."""
    size, taken = 6, [0] * 6
    finish.prepare(tmp_path / "finish", size)
    over = threading.Event()
    pace = threading.Barrier(size)

    def work(rank: int) -> None:
        end = Finish(tmp_path / "finish", rank, size, lockstep=True)
        while not end.reached(taken[rank], over.is_set()):
            taken[rank] += 1
            if taken[rank] == 50 and rank == 3:
                over.set()
            pace.wait(10)  # who takes another number of steps than the others breaks it

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(set(taken)) == 1
    assert 50 <= taken[0] < 60


def test_a_worker_that_waits_for_nobody_ends_when_the_time_is_over(tmp_path: Path) -> None:
    finish.prepare(tmp_path / "finish", 2)
    end = Finish(tmp_path / "finish", 1, 2, lockstep=False)
    assert not end.reached(5, over=False)
    assert end.reached(5, over=True)


def test_a_ring_takes_as_long_as_the_computation() -> None:
    settings = Settings(8, 0.05, width=256)
    numbers = 64 * 256 + 256 + 2 * (256 * 256 + 256) + 2560 + 10
    assert 2 * 7 / 8 * 32 * numbers / rate_of(settings) == pytest.approx(0.05, rel=1e-6)


def test_the_mean_of_what_all_workers_have_at_a_time_is_evaluated(tmp_path: Path) -> None:
    """Of two workers whose parameters are opposite the mean is 0 in between, which tells no class from another."""
    from bench.sync import emulated

    order = Order(Settings(2, 0.05, width=8), "equal", "overlap", 1, 0.1, 1.0, 100, 0.1)
    some = np.random.default_rng(0).standard_normal(emulated.parameters(8)).astype(np.float32)
    np.save(tmp_path / "0.npy", np.stack([some, some, some]))
    np.save(tmp_path / "1.npy", np.stack([some, -some, some]))
    traces = [
        {
            "times": [0.0, 0.4, 0.8],
            "steps": [0, 4, 8],
            "ends": [0.1] * 10,
            "seconds": 1.0,
            "waited": 0.2,
            "sent": 100,
            "told": 0.5,
            "slept": 0.6,
        },
        {
            "times": [0.0, 0.5, 0.8],
            "steps": [0, 2, 4],
            "ends": [0.1] * 5,
            "seconds": 1.1,
            "waited": 0.7,
            "sent": 50,
            "told": 0.5,
            "slept": 0.5,
        },
    ]
    run = evaluate(order, tmp_path, traces)
    values = {value for time, value in zip(run.times, run.accuracies, strict=True) if 0.5 <= time < 0.79}
    others = {value for time, value in zip(run.times, run.accuracies, strict=True) if not 0.49 <= time <= 0.8}
    assert len(values) == len(others) == 1
    assert values != others
    assert (run.seconds, run.steps, run.waited, run.sent) == pytest.approx((1.1, 7.5, 0.06, 10))
    assert run.waits == pytest.approx([0.2, 0.7 / 1.1])
    assert run.to_target is None
    assert run.overslept == pytest.approx(0.1)


def _run(arm: str, seed: int, seconds: float | None) -> Run:
    return Run(
        workers=8, case="equal", arm=arm, title=arm, bsp=ARMS[arm].bsp, seed=seed, learning_rate=0.1, seconds=20.0,
        steps=100, to_target=seconds, steps_to_target=seconds, at_steps=0.9, final=0.95, waited=0.01, waits=[0.1] * 8,
        sent=1e5, overslept=0.0, times=[0.0, 1.0], accuracies=[0.1, 0.9],
    )  # fmt: skip


def test_arms_are_compared_with_the_best_that_has_a_global_step() -> None:
    times = {
        "ddp": [10.0, 12.0] * 3, "overlap": [8.0] * 6, "pairs": [4.0] * 6, "grid": [4.0, None] * 3, "adaptive": [7.0],
    }  # fmt: skip
    runs = [_run(arm, seed, value) for arm, values in times.items() for seed, value in enumerate(values)]
    (table,) = tables.of_runs(runs)
    rows = {row[0]: row for row in table.rows}
    assert rows["pairs"][3] == "2.00 (2.00 to 2.00)"
    assert rows["overlap"][3] == "1.00 (1.00 to 1.00)"
    assert rows["ddp"][3].startswith("0.73 (0.6")
    assert rows["adaptive"][3] == "1.14", "with one seed it has no interval, and is not what others are compared with"
    assert rows["grid"][2] == "3 of 6"
    assert rows["grid"][3].startswith("<= 0.89"), "it needs at least the 20 s of the run"


def test_only_the_record_of_just_this_run_counts(tmp_path: Path) -> None:
    order = Order(Settings(8, 0.05), "equal", "pairs", 1, 0.1, 10.0, 100, 0.1)
    run = _run("pairs", 1, 5.0)
    training.keep(tmp_path, order, run)
    assert training.load(tmp_path, order) == run
    changed = Order(Settings(8, 0.06), "equal", "pairs", 1, 0.1, 10.0, 100, 0.1)
    assert changed.name == order.name
    assert training.load(tmp_path, changed) is None
    (tmp_path / f"{order.name}.json").write_text("{")
    assert training.load(tmp_path, order) is None


def test_a_wrong_option_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--cases", "slow7"], "case 'slow7' is unknown"),
        (["--arms", "bsp"], "arm 'bsp' is unknown"),
        (["--workers", "1"], "from 2 to 64"),
        (["--computation", "0"], "above 0"),
    ):
        with pytest.raises(SystemExit):
            training.main(words)
        assert said in capsys.readouterr().err


def test_all_arms_have_job_tables_that_agents_take(tmp_path: Path) -> None:
    import tomli_w

    from bench.harness import job as harness
    from gradlane import job as jobs
    from gradlane.sync.schemes import scheme_of

    assert set(map(str, CASES)) >= {"equal", "slow2", "slow5", "tail1.5", "tail3", "link"}
    for name, arm in ARMS.items():
        hosts = [("h0", "10.0.0.1"), ("h1", "10.0.0.2")]
        document = harness.document(name, 1, hosts, 10**8, 10**5, transport=arm.transport, sync=arm.sync)
        path = tmp_path / f"{name}.toml"
        path.write_text(tomli_w.dumps(document))
        job = jobs.load(path)
        if arm.method == "synchronise":
            scheme_of(job, None)  # it raises for one that is not there
