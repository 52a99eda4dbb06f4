# SPDX-License-Identifier: Apache-2.0
"""Programs with something changed anywhere load, or are refused with a ProgramError: nothing else, nothing hangs."""

import copy
import json
from random import Random
from typing import Any

import pytest

from gradlane_switch.bmv2_json.program import load
from gradlane_switch.codegen.program import generate
from gradlane_switch.errors import ProgramError, SwitchError
from gradlane_switch.native.ffi import LoadedProgram, ffi, runtime
from gradlane_switch.state.program_state import Lock, State
from tests.support.effort import tries
from tests.support.paths import CORPUS

ODD_VALUES: list[Any] = [None, -1, 0, 1, 65, 2048, 1 << 30, "", "x", "0x", "-0x5", [], {}, True, 1.5, [1]]
MUTANTS = tries(1500)
COMPILED = 12


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document, except where in the source things are."""
    found: list[tuple[Any, Any]] = []
    keys = [key for key in value if key != "source_info"] if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            found += places(value[key])
    return found


def mutate(document: Any, random: Random) -> None:
    """Changes one value, copies another over it, or takes it out."""
    everywhere = places(document)
    container, key = random.choice(everywhere)
    other, at = random.choice(everywhere)
    match random.randrange(4):
        case 0:
            container[key] = random.choice(ODD_VALUES)
        case 1:
            container[key] = copy.deepcopy(other[at])
        case 2:
            del container[key]
        case _:
            container[key] = container[key] + random.choice((-1, 1, 7)) if isinstance(container[key], int) else None


def mutants(seed: int, count: int) -> list[str]:
    random = Random(seed)
    originals = [path.read_text() for path in sorted(CORPUS.glob("*.json"))]
    result: list[str] = []
    for _ in range(count):
        document = json.loads(random.choice(originals))  # faster than a copy
        mutate(document, random)
        result.append(json.dumps(document))
    return result


@pytest.mark.parametrize("seed", range(2))
def test_a_mutated_program_is_refused_or_loads(seed: int) -> None:
    refused = 0
    for text in mutants(seed, MUTANTS):
        try:
            generate(load(text))
        except ProgramError:
            refused += 1
    assert 0 < refused < MUTANTS


def test_a_mutated_program_that_loads_survives_any_packet() -> None:
    random = Random(11)
    ran = 0
    for text in mutants(3, 200):
        try:
            program = load(text)
            if any(register.size > 1 << 20 for register in program.registers) or ran == COMPILED:
                continue
            loaded, state = LoadedProgram(generate(program)), State(program, Lock())
        except SwitchError:
            continue
        ran += 1
        sent, out = ffi.new("gl_sent[]", 512), ffi.new("uint8_t[]", 1 << 22)
        for _ in range(200):
            frame = random.randbytes(random.randrange(200))
            arguments = (random.randrange(512), frame, len(frame), 0, sent, 512, out, 1 << 22, ffi.NULL)
            assert runtime().gl_process_one(loaded.process, state.handle, *arguments) >= 0
    assert ran == COMPILED
