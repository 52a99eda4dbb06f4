# SPDX-License-Identifier: Apache-2.0
"""Every packet test runs on each target that is there; one that is not is skipped by name.

`--p4-coverage FILE` writes what the tests have reached of the program, and fails if that is not every action and state.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from finsy import P4Schema

from gradlane_switch.p4runtime.files import read_p4info, read_program
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.p4src.p4_coverage import Coverage
from tests.p4src.packet_bench import Bench
from tests.p4src.packet_targets import Bmv2, InProcess, Target, TnaInProcess
from tests.support.paths import P4_SOURCE, P4INFO, PIPELINE, PROGRAM

TNA = Path(__file__).parent / "tna_on_v1model" / "build"
_COVERAGE = pytest.StashKey[Coverage]()


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--p4-coverage"):
        config.stash[_COVERAGE] = Coverage(json.loads(PROGRAM.read_bytes()), P4_SOURCE)


def pytest_sessionfinish(session: pytest.Session) -> None:
    coverage = session.config.stash.get(_COVERAGE, None)
    if coverage is None:
        return
    out = Path(session.config.getoption("--p4-coverage"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(coverage.report())
    if not coverage.complete and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if coverage := config.stash.get(_COVERAGE, None):
        terminalreporter.section("P4 coverage")
        terminalreporter.write(coverage.report())


@pytest.fixture(scope="session")
def coverage(request: pytest.FixtureRequest) -> Coverage | None:
    return request.config.stash.get(_COVERAGE, None)


@pytest.fixture(scope="session")
def schema() -> P4Schema:
    return P4Schema(P4INFO, PROGRAM.read_bytes())


@pytest.fixture(scope="session")
def bmv2(schema: P4Schema, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bmv2]:
    command = shutil.which("simple_switch_grpc")
    if command is None:
        pytest.skip("simple_switch_grpc (BMv2) is not on PATH: the packet tests ran on gradlane-switch alone")
    switch = Bmv2(schema, command, tmp_path_factory.mktemp("bmv2"))
    yield switch
    switch.close()


def unrestricted(folder: Path) -> Pipeline:
    """The program in a folder for controllers that may write anything.

    What it does with entries that its restrictions forbid is tested, too, on gradlane-switch as on BMv2, which enforces
    none.
    """
    info = read_p4info(folder / P4INFO.name)
    for table in info.tables:
        table.preamble.ClearField("annotations")
    for action in info.actions:
        action.preamble.ClearField("annotations")
        for param in action.params:
            param.ClearField("annotations")
    return Pipeline(read_program(folder / PROGRAM.name), info, Lock())


@pytest.fixture(scope="session")
def pipeline() -> Pipeline:
    return unrestricted(PIPELINE)


@pytest.fixture(scope="session", params=["gradlane-switch", "simple_switch_grpc", "tna on gradlane-switch"])
def target(request: pytest.FixtureRequest, schema: P4Schema, pipeline: Pipeline, coverage: Coverage | None) -> Target:
    if request.param == "gradlane-switch":
        return InProcess(schema, pipeline, coverage and coverage.observe)
    if request.param == "tna on gradlane-switch":
        return TnaInProcess(schema, unrestricted(TNA))
    return request.getfixturevalue("bmv2")


@pytest.fixture
def bench(target: Target, schema: P4Schema, coverage: Coverage | None) -> Iterator[Bench]:
    it = Bench(target, schema)
    yield it
    if coverage is not None:
        coverage.decided(target.name, it.reasons())


@pytest.fixture
def new_in_process(schema: P4Schema, pipeline: Pipeline) -> Callable[[], InProcess]:
    return lambda: InProcess(schema, pipeline)


@pytest.fixture
def in_process(new_in_process: Callable[[], InProcess]) -> InProcess:
    return new_in_process()
