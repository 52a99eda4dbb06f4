# SPDX-License-Identifier: Apache-2.0
"""Where the network loses what the job tolerates, training goes on as without loss: the same replicas, about the same
curve. It needs root."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.frameworks.ranks import needs, run, within
from tests.support.agents import loopback
from tests.support.members import job_file
from tests.support.namespaces import Namespaces
from tests.support.needs import needs_root

# Less than the first burst of two workers, so that the queue overflows.
BOTTLENECK = ("tbf", "rate", "80mbit", "burst", "20kb", "limit", "20kb")
WIDTHS = "20 512 512 5"  # messages of about 360 datagrams, of which 10 need not arrive


@needs_root
@pytest.mark.parametrize(
    ("program", "arm", "backend"),
    [
        pytest.param("worker_tensorflow", "function", "tensorflow", marks=needs("tensorflow")),
        pytest.param("worker_jax", "jit", "jax", marks=needs("jax")),
        pytest.param("worker_mxnet", "trainer", "", marks=needs("mxnet")),
        *(
            pytest.param("worker_keras", "fit", name, marks=needs("tensorflow", "keras", name))
            for name in ("jax", "torch")
        ),
    ],
)
def test_with_a_tolerance_of_3_percent_it_learns_as_without_loss(
    program: str, arm: str, backend: str, tmp_path: Path
) -> None:
    job = job_file(tmp_path, loopback(2), lines="[loss]\npush = 0.03\n")
    options = {"KERAS_BACKEND": backend, "WIDTHS": WIDTHS} | within(job)
    with Namespaces(f"glf{os.getpid()}") as there:
        prefix = there.inside(there.names[0])
        there.run(there.names[0], "ip", "link", "set", "lo", "mtu", "1500")
        exact = run(program, arm, prefix=prefix, **options)
        there.run(there.names[0], "tc", "qdisc", "add", "dev", "lo", "root", *BOTTLENECK)
        lossy = run(program, arm, prefix=prefix, **options)
    assert exact[0]["lost"] == exact[1]["lost"] == 0
    assert lossy[0]["lost"] + lossy[1]["lost"] > 0
    assert lossy[0]["parameters"] == lossy[1]["parameters"] != exact[0]["parameters"]
    ratios = np.array(lossy[0]["losses"]) / np.array(exact[0]["losses"])
    assert abs(ratios.mean() - 1) < 0.03, ratios
    assert exact[0]["losses"][-1] < 0.7 * exact[0]["losses"][0]
