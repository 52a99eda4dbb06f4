# SPDX-License-Identifier: Apache-2.0
"""The load of the benchmark of sums is what it is called: else it measures something else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from finsy import P4CounterEntry, P4Schema
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from bench.harness.switches import GRADLANE, Client, Pipeline
from bench.harness.wires import Wires, compiled
from bench.switch import aggregation
from bench.switch.sum_cases import AGGREGATION, LANE_BYTES, contribution, plain, updates
from gradlane.wire import Lanes
from gradlane_switch import Switch
from tests.support.needs import needs, needs_root

CONTRIBUTION, RESULT = 16 | 0, 16 | 1  # of job index 1, in the counter `sums`


def loaded(pipeline: Pipeline, workers: int) -> Switch:
    switch = Switch.load(pipeline.program, pipeline.p4info)
    for update in updates(pipeline, workers):
        switch.write(update)
    return switch


@pytest.mark.parametrize("workers", [2, 32])
@pytest.mark.parametrize("lanes", Lanes)
def test_the_last_contribution_becomes_the_sum_for_every_worker(workers: int, lanes: Lanes) -> None:
    switch = loaded(AGGREGATION, workers)
    *absorbed, sent = (switch.process(port, contribution(port, workers, lanes, 1)) for port in range(1, workers + 1))
    assert not any(absorbed)
    assert [port for port, _ in sent] == list(range(1, workers + 1))
    assert len({frame for _, frame in sent}) == 1
    frame, width = sent[0][1], 2 if lanes is Lanes.INT16_LANES else 4
    bias = ((1 << 8 * width) - 1) // (2 * workers)
    total = workers * bias - workers * (workers + 1) // 2  # worker i contributes -i
    assert frame[-LANE_BYTES:] == total.to_bytes(width, "big") * (LANE_BYTES // width)
    packet = Ether(frame)
    written = packet[IP].chksum, packet[UDP].chksum
    del packet[IP].chksum, packet[UDP].chksum
    counted = Ether(bytes(packet))
    assert written == (counted[IP].chksum, counted[UDP].chksum)


@pytest.mark.parametrize("pipeline", [AGGREGATION, GRADLANE], ids=lambda pipeline: pipeline.name)
def test_what_is_forwarded_has_the_size_of_a_contribution_and_goes_to_the_next_worker(pipeline: Pipeline) -> None:
    switch = loaded(pipeline, 3)
    for port in (1, 2, 3):
        [(to, frame)] = switch.process(port, plain(port, 3))
        assert (to, len(frame)) == (port % 3 + 1, len(contribution(port, 3, Lanes.INT32_LANES, 1)))


@needs_root
@needs("ip", "ethtool")
@pytest.mark.alone
@pytest.mark.parametrize("case", ["sum16", "sum32"])
def test_every_frame_of_the_workers_is_in_a_sum(case: str, tmp_path: Path) -> None:
    program = compiled(Path(aggregation.__file__).with_name("sum_load.c"), tmp_path)
    with Wires(3) as wires, aggregation.target(case, wires, 3, tmp_path):
        load = aggregation.Load(wires, program, case, 3, 0.5)
        done = 0
        for _ in range(2):
            more, lost, _ = load.run()
            done += more
            assert (more > 0, lost) == (True, 0)
        with Client(f"unix:{tmp_path}/p4runtime.sock") as client:
            cells = client.read(P4CounterEntry("sums").encode(P4Schema(AGGREGATION.p4info)))
        counts = {cell.counter_entry.index.index: cell.counter_entry.data.packet_count for cell in cells}
        assert {index: count for index, count in counts.items() if count} == {CONTRIBUTION: 3 * done, RESULT: done}


@needs_root
@needs("ip", "ethtool")
@pytest.mark.alone
def test_the_benchmark_says_what_each_case_reaches(tmp_path: Path) -> None:
    """As a process of its own: it takes real-time priority."""
    cases = "sum16,forward,ordinary"
    arguments = ["--workers", "2", "--cases", cases, "--rounds", "1", "--seconds", "0.3", "--json"]
    command = [sys.executable, "-m", "bench.switch.aggregation", *arguments, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["case"] for run in runs] == cases.split(",")
    assert all(run["slices_per_second"] > 0 and run["cpu_us"] > 0 and run["lost"] == 0 for run in runs)
