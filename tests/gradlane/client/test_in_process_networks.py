# SPDX-License-Identifier: Apache-2.0
"""Agents in training processes on hosts of their own, between which the network loses datagrams."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import members
from tests.support.lan import Lan
from tests.support.needs import needs, needs_root

STEPS, TOLERANCE, SIZE = 8, 0.2, 300_000
WORK = f"""
import ctypes, json, sys
import numpy, gradlane
rank = int(sys.argv[2])
with gradlane.Communicator(sys.argv[1], rank, "process") as c:
    if rank:
        ctypes.PyDLL(None).sleep(9)  # with the interpreter, longer than a host may be silent
    values = numpy.arange({SIZE}, dtype=numpy.float32) % 100
    got = sum(c.all_reduce(values, name="gradient") for _ in range({STEPS}))
    numpy.savez(sys.argv[3], got=got, owed=c.residuals()["gradient"])
    assert (c.all_reduce(values, op="sum") == 2 * values).all()
    counts = c.statistics()
print(json.dumps(counts))
"""


@needs_root
@needs("ip", "tc")
@pytest.mark.parametrize("family", [4, 6])
def test_nothing_exceeds_the_loss_budget_and_who_holds_the_interpreter_lives(tmp_path: Path, family: int) -> None:
    with Lan(2, family) as lan:
        for port in range(2):
            queue = ("tbf", "rate", "330mbit", "burst", "16kb", "limit", "24kb")
            lan.run(lan.bridge, "tc", "qdisc", "add", "dev", f"p{port}", "root", *queue)
        file = members.job_file(tmp_path, lan.addresses, lines=f"[loss]\npush = {TOLERANCE}")
        saved = [tmp_path / f"{rank}.npz" for rank in range(2)]
        processes = [
            subprocess.Popen(
                [*lan.inside(lan.space(rank)), sys.executable, "-c", WORK, str(file), str(rank), str(path)],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, path in enumerate(saved)
        ]
        ends = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ends
    counts = [json.loads(output) for output, _ in ends]
    assert [it["budget_violations"] for it in counts] == [0, 0]
    assert sum(it["slices_lost"] for it in counts) > 0, "the links have dropped nothing: this shows nothing"
    assert all(it["slices_lost"] <= TOLERANCE * it["slices_expected"] for it in counts)
    first, second = (dict(np.load(path)) for path in saved)
    np.testing.assert_array_equal(first["got"], second["got"])
    given = 2 * STEPS * (np.arange(SIZE, dtype=np.float32) % 100)
    np.testing.assert_allclose(2 * first["got"] + first["owed"] + second["owed"], given, rtol=0, atol=0.01)
