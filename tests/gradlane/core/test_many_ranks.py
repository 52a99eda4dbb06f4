# SPDX-License-Identifier: Apache-2.0
"""What is looked for among ranks is found as if all of them were looked at, but they are not."""

import subprocess
from pathlib import Path

import pytest

from gradlane import wire
from tests.gradlane.core.core_programs import HERE, build
from tests.support.effort import only_thorough


@pytest.mark.parametrize("program", ["lanes", "streams", "controls"])
def test_ranks_are_found_as_by_a_look_at_all(tmp_path: Path, program: str) -> None:
    wrapped = ["flow_due"] if program == "lanes" else []
    subprocess.run([build(tmp_path, [HERE / f"{program}.c"], *wrapped)], check=True, timeout=120)


def test_contributions_that_come_in_their_order_take_the_room_of_one(tmp_path: Path) -> None:
    subprocess.run([build(tmp_path, [HERE / "waiting.c"])], check=True, timeout=120)


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("owner"), [HERE / "owner.c"])


@pytest.mark.parametrize(
    "ranks",
    [
        *(2, 3, 256, 257, wire.MAX_RANKS, wire.MAX_RANKS + 1),
        pytest.param(1000, marks=only_thorough("fewer ranks than in another case")),
    ],
)
def test_an_owner_has_as_many_ranks_as_the_wire_tells_apart(owner: Path, ranks: int) -> None:
    subprocess.run([owner, str(ranks)], check=True, timeout=120)


def test_an_engine_has_memory_for_the_ranks_that_there_are(tmp_path: Path) -> None:
    program = build(tmp_path, [HERE / "engine_size.c"], "malloc", "calloc", "realloc")
    subprocess.run([program], check=True, timeout=30)
