# SPDX-License-Identifier: Apache-2.0
"""What a job chooses for its all-reduces, of all workers or of some."""

from typing import Any

from gradlane import job
from gradlane.datapath.site import Site
from gradlane.job.agreement import Agreement
from gradlane.job.costs import Conditions
from gradlane.job.racks import Racks
from tests.gradlane.job.texts import ranks

MB = 1 << 20


async def nobody(_question: dict[str, Any]) -> dict[str, Any]:
    return {}


def site(racks: Racks | None) -> Site:
    agreement = Agreement(1, 1, 1432, Conditions(1e9, 1e-5, contention=0.0, racks=racks))
    return Site(job.parse(ranks(16), "j.toml"), 0, [], agreement, print, nobody, 0)


def test_a_group_chooses_by_its_own_racks() -> None:
    """Of 16 workers in four racks with a thin core four are in one of these, where there is nothing between them."""
    thin, unknown = site(Racks((0, 1, 2, 3) * 4, 4.0)), site(None)
    everybody, one_rack, spread = range(16), range(0, 16, 4), (0, 1, 4, 5)
    assert unknown.algorithm(MB // 4, one_rack, 0.0) == "direct"
    assert thin.algorithm(4 * MB, everybody, 0.0) in ("grid", "ring")
    assert thin.algorithm(4 * MB, one_rack, 0.0) == unknown.algorithm(4 * MB, one_rack, 0.0) == "direct"
    assert thin.algorithm(4 * MB, spread, 0.0) in ("grid", "ring")
    assert thin.algorithm(4 * MB, everybody, 0.01) == "direct"
