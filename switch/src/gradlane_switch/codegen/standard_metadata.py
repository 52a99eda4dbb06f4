# SPDX-License-Identifier: Apache-2.0
"""C that reads and sets v1model's standard metadata. A program has the fields of it that its compiler kept."""

from __future__ import annotations

from gradlane_switch.codegen.bits import number
from gradlane_switch.codegen.expressions import field_name
from gradlane_switch.ir.program import Program


def read(program: Program, name: str, otherwise: str = "0") -> str:
    """The field, or what stands for it if the program has none."""
    field = program.standard.get(name)
    return otherwise if field is None else field_name(field.header, field.field)


def write(program: Program, name: str, value: str) -> str:
    """A statement that sets the field, cut to its width; empty if the program has none."""
    field = program.standard.get(name)
    if field is None:
        return ""
    return f"{field_name(field.header, field.field)} = ({value}) & {number((1 << field.width) - 1)};"
