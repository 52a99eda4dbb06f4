# SPDX-License-Identifier: Apache-2.0
"""C for the deparser: one function."""

from __future__ import annotations

from collections.abc import Iterator

from gradlane_switch.codegen.headers import octets_now, write_header
from gradlane_switch.codegen.statements import statement
from gradlane_switch.ir.program import Program


def deparser(program: Program) -> Iterator[str]:
    """The function that puts the valid headers in front of a packet, after the deparser's own statements."""
    yield "static void deparse(gl_state *s, headers *h, gl_packet *p, uint64_t now) {"
    yield "(void)s; (void)now;"
    for item in program.deparser_body:
        yield statement(program, item)
    lengths = [f"(h->v{index} ? {octets_now(program, index)} : 0)" for index in program.deparser]
    yield f"uint32_t size = {' + '.join(lengths) or '0'};"
    yield "uint8_t *q = p->data - size;"
    yield "p->data = q; p->length += size;"
    for index in program.deparser:
        yield f"if (h->v{index}) {{"
        yield from write_header(program, index)
        yield "}"
    yield "}"
