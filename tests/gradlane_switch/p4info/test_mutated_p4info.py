# SPDX-License-Identifier: Apache-2.0
"""P4Infos with something changed anywhere fit their program, or are refused with a ProgramError: nothing else.

With one that fits, any wildcard read and a write of what it returns is answered too.
"""

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from finsy.proto import p4i, p4r
from google.protobuf import text_format

from gradlane_switch.bmv2_json.program import load
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.program import Program
from gradlane_switch.p4info.join import join
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch import batches as batch
from tests.support.effort import tries
from tests.support.paths import CORPUS, SWITCH_PROGRAMS

# Between them they have every kind of entity.
INSTALLED = tuple(SWITCH_PROGRAMS / name for name in ("attached", "packet_paths"))
MUTANTS = tries(1200)
RUN = 60
KINDS = [field.name for field in p4r.Entity.DESCRIPTOR.fields if field.message_type is not None]


@cache
def original(path: Path) -> tuple[bytes, Program, Any]:
    content = Path(f"{path}.json").read_bytes()
    info = text_format.Parse(Path(f"{path}.p4info.txtpb").read_text(), p4i.P4Info())
    return content, load(content), info


def messages(message: Any) -> list[Any]:
    """A message and all those in it."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for item in value if field.is_repeated else [value]:
                found += messages(item)
    return found


def scalar(field: Any, old: Any, names: list[str], random: Random) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        if field.type == field.TYPE_BYTES:
            return random.choice([b"", b"\0", random.randbytes(9)])
        return random.choice(["", "x", old + "x", random.choice(names), "@", "\u20ac"])
    if field.cpp_type == field.CPPTYPE_BOOL:
        return not old
    if field.cpp_type == field.CPPTYPE_ENUM:
        return random.randrange(9)
    low, high = (-(1 << 31), (1 << 31) - 1) if field.cpp_type == field.CPPTYPE_INT32 else (0, (1 << 32) - 1)
    return min(max(random.choice([0, 1, -1, old + 1, old - 1, 65, 2049, high, random.getrandbits(31)]), low), high)


def mutate(info: Any, random: Random) -> None:
    """Changes one field, takes something out, or has it twice."""
    everywhere = messages(info)
    names = [item.name for item in everywhere if "name" in item.DESCRIPTOR.fields_by_name] or [""]
    message = random.choice(everywhere)
    # Half of the time a field that is set.
    fields = [field for field, _ in message.ListFields()] if random.random() < 0.5 else message.DESCRIPTOR.fields
    if not fields:
        return
    field = random.choice(fields)
    value = getattr(message, field.name)
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            message.ClearField(field.name)
        elif value and random.random() < 0.5:
            del value[random.randrange(len(value))]
        elif value:
            value.append(random.choice(value))
        elif field.message_type is not None:
            value.add()
        else:
            value.append(scalar(field, "" if field.cpp_type == field.CPPTYPE_STRING else 0, names, random))
    elif field.message_type is not None:
        if message.HasField(field.name):
            message.ClearField(field.name)
        else:
            value.SetInParent()
    else:
        setattr(message, field.name, scalar(field, value, names, random))


def mutant(path: Path, random: Random) -> Any:
    info = p4i.P4Info()
    info.CopyFrom(original(path)[2])
    for _ in range(random.choice([1, 1, 2, 4])):
        mutate(info, random)
    return info


@pytest.mark.parametrize("seed", range(2))
def test_a_mutated_p4info_is_refused_or_fits(seed: int) -> None:
    random = Random(seed)
    paths = [path.with_suffix("") for path in sorted(CORPUS.glob("*.json"))]
    refused = 0
    for _ in range(MUTANTS):
        path = random.choice(paths)
        try:
            join(mutant(path, random), original(path)[1])
        except ProgramError:
            refused += 1
    assert MUTANTS / 10 < refused < MUTANTS


@pytest.mark.parametrize("path", INSTALLED, ids=[path.name for path in INSTALLED])
def test_with_a_mutated_p4info_that_fits_everything_is_answered(path: Path) -> None:
    random = Random(path.name)
    fitted = 0
    for _ in range(RUN):
        try:
            pipeline = Pipeline(original(path)[0], mutant(path, random), Lock())
        except ProgramError:
            continue
        fitted += 1
        requests = [p4r.Entity(**{kind: getattr(p4r.Entity(), kind)}) for kind in KINDS]
        for request, kind in zip(requests, KINDS, strict=True):
            getattr(request, kind).SetInParent()
        found, _ = batch.read(pipeline, requests)
        entities = [entity for message in found for entity in message.entities][:300]
        for kind in (p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE):
            updates = [p4r.Update(type=kind, entity=entity) for entity in entities]
            assert len(batch.write(pipeline, updates)) in (0, len(updates))
    assert fitted > RUN / 10
