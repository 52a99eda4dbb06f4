# SPDX-License-Identifier: Apache-2.0
"""Gradients of a worker that is late, where a switch sums. It needs root."""

import math
import time
from pathlib import Path

import torch
from torch import nn

from tests.gradlane.sums.test_summed_jobs import SUMS, TRANSPORT
from tests.gradlane.torch.schemes.synchronised_workers import connect
from tests.support import members
from tests.support.needs import needs, needs_root
from tests.support.sum_relay import SumLan

pytestmark = [needs_root, needs("ethtool")]

HOSTS = 3


def test_what_a_late_worker_has_is_owed_unless_it_is_not_finite(tmp_path: Path) -> None:
    with SumLan(HOSTS) as lan, lan.agents(tmp_path) as hosts, lan.switch(SUMS):
        rule = "\n[loss.late]\nafter = 0.5\nsteps = 1\nwindow = 2"
        workers = connect(hosts, members.job_file(tmp_path, lan.addresses, lines=TRANSPORT + rule))
        workers.use(lambda: nn.Sequential(nn.Linear(4, 4)))

        def train(rank: int) -> list[list[float]]:
            session, model = workers.sessions[rank], workers.models[rank]
            session.watch(model)
            bucket = session.bucket(list(model.parameters()))
            means: list[list[float]] = []
            for number in range(6):
                late = rank == 2 and number in (2, 4)
                if late:
                    time.sleep(1.2)
                gradients = [torch.full(p.shape, 3.0) for p in bucket.parameters]
                if late and number == 2:
                    gradients[0][0, 0] = math.inf
                bucket.start(gradients).wait(30)
                means.append(torch.cat([mean.reshape(-1) for mean in bucket.means()]).unique().tolist())
            return means

        # The infinite one is neither in step 3 nor owed; that of step 5 comes with step 6.
        assert workers.all(train) == [[[3.0], [3.0], [2.0], [3.0], [2.0], [4.0]]] * HOSTS
        workers.all(lambda rank: workers.sessions[rank].close())
