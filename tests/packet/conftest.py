# SPDX-License-Identifier: Apache-2.0
"""Every packet test runs on each target that is there; one that is not is skipped by name."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from finsy import P4Schema
from packet_bench import Bench
from packet_targets import Bmv2, InProcess, Target

BUILD = Path(__file__).parents[2] / "p4src" / "build" / "v1model"
PROGRAM, P4INFO = BUILD / "gradlane.json", BUILD / "gradlane.p4info.txtpb"


@pytest.fixture(scope="session")
def schema() -> P4Schema:
    return P4Schema(P4INFO, PROGRAM.read_bytes())


@pytest.fixture(scope="session", params=["gradlane-switch", "simple_switch_grpc"])
def target(
    request: pytest.FixtureRequest, schema: P4Schema, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    if request.param == "gradlane-switch":
        yield InProcess(schema, PROGRAM, P4INFO)
        return
    command = shutil.which(request.param)
    if command is None:
        pytest.skip(f"{request.param} (BMv2) is not on PATH: the packet tests ran on gradlane-switch alone")
    switch = Bmv2(schema, command, tmp_path_factory.mktemp("bmv2"))
    yield switch
    switch.close()


@pytest.fixture
def bench(target: Target, schema: P4Schema) -> Bench:
    return Bench(target, schema)


@pytest.fixture
def in_process(schema: P4Schema) -> InProcess:
    return InProcess(schema, PROGRAM, P4INFO)
