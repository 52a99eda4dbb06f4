# SPDX-License-Identifier: Apache-2.0
"""Late workers where not all wait for them: neither are others blamed, nor does a job end before its patience."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gradlane import Communicator
from gradlane.daemon.liveness import INDIRECT_SECONDS, LATE_SECONDS, SILENT_SECONDS
from tests.support.agents import PATIENCE, agents, loopback
from tests.support.communicators import each, join
from tests.support.members import job_file

# With so much to spare each way that a busy machine changes nothing.
LONGEST, COMPUTES, WAITS = 20, 8, 14  # s


def test_who_only_passes_a_late_workers_part_on_is_not_blamed(tmp_path: Path) -> None:
    """In a ring of three, rank 0 misses a partial sum of rank 1, which waits for rank 2."""
    addresses = loopback(3)
    with agents(tmp_path, addresses) as hosts:
        workers = join(job_file(tmp_path, addresses, lines='collective = "ring"'), hosts, len(hosts))

        def add(c: Communicator) -> float:
            if c.rank == 2:
                time.sleep(LATE_SECONDS + 2)
            return float(c.all_reduce(np.ones(3000, np.float32), op="sum")[0])

        assert LATE_SECONDS > SILENT_SECONDS + INDIRECT_SECONDS
        assert each(workers, add) == [3, 3, 3]
        each(workers, Communicator.close)


def test_a_worker_that_waits_in_another_group_is_not_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rank 0 waits for rank 1, which computes for a while and then waits for rank 2: for longer than the job's
    patience, but no worker is late for so long."""
    addresses = loopback(3)
    with agents(tmp_path, addresses) as hosts, ThreadPoolExecutor(3) as pool:
        workers = join(job_file(tmp_path, addresses, patience=LONGEST), hosts, len(hosts))
        assert max(COMPUTES, WAITS) < LONGEST < COMPUTES + WAITS

        def add(rank: int, other: int) -> float:
            group = workers[rank].group(sorted([rank, other]), "pairs")
            return float(group.all_reduce(np.full(100, rank + 1.0), op="sum")[0])

        def second() -> list[float]:
            time.sleep(COMPUTES)
            return [add(1, 2), add(1, 0)]

        def third() -> float:
            time.sleep(COMPUTES + WAITS)
            return add(2, 1)

        sums = [pool.submit(add, 0, 1), pool.submit(second), pool.submit(third)]
        assert [one.result(PATIENCE) for one in sums] == [3, [5, 3], 5]
        named = r"rank 1 .* did not start it, as it waits itself \(a collective of group \[1, 2\] pairs, step \d+\)"
        assert re.search(named, caplog.text)
        each(workers, Communicator.close)
