# SPDX-License-Identifier: Apache-2.0
"""C for a whole program. Names of the P4 program never reach it: headers, fields, tables and actions are numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gradlane_switch.codegen.calculations import calculations, checksums
from gradlane_switch.codegen.deparser import deparser
from gradlane_switch.codegen.expressions import is_long
from gradlane_switch.codegen.headers import handling, members
from gradlane_switch.codegen.packet_path import packet_path
from gradlane_switch.codegen.parser import ParserWriter
from gradlane_switch.codegen.statements import action
from gradlane_switch.codegen.tables import control_flow
from gradlane_switch.errors import ProgramError
from gradlane_switch.ir.program import Program

_HEADROOM = 2044  # GL_HEADROOM, less a VLAN tag that the kernel took out of the frame


def generate(program: Program, traced: bool = False) -> str:
    """The C source of a program, which defines `gl_program`; if it is traced, one that records what it does.

    Raises ProgramError if its headers can't fit.
    """
    if sum(program.headers[index].most_octets for index in program.deparser) > _HEADROOM:
        raise ProgramError(f"headers of more than {_HEADROOM} bytes in all are not supported")
    body = "\n".join(_source(program))
    widths = sorted({int(words) for words in re.findall(r"\bgl_w(\d+)", body)})
    types = "".join(f"GL_WIDE({words}, {'GL_CALLED' if is_long(64 * words) else 'GL_INLINE'})\n" for words in widths)
    tracing = "#define GL_TRACED\n" if traced else ""
    return f'{tracing}#include "program/program.h"\n{types}{body}\n'


def _source(program: Program) -> Iterator[str]:
    yield "typedef struct {"
    yield from members(program)
    yield "} headers;"
    yield from handling(program)
    yield from ParserWriter(program).source()
    yield from calculations(program)
    for index, item in enumerate(program.actions):
        yield from action(program, index, item)
    yield from control_flow(program, program.ingress)
    yield from control_flow(program, program.egress)
    yield from checksums(program)
    yield from deparser(program)
    yield from packet_path(program)
