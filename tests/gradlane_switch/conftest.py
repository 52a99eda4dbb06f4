# SPDX-License-Identifier: Apache-2.0
"""The compiled programs that most of these tests need, a switch process, and its controller."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4i, rpc_code
from google.protobuf import text_format

from gradlane_switch import Switch
from tests.gradlane_switch.switch_process import Controller, Process
from tests.support.paths import P4INFO, PROGRAM, SWITCH_PROGRAMS


@pytest.fixture(scope="session")
def program_json() -> Path:
    return SWITCH_PROGRAMS / "router.json"


@pytest.fixture(scope="session")
def program_p4info() -> Path:
    return SWITCH_PROGRAMS / "router.p4info.txtpb"


@pytest.fixture
def router(program_json: Path, program_p4info: Path) -> Switch:
    return Switch.load(program_json, program_p4info)


@pytest.fixture
def gradlane() -> Switch:
    """The project's own program."""
    return Switch.load(PROGRAM, P4INFO)


@pytest.fixture(scope="module")
def switch() -> Iterator[Process]:
    """A switch process without ports, for the tests of one file."""
    with Process("--device-id", "1") as process:
        yield process


@pytest.fixture(scope="module")
def ids() -> Iterator[Any]:
    """Election ids that only grow, as the switch wants them of new primaries."""
    return iter(range(10, 1 << 30, 10))


@pytest.fixture
def controller(switch: Process, ids: Iterator[int]) -> Iterator[Controller]:
    with Controller(switch.address, next(ids)) as made:
        assert made.arbitrate().status.code == rpc_code.OK
        yield made


@pytest.fixture
def primary(controller: Controller, program_json: Path, program_p4info: Path) -> Controller:
    controller.set_pipeline(program_json, program_p4info, cookie=77)
    return controller


@pytest.fixture(scope="module")
def names(program_p4info: Path) -> dict[str, int]:
    info = text_format.Parse(program_p4info.read_text(), p4i.P4Info())
    parts = [*info.tables, *info.actions, *info.counters, *info.direct_counters, *info.meters, *info.registers]
    return {item.preamble.alias: item.preamble.id for item in parts}
