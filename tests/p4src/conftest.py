# SPDX-License-Identifier: Apache-2.0
"""Every packet test runs on each target that is there; one that is not is skipped by name.

`--p4-coverage FILE` writes what the tests have reached of the program and of its profile for sums, and fails if that is
not every action and state.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeGuard

import pytest
from finsy import P4Schema

from gradlane_switch.p4runtime.files import read_p4info, read_program
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.p4src.p4_coverage import COVERAGE, Coverage, coverage_of
from tests.p4src.packet_bench import ORDINARY_REASONS, Bench, Reason
from tests.p4src.packet_targets import Bmv2, InProcess, Target, TnaInProcess
from tests.support.paths import P4_SOURCE, P4INFO, PROGRAM, SUM_P4INFO, SUM_PROGRAM

TNA = Path(__file__).parent / "tna_on_v1model" / "build"


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--p4-coverage"):
        programs = (PROGRAM, SUM_PROGRAM)
        config.stash[COVERAGE] = {
            it: Coverage(it.stem, json.loads(it.read_bytes()), P4_SOURCE, ORDINARY_REASONS if it is PROGRAM else Reason)
            for it in programs
        }


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On BMv2 the first case of each test runs: others give the program other values, and it is the same program."""
    if config.getoption("--thorough"):
        return
    other = pytest.mark.skip(reason="this test has another case on BMv2; --thorough runs all")
    met: set[tuple[Path, str]] = set()
    for item in items:
        if not _is_on_bmv2(item):
            continue
        test = (item.path, item.originalname)
        if test in met:
            item.add_marker(other)
        met.add(test)


def _is_on_bmv2(item: pytest.Item) -> TypeGuard[pytest.Function]:
    """Whether its parameters say so, and it is one of these tests: the path comes last, as there are 10,000 items."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    targets = {item.callspec.params.get(name) for name in ("target", "sum_target")}
    return "simple_switch_grpc" in targets and item.path.is_relative_to(Path(__file__).parent)


def pytest_sessionfinish(session: pytest.Session) -> None:
    coverage = session.config.stash.get(COVERAGE, None)
    if coverage is None:
        return
    out = Path(session.config.getoption("--p4-coverage"))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(it.report() for it in coverage.values()))
    if not all(it.complete for it in coverage.values()) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for coverage in config.stash.get(COVERAGE, {}).values():
        terminalreporter.section("P4 coverage")
        terminalreporter.write(coverage.report())


@pytest.fixture(scope="session")
def schema() -> P4Schema:
    return P4Schema(P4INFO, PROGRAM.read_bytes())


@pytest.fixture(scope="session")
def sum_schema() -> P4Schema:
    return P4Schema(SUM_P4INFO, SUM_PROGRAM.read_bytes())


@pytest.fixture(scope="session")
def bmv2_command() -> str:
    command = shutil.which("simple_switch_grpc")
    if command is None:
        pytest.skip("simple_switch_grpc (BMv2) is not on PATH: the packet tests ran on gradlane-switch alone")
    return command


@pytest.fixture(scope="session")
def bmv2(schema: P4Schema, bmv2_command: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bmv2]:
    switch = Bmv2(schema, bmv2_command, tmp_path_factory.mktemp("bmv2"))
    yield switch
    switch.close()


def unrestricted(program: Path, p4info: Path) -> Pipeline:
    """A program for controllers that may write anything.

    What it does with entries that its restrictions forbid is tested, too, on gradlane-switch as on BMv2, which enforces
    none.
    """
    info = read_p4info(p4info)
    for table in info.tables:
        table.preamble.ClearField("annotations")
    for action in info.actions:
        action.preamble.ClearField("annotations")
        for param in action.params:
            param.ClearField("annotations")
    return Pipeline(read_program(program), info, Lock())


@pytest.fixture(scope="session")
def pipeline() -> Pipeline:
    return unrestricted(PROGRAM, P4INFO)


@pytest.fixture(scope="session")
def sum_pipeline() -> Pipeline:
    return unrestricted(SUM_PROGRAM, SUM_P4INFO)


@pytest.fixture(scope="session")
def sum_in_process(request: pytest.FixtureRequest, sum_schema: P4Schema, sum_pipeline: Pipeline) -> InProcess:
    coverage = coverage_of(request.config, SUM_PROGRAM)
    target = InProcess(sum_schema, sum_pipeline, coverage and coverage.observe)
    target.name = "sums on gradlane-switch"
    return target


@pytest.fixture(
    scope="session",
    params=["gradlane-switch", "sums on gradlane-switch", "simple_switch_grpc", "tna on gradlane-switch"],
)
def target(request: pytest.FixtureRequest, schema: P4Schema, pipeline: Pipeline) -> Target:
    if request.param == "gradlane-switch":
        coverage = coverage_of(request.config, PROGRAM)
        return InProcess(schema, pipeline, coverage and coverage.observe)
    if request.param.startswith("sums") and not request.config.getoption("--thorough"):
        pytest.skip("only what sums runs on the profile for sums, and random frames; --thorough runs all on it")
    if request.param == "tna on gradlane-switch":
        return TnaInProcess(schema, unrestricted(TNA / PROGRAM.name, TNA / P4INFO.name))
    return request.getfixturevalue("bmv2" if request.param == "simple_switch_grpc" else "sum_in_process")


@pytest.fixture
def bench(request: pytest.FixtureRequest, target: Target, schema: P4Schema) -> Iterator[Bench]:
    it = Bench(target, schema)
    yield it
    if coverage := coverage_of(request.config, SUM_PROGRAM if target.name.startswith("sums") else PROGRAM):
        coverage.decided(target.name, it.reasons())


@pytest.fixture
def new_in_process(schema: P4Schema, pipeline: Pipeline) -> Callable[[], InProcess]:
    return lambda: InProcess(schema, pipeline)


@pytest.fixture
def in_process(new_in_process: Callable[[], InProcess]) -> InProcess:
    return new_in_process()
