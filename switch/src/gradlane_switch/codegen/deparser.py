# SPDX-License-Identifier: Apache-2.0
"""C for the deparser: one function."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import groupby

from gradlane_switch.codegen.expressions import SOME_LONG
from gradlane_switch.codegen.headers import has_long, octets_now, write_header
from gradlane_switch.codegen.statements import statement
from gradlane_switch.ir.program import Program

# Most packets have none of the headers with long fields, and are not to pay for tests of each.
_IF_LONG = f"if (__builtin_expect({SOME_LONG}, 0)) "


def deparser(program: Program) -> Iterator[str]:
    """The function that puts the valid headers in front of a packet, after the deparser's own statements."""
    yield "static void deparse(gl_state *s, headers *h, gl_packet *p, uint64_t now) {"
    yield "(void)s; (void)now;"
    for item in program.deparser_body:
        yield statement(program, item)
    yield "uint32_t size = 0;"
    runs = [(long, list(run)) for long, run in groupby(program.deparser, partial(has_long, program))]
    for long, run in runs:
        lengths = [f"(h->v{index} ? {octets_now(program, index)} : 0)" for index in run]
        yield f"{_IF_LONG if long else ''}size += {' + '.join(lengths)};"
    yield "uint8_t *q = p->data - size;"
    yield "p->data = q; p->length += size;"
    for long, run in runs:
        yield f"{_IF_LONG if long else ''}{{"
        for index in run:
            yield f"if (h->v{index}) {{"
            yield from write_header(program, index)
            yield "}"
        yield "}"
    yield "}"
