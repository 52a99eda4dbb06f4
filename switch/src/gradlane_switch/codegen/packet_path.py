# SPDX-License-Identifier: Apache-2.0
"""C for a packet's path through a program: parser, ingress, copies, egress, deparser, in simple_switch's order.

After ingress: clone, then digest, then the first that applies of resubmit, multicast, drop, unicast. Then the packet
waits in a port's queue, unless it can leave at once, and egress begins when it leaves. After egress: clone, then the
first that applies of drop, recirculate, send. A clone or a packet that passes again keeps a field list, and the rest of
its metadata is zero. A packet that comes back, and a clone made in egress, is looked at when the packet in hand has
left.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import partial

from gradlane_switch.codegen import standard_metadata
from gradlane_switch.codegen.bits import write_fields
from gradlane_switch.codegen.expressions import pieces
from gradlane_switch.codegen.headers import copy_field, zero_field
from gradlane_switch.ir.program import DROP_PORT, Digest, FieldList, Program
from gradlane_switch.ir.statements import Assert

_MOST_PASSES = 4096  # of one packet and its copies that come back; P4 can ask for packets that never end


class InstanceType(IntEnum):
    """standard_metadata.instance_type, as simple_switch numbers it."""

    NORMAL = 0
    INGRESS_CLONE = 1
    EGRESS_CLONE = 2
    RECIRCULATED = 4
    REPLICATION = 5
    RESUBMITTED = 6


def packet_path(program: Program) -> Iterator[str]:
    """The C functions that follow a packet, and `gl_program`, which is given each one that is received."""
    yield from _waiting()
    yield from _renew(program)
    yield from _digests(program.digests)
    yield from _leave(program)
    yield from _admit(program)
    yield from _clone_ingress(program)
    yield from _enter(program)
    yield from _program(program)


def _waiting() -> Iterator[str]:
    """Packets that wait for their turn: at the parser, or (with a port) at a queue."""
    yield "typedef struct flight flight;"
    yield "struct flight { flight *next; gl_packet *packet; uint32_t port; int egress; headers h; };"
    yield "typedef struct {"
    yield "gl_state *s; gl_host *host; uint64_t now; uint32_t passes; flight *first, **last;"
    yield "} run;"
    yield "static headers *wait_turn(run *r, gl_packet *p, int egress, uint32_t port) {"
    yield "if (!p) return NULL;"
    yield f"flight *f = r->passes < {_MOST_PASSES} ? malloc(sizeof *f) : NULL;"
    yield f"if (!f) {{ r->s->losses.endless++; {_dropped('ENDLESS')} r->host->discard(r->host, p, 1); return NULL; }}"
    yield "r->passes++;"
    yield "f->next = NULL; f->packet = p; f->egress = egress; f->port = port;"
    yield "*r->last = f; r->last = &f->next;"
    yield "return &f->h;"
    yield "}"


def _renew(program: Program) -> Iterator[str]:
    """Zeroes the metadata, except for a field list, and forgets what the packet was to do."""
    yield "static void renew(headers *n, const headers *old, uint32_t list, uint32_t length, uint32_t size) {"
    yield "(void)old; (void)list; headers *h = n; (void)h;"
    for index, header in enumerate(program.headers):
        if header.metadata:
            for position, field in enumerate(header.fields):
                yield zero_field(index, position, field.width)
    yield "switch (list) {"
    for number, fields in enumerate(program.field_lists, 1):
        yield f"case {number}: {_copies(fields)} break;"
    yield "default: break; }"
    yield "n->m = (gl_marks){.length = length, .size = size, .limit = UINT32_MAX};"
    yield "}"


def _copies(fields: FieldList) -> str:
    parts: list[str] = []
    for item in fields.fields:
        where = item.header, item.field
        parts.append(copy_field(where, where, item.width, "old"))
    return " ".join(parts)


def _digests(digests: tuple[Digest, ...]) -> Iterator[str]:
    # The program has a list for each place where it learns; those of a name are one digest.
    names = [digest.name for digest in digests]
    for index, digest in enumerate(digests):
        yield f"static void digest{index}(gl_state *s, const headers *h, uint64_t now) {{"
        octets = 0
        parts: list[tuple[str, int]] = []
        for item in digest.fields:
            pad = -item.width % 8
            parts += [("UINT64_C(0)", pad)] if pad else []
            parts += pieces(item, item.width)
            octets += (item.width + pad) // 8
        yield f"uint8_t b[{max(octets, 1)}]; (void)h;"
        yield from write_fields("b", parts)
        yield f"s->post(s, GL_MAIL_DIGEST, {names.index(digest.name)}, now, b, {octets});"
        yield "}"


def _leave(program: Program) -> Iterator[str]:
    put = partial(standard_metadata.write, program)
    yield "static void leave(run *r, headers *h, gl_packet *p) {"
    yield "gl_state *s = r->s; gl_host *host = r->host; uint64_t now = r->now; uint32_t port = p->out;"
    yield put("deq_timedelta", "now / 1000 - p->due / 1000")
    yield put("deq_qdepth", "host->depth(host, p)")
    yield put("qid", "p->queue")
    yield put("egress_port", "port")
    yield put("egress_spec", str(DROP_PORT + 1))
    yield put("egress_global_timestamp", "now / 1000")
    yield put("packet_length", "h->m.size")
    yield "GL_TRACE(GL_TRACE_EGRESS, port);"
    yield "egress(s, h, now, h->m.length);"
    yield f"if (h->m.failed) {{ {_dropped('ASSERT')} host->discard(host, p, 1); return; }}"
    yield "if (h->m.clone) {"
    yield from _clone_session()
    yield "for (uint32_t i = 0; c && i < c->count; i++) {"
    yield "headers *n = wait_turn(r, host->copy(host, p, 0), 1, c->replicas[i].port);"
    yield "if (!n) continue;"
    yield "copy_held(n, h);"
    yield "renew(n, h, h->m.clone_fields, h->m.length, h->m.size);"
    yield "n->m.limit = c->limit;"
    yield from _on("n", _classed(put("priority", "c->priority")))
    yield from _on("n", put("instance_type", str(int(InstanceType.EGRESS_CLONE))))
    yield from _on("n", put("egress_rid", "c->replicas[i].instance"))
    yield "}"
    yield "}"
    dropped = f"{_dropped('EGRESS')} host->discard(host, p, 1); return;"
    yield f"if ({standard_metadata.read(program, 'egress_spec')} == {DROP_PORT}) {{ {dropped} }}"
    yield "update_checksums(s, h, p);"
    yield "deparse(s, h, p, now);"
    if any(isinstance(item, Assert) for item in program.deparser_body):
        yield f"if (h->m.failed) {{ {_dropped('ASSERT')} host->discard(host, p, 1); return; }}"
    yield "if (h->m.recirculate) {"
    yield "GL_TRACE(GL_TRACE_AGAIN, 1);"
    yield "gl_packet *again = host->copy(host, p, 0);"
    yield "headers *n = wait_turn(r, again, 0, 0);"
    yield "host->discard(host, p, 0);"
    yield from _begin_again(program, "h->m.recirculate", "again->length", InstanceType.RECIRCULATED)
    yield "}"
    yield "if (p->length > h->m.limit) p->length = h->m.limit;"
    yield "if (port == s->cpu_port) {"
    yield "GL_TRACE(GL_TRACE_CONTROLLER, p->length);"
    yield "s->post(s, GL_MAIL_PACKET, p->port, now, p->data, p->length);"
    yield "host->discard(host, p, 0);"
    yield "return;"
    yield "}"
    yield "host->emit(host, p);"
    yield "}"


def _admit(program: Program) -> Iterator[str]:
    """Between ingress and egress: the queue."""
    yield "static void admit(run *r, headers *h, gl_packet *p, uint32_t port) {"
    yield "gl_host *host = r->host;"
    yield "h->m.passes = (uint16_t)r->passes;"
    yield "p->due = r->now; p->size = h->m.size < h->m.limit ? h->m.size : h->m.limit;"
    yield f"uint64_t class = {standard_metadata.read(program, 'priority')};"
    yield "p->out = (uint16_t)port; p->queue = class < GL_QUEUES ? (uint16_t)class : GL_QUEUES - 1;"
    yield standard_metadata.write(program, "enq_timestamp", "r->now / 1000")
    yield standard_metadata.write(program, "enq_qdepth", "host->depth(host, p)")
    yield "if (host->enqueue(host, p, h, held(h), sizeof *h) == GL_NOW) leave(r, h, p);"
    yield "}"


def _enter(program: Program) -> Iterator[str]:
    put = partial(standard_metadata.write, program)
    yield "static void enter(run *r, headers *h, gl_packet *p) {"
    yield "gl_state *s = r->s; gl_host *host = r->host; uint64_t now = r->now;"
    yield "uint32_t length = p->length;"
    yield "uint32_t consumed = parse(s, h, p->data, length, now);"
    yield "p->data += consumed; p->length -= consumed;"
    yield "verify_checksums(s, h, p);"
    yield "if (!h->m.failed) ingress(s, h, now, length);"
    yield f"if (h->m.failed) {{ {_dropped('ASSERT')} host->discard(host, p, 1); return; }}"
    yield "if (h->m.clone) {"
    yield from _clone_session()
    yield "if (c) clone_ingress(r, h, p, consumed, length, c);"
    yield "h->m.clone = 0;"
    yield "}"
    if program.digests:
        yield "switch (h->m.digest) {"
        for index in range(len(program.digests)):
            yield f"case {index + 1}: GL_TRACE(GL_TRACE_DIGEST, {index}); digest{index}(s, h, now); break;"
        yield "default: break; }"
    yield "if (h->m.resubmit) {"
    yield "p->data -= consumed; p->length += consumed;"
    yield "GL_TRACE(GL_TRACE_AGAIN, 0);"
    yield "headers *n = wait_turn(r, p, 0, 0);"
    yield from _begin_again(program, "h->m.resubmit", "length", InstanceType.RESUBMITTED)
    yield "}"
    if "mcast_grp" in program.standard:
        group = standard_metadata.read(program, "mcast_grp")
        yield f"if ({group}) {{"
        yield f"const gl_group *g = s->groups[{group} & (GL_GROUPS - 1)];"
        yield f"GL_TRACE(GL_TRACE_GROUP, {group}, g ? g->count : 0);"
        yield f"if (!g) {_dropped('NO_GROUP')}"
        yield put("instance_type", str(int(InstanceType.REPLICATION)))
        yield "for (uint32_t i = 0; g && i < g->count; i++) {"
        yield "gl_packet *replica = host->copy(host, p, 0);"
        yield "if (!replica) break;"
        yield "headers copy;"
        yield "copy_held(&copy, h);"
        yield "copy.m = (gl_marks){.length = h->m.length, .size = h->m.size, .limit = UINT32_MAX};"
        yield from _on("(&copy)", put("egress_rid", "g->replicas[i].instance"))
        yield "admit(r, &copy, replica, g->replicas[i].port);"
        yield "}"
        yield "host->discard(host, p, g == NULL);"
        yield "return; }"
    yield f"uint32_t port = (uint32_t){standard_metadata.read(program, 'egress_spec')};"
    yield f"if (port == {DROP_PORT}) {{ {_dropped('INGRESS')} host->discard(host, p, 1); return; }}"
    yield put("instance_type", str(int(InstanceType.NORMAL)))
    yield "admit(r, h, p, port);"
    yield "}"


def _clone_ingress(program: Program) -> Iterator[str]:
    """The copies of a clone session of the packet as it arrived: parsed again, with the metadata of a field list."""

    put = partial(standard_metadata.write, program)
    yield "static void clone_ingress(run *r, const headers *old, gl_packet *p, uint32_t consumed, uint32_t length,"
    yield "const gl_group *c) {"
    yield "gl_state *s = r->s; gl_host *host = r->host; uint64_t now = r->now;"
    yield "headers store, *h = &store; clear(h);"
    yield "h->m = (gl_marks){.length = length, .size = length, .limit = UINT32_MAX};"
    yield put("ingress_port", "p->port")
    yield "p->data -= consumed; p->length += consumed;"
    yield "uint32_t parsed = parse(s, h, p->data, length, now);"
    yield "renew(h, old, old->m.clone_fields, length, h->m.size);"
    yield "h->m.limit = c->limit;"
    yield _classed(put("priority", "c->priority"))
    yield put("instance_type", str(int(InstanceType.INGRESS_CLONE)))
    yield "for (uint32_t i = 0; i < c->count; i++) {"
    yield "gl_packet *replica = host->copy(host, p, parsed);"
    yield "if (!replica) break;"
    yield "headers copy;"
    yield "copy_held(&copy, h);"
    yield from _on("(&copy)", put("egress_rid", "c->replicas[i].instance"))
    yield "admit(r, &copy, replica, c->replicas[i].port);"
    yield "}"
    yield "p->data += consumed; p->length -= consumed;"
    yield "}"


def _begin_again(program: Program, fields: str, length: str, kind: InstanceType) -> Iterator[str]:
    """The headers `n` of a packet that enters ingress again, if it found a turn: with a field list of what it had."""
    yield "if (!n) return;"
    yield "clear(n);"
    yield f"renew(n, h, {fields}, {length}, {length});"
    yield from _on("n", standard_metadata.write(program, "instance_type", str(int(kind))))
    yield from _on("n", standard_metadata.write(program, "packet_length", length))
    yield "return;"


def _clone_session() -> Iterator[str]:
    """Declares `c`, the clone session that the packet asks for, or NULL."""
    yield "const gl_group *c = s->sessions[h->m.clone & (GL_SESSIONS - 1)];"
    yield "GL_TRACE(GL_TRACE_CLONE, h->m.clone & (GL_SESSIONS - 1), c ? c->count : 0);"


def _classed(statement: str) -> str:
    """A statement for clones of a session that has a class of service."""
    return f"if (c->priority) {{ {statement} }}" if statement else ""


def _dropped(reason: str) -> str:
    return f"GL_TRACE(GL_TRACE_DROPPED, GL_DROP_{reason});"


def _on(pointer: str, statement: str) -> Iterator[str]:
    """A statement on other headers than `h`."""
    if statement:
        yield f"{{ headers *h = {pointer}; {statement} }}"


def _program(program: Program) -> Iterator[str]:
    put = partial(standard_metadata.write, program)
    yield "void gl_program(gl_state *s, gl_packet *p, uint64_t now, gl_host *host);"
    yield "void gl_program(gl_state *s, gl_packet *p, uint64_t now, gl_host *host) {"
    yield "run r = {.s = s, .host = host, .now = now, .last = &r.first};"
    yield "GL_TRACE_TO(host->tracer);"
    yield "if (p->kept) {"
    yield "headers *h = p->kept;"
    yield "p->kept = NULL;"
    yield "r.passes = h->m.passes;"
    yield "leave(&r, h, p);"
    yield "} else {"
    yield "headers store, *h = &store; clear(h);"
    yield "h->m = (gl_marks){.length = p->length, .size = p->length, .limit = UINT32_MAX};"
    yield put("ingress_port", "p->port")
    yield put("packet_length", "p->length")
    yield put("ingress_global_timestamp", "now / 1000")
    yield "GL_TRACE_START(p, now);"
    yield "enter(&r, h, p);"
    yield "}"
    yield "for (flight *f; (f = r.first);) {"
    yield "r.first = f->next;"
    yield "if (!r.first) r.last = &r.first;"
    yield "if (f->egress) admit(&r, &f->h, f->packet, f->port); else enter(&r, &f->h, f->packet);"
    yield "free(f);"
    yield "}"
    yield "}"
