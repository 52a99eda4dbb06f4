# SPDX-License-Identifier: Apache-2.0
"""The benchmark of all-reduces: short ones for real, with Open MPI and without, and what it makes of its times."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.agent import all_reduce, mpi
from bench.agent.all_reduce_tables import Result, Summary, median_ratio, plot, summaries, tables
from bench.agent.all_reduce_team import VARIANTS
from bench.harness import netns
from bench.harness.agent_hosts import Loopback
from tests.support.effort import only_thorough
from tests.support.needs import needs, needs_root

_GLOO_ALLOWED = 1.05  # its headers are smaller than those that the rate is reckoned with


def measured(folder: Path, *options: str, path: str | None = None) -> tuple[list[dict[str, Any]], str]:
    """The runs in its result file, and what it said."""
    command = [sys.executable, "-m", "bench.agent.all_reduce", "--hosts", "2", "--sizes", "64KiB", "--repeats", "1"]
    done = subprocess.run(
        [*command, "--out", str(folder), *options],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, **({"PATH": path} if path else {})},
    )
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "agent.json").read_text())["runs"], done.stdout


@pytest.mark.alone
@needs_root
@needs("ip", "setpriv", "sysctl")
def test_without_open_mpi_all_others_are_measured_on_a_bridge_and_on_one_machine(tmp_path: Path) -> None:
    for name in ("ip", "setpriv", "sysctl"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    runs, said = measured(tmp_path, "--places", "bridge,loopback", path=str(tmp_path))
    assert f"mpi is left out, as Open MPI is not installed: apt-get install {mpi.PACKAGES}" in said
    expected = [(place, variant) for place in ("bridge", "loopback") for variant in VARIANTS if variant != "mpi"]
    assert [(run["place"], run["variant"]) for run in runs] == expected
    assert all(0 < run["fastest"] <= run["seconds"] <= run["slowest"] and run["cpu"] > 0 for run in runs)
    for gloo, shared in zip(
        *([run for run in runs if run["variant"] == name] for name in ("gloo", "shared")), strict=True
    ):
        assert shared["by_gloo"] == pytest.approx(shared["seconds"] / gloo["seconds"])
    assert (tmp_path / "agent.svg").exists()


@pytest.mark.alone
@only_thorough("Open MPI, beside which the benchmark measures, polls through half a minute of a core")
@needs_root
@needs("mpirun", "mpicc")
def test_open_mpi_crosses_the_ports_and_its_polling_counts(tmp_path: Path) -> None:
    runs, _ = measured(tmp_path, "--variants", "gloo,mpi")
    assert [(run["place"], run["variant"]) for run in runs] == [
        (place, variant) for place in ("bridge", "loopback", "port") for variant in ("gloo", "mpi")
    ]
    *unlimited, gloo, polling = runs
    assert all(run["seconds"] > 0 and run["used"] is None for run in unlimited)
    for run in (gloo, polling):
        assert 0.5 < run["used"] < _GLOO_ALLOWED
    busy = polling["cpu"] * polling["size"] / 1e9 / polling["seconds"]
    assert 0.5 < busy < 1.5, "of a core, by a host that waits for a slow port"


@needs_root
@needs("ip", "ping")
def test_hosts_on_the_loopback_have_one_network_and_an_address_each() -> None:
    with Loopback(3) as hosts:
        assert {hosts.namespace(host) for host in range(3)} == {hosts.namespace(0)}
        links = json.loads(netns.run("ip", "-n", hosts.namespace(0), "-j", "link", "show"))
        assert [link["ifname"] for link in links] == ["lo"]
        for host in range(3):
            netns.run(
                "ip", "netns", "exec", hosts.namespace(0), "ping", "-qc1", "-I", hosts.address(host), hosts.address(0)
            )


def test_mpi_alone_can_not_be_left_out(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    assert all_reduce.main(["--variants", "mpi"]) == 2
    assert f"Open MPI is not installed: apt-get install {mpi.PACKAGES}" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["--variants gloo,nccl", "--places bridge,moon"])
def test_what_it_does_not_know_is_refused_with_what_it_knows(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        all_reduce.main(words.split())
    known = ", ".join(VARIANTS) if "variants" in words else "bridge, loopback, port"
    assert f"is unknown; there are {known}" in capsys.readouterr().err


def result(
    variant: str, seconds: float, by_gloo: float | None, hosts: int = 2, size: int = 1 << 20, **others: Any
) -> Result:
    same = {"repeats": 1, "fastest": 0.0, "slowest": 9.0, "cpu": 2.0}
    settings: dict[str, Any] = {"place": "bridge", "rate": 0, "used": None, **same, **others}
    return Result(hosts=hosts, size=size, variant=variant, seconds=seconds, by_gloo=by_gloo, **settings)


RESULTS = [
    result("gloo", 1.0, 1.0),
    result("shared", 0.5, 0.5),
    result("gloo", 1.0, 1.0, hosts=4, size=1 << 16),
    result("shared", 2.0, 2.0, hosts=4, size=1 << 16),
    result("gloo", 4.0, 1.0, place="loopback"),
    result("shared", 1.0, 0.25, place="loopback"),
    result("gloo", 8.0, 1.0, place="port", rate=1_000_000_000, used=0.75),
    result("shared", 8.0, 1.0, place="port", rate=1_000_000_000, used=0.75),
]


def test_times_are_compared_turn_by_turn() -> None:
    assert median_ratio([1.0, 6.0, 2.0], [1.0, 3.0, 4.0]) == 1.0


def test_the_summary_is_the_geometric_mean_and_the_worst_point_of_each_place() -> None:
    assert [replace(each, mean=round(each.mean, 9)) for each in summaries(RESULTS)] == [
        Summary("bridge", "shared", 1.0, 2.0, 4, 1 << 16),
        Summary("loopback", "shared", 0.25, 0.25, 2, 1 << 20),
        Summary("port", "shared", 1.0, 1.0, 2, 1 << 20),
    ]
    assert summaries([result("shared", 0.5, None)]) == []


def test_a_row_has_the_times_of_all_variants_and_their_ratios() -> None:
    times, cpu, used, compared = tables(RESULTS)
    assert times.columns == ["place", "gloo", "shared", "by Gloo's"]
    assert times.rows[1] == ["bridge, 4 hosts, 0.0625 MiB", "1000.00", "2000.00", "2.00"]
    assert len(times.rows) == len(cpu.rows) == 4
    assert cpu.rows[0] == ["bridge, 2 hosts, 1 MiB", "2.00", "2.00"]
    assert used.rows == [["port, 2 hosts, 1 MiB", "75.0%", "75.0%"]]
    assert compared.rows[0] == ["bridge", "shared", "1.00", "2.00", "4 hosts, 0.0625 MiB"]
    alone, _ = tables([result("shared", 0.5, None)])
    assert alone.rows == [["bridge, 2 hosts, 1 MiB", "500.00", "-"]]


def test_the_figure_has_a_panel_for_each_place_and_number_of_hosts(tmp_path: Path) -> None:
    plot(RESULTS, tmp_path / "agent.svg")
    text = (tmp_path / "agent.svg").read_text()
    assert text.count('id="axes_') == 4
