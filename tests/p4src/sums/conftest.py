# SPDX-License-Identifier: Apache-2.0
"""Sums are tested on each switch that runs the program's profile for them."""

from collections.abc import Iterator

import pytest
from finsy import P4Schema

from gradlane_switch.state.pipeline import Pipeline
from tests.p4src.conftest import TNA, unrestricted
from tests.p4src.p4_coverage import coverage_of
from tests.p4src.packet_bench import Bench
from tests.p4src.packet_targets import Bmv2, Target
from tests.p4src.sums.sum_bench import SumBench
from tests.p4src.sums.tofino_sums import TofinoSums
from tests.support.paths import SUM_P4INFO, SUM_PROGRAM


@pytest.fixture(scope="session")
def sum_bmv2(sum_schema: P4Schema, bmv2_command: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bmv2]:
    switch = Bmv2(sum_schema, bmv2_command, tmp_path_factory.mktemp("bmv2"))
    yield switch
    switch.close()


@pytest.fixture(scope="session")
def sum_tofino_pipeline() -> Pipeline:
    return unrestricted(TNA / SUM_PROGRAM.name, TNA / SUM_P4INFO.name)


@pytest.fixture(scope="session")
def sum_tofino(sum_schema: P4Schema, sum_tofino_pipeline: Pipeline) -> TofinoSums:
    return TofinoSums(sum_schema, sum_tofino_pipeline)


TARGETS = {
    "gradlane-switch": "sum_in_process",
    "simple_switch_grpc": "sum_bmv2",
    "tna on gradlane-switch": "sum_tofino",
}


@pytest.fixture(scope="session", params=list(TARGETS))
def sum_target(request: pytest.FixtureRequest) -> Target:
    return request.getfixturevalue(TARGETS[request.param])


@pytest.fixture
def sums(request: pytest.FixtureRequest, sum_target: Target, sum_schema: P4Schema) -> Iterator[SumBench]:
    it = SumBench(Bench(sum_target, sum_schema))
    it.install()
    yield it
    if coverage := coverage_of(request.config, SUM_PROGRAM):
        coverage.decided(sum_target.name, it.bench.reasons())
