# SPDX-License-Identifier: Apache-2.0
"""Writes random but valid v1model programs.

What they do is defined on BMv2 too: fields are read of headers that are valid only, no key is in a table twice, and
registers are used in ingress alone.
"""

from __future__ import annotations

import random

from tests.differential.random_expressions import Expressions, Kind, Place
from tests.differential.random_scope import Scope, parts_of

_WIDTHS = (1, 2, 3, 5, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 72, 96, 128, 130)
_CHECKED = ("h.extra", "h.items[0]", "h.items[1]", "h.items[2]")


class Writer:
    """Writes the program of a seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(f"gradlane/random/{seed}")
        self._expressions = Expressions(self._random)
        self._subject = self._fields("f", self._random.randrange(4, 9))
        self._extra = self._fields("e", self._random.randrange(1, 4))
        self._metadata = self._fields("m", self._random.randrange(2, 6))
        self._declarations: list[str] = []
        self._count = 0
        self._depth = 0

    def source(self) -> str:
        """The program."""
        ingress = self._block(self._scope(["s.ingress_port"]), self._random.randrange(4, 9))
        declared, self._declarations = self._declarations, []
        scope = self._scope(["s.egress_port"])
        scope.in_egress = True
        egress = self._block(scope, self._random.randrange(1, 5))
        fields = "\n".join(f"    {place.kind} {place.name};" for place in self._padded(self._subject))
        extra = " ".join(f"{place.kind} {place.name};" for place in self._padded(self._extra))
        metadata = " ".join(f"{place.kind} {place.name};" for place in self._metadata)
        return f"""// SPDX-License-Identifier: Apache-2.0
// Made by random_programs.py from seed {self._seed}.
#define OWN_PARSER
#define OWN_EGRESS
#define OWN_UPDATE
#include "include/base.p4"

header subject_t {{
    bit<8> kind;
    bit<16> sum;
{fields}
}}
header extra_t {{ {extra} }}
header item_t {{ bit<8> a; bit<12> b; int<4> c; }}
struct headers_t {{ ethernet_t ethernet; subject_t subject; extra_t extra; item_t[3] items; }}
struct metadata_t {{ {metadata} }}

{self._parser()}
INGRESS {{
{_joined(declared)}    apply {{
        FORWARD
        if (h.subject.isValid()) {{
{ingress}        }}
    }}
}}

EGRESS {{
{_joined(self._declarations)}    apply {{
        if (h.subject.isValid()) {{
{egress}        }}
    }}
}}

{self._update()}
#include "include/rest.p4"
"""

    def _fields(self, prefix: str, count: int, signed: bool = True) -> list[Place]:
        kinds: list[Kind] = []
        for _ in range(count):
            width = self._random.choice(_WIDTHS)
            kinds.append(Kind(width, signed and width > 1 and self._random.random() < 0.3))
        return [Place(f"{prefix}{number}", kind) for number, kind in enumerate(kinds)]

    @staticmethod
    def _padded(fields: list[Place]) -> list[Place]:
        missing = -sum(place.kind.width for place in fields) % 8
        return [*fields, Place("pad", Kind(missing))] if missing else fields

    def _scope(self, standard: list[str]) -> Scope:
        names = [Place(f"h.subject.{place.name}", place.kind) for place in (*self._subject, Place("kind", Kind(8)))]
        names += [Place(f"m.{place.name}", place.kind) for place in self._metadata]
        self._writable = list(names)
        names += [Place(name, Kind(9)) for name in standard]
        return Scope(names, extra=self._extra)

    # Parser

    def _parser(self) -> str:
        scope = self._scope(["s.ingress_port"])
        narrow = [place for place in self._subject if not place.kind.signed]
        keys = ["h.subject.kind[1:0]"]
        widths = [2]
        for place in self._random.sample(narrow, min(len(narrow), self._random.randrange(3))):
            keys.append(f"h.subject.{place.name}")
            widths.append(place.kind.width)
        targets = ["extra", "items", "both", "ahead"]
        cases = "".join(
            f"            {self._case(widths)}: {self._random.choice(targets)};\n"
            for _ in range(self._random.randrange(2, 6))
        )
        condition = self._expressions.condition(scope.readable(), 2)
        assigned = self._assignment(scope)
        return f"""PARSER {{
    START
    state subject {{
        packet.extract(h.subject);
        {assigned}
        transition select({", ".join(keys)}) {{
{cases}            default: accept;
        }}
    }}
    state extra {{ packet.extract(h.extra); verify({condition}, error.NoMatch); transition accept; }}
    state items {{
        packet.extract(h.items.next);
        transition select(h.items.last.{self._random.choice("ab")}[3:0]) {{ 0..7: items; default: accept; }}
    }}
    state both {{ packet.extract(h.extra); transition items; }}
    state ahead {{
        bit<6> next = packet.lookahead<bit<6>>();
        transition select(next) {{ 32 &&& 32: extra; 1..9: items; default: accept; }}
    }}
}}
"""

    def _case(self, widths: list[int]) -> str:
        parts: list[str] = []
        for width in widths:
            whole = (1 << width) - 1
            value = self._random.choice((0, 1, whole, self._random.randrange(1 << width))) & whole
            match self._random.randrange(4):
                case 0 if len(widths) > 1:
                    parts.append("_")
                case 1:
                    parts.append(f"{value} &&& {self._random.randrange(1 << width)}")
                case 2 if width <= 16:
                    parts.append(f"{min(value, whole - value)}..{max(value, whole - value)}")
                case _:
                    parts.append(str(value))
        return f"({', '.join(parts)})" if len(parts) > 1 else parts[0]

    def _update(self) -> str:
        listed = [f"h.subject.{place.name}" for place in self._subject]
        return (
            "UPDATE {\n    apply {\n        update_checksum(h.subject.isValid(), "
            f"{{ {', '.join(listed)} }}, h.subject.sum, HashAlgorithm.csum16);\n    }}\n}}\n"
        )

    # Statements

    def _block(self, scope: Scope, count: int) -> str:
        indent = "    " * (3 + self._depth)
        return "".join(
            "".join(f"{indent}{line}\n" for line in self._statement(scope).splitlines()) for _ in range(count)
        )

    def _statement(self, scope: Scope) -> str:
        choices = [self._assignment] * 6 + [self._validity, self._stack, self._hash, self._register]
        if self._depth < 3:
            choices += [self._branch] * 3
            if not scope.in_action:
                choices.append(self._switch)
        if not scope.in_action:
            choices += [self._table] * 2 + [self._action, self._end]
        return self._random.choice(choices)(scope)

    def _assignment(self, scope: Scope) -> str:
        target = self._random.choice(self._writable)
        kind = target.kind
        name = target.name
        if not kind.signed and kind.width > 2 and self._random.random() < 0.2:
            low = self._random.randrange(kind.width)
            high = self._random.randrange(low, kind.width)
            name, kind = f"{name}[{high}:{low}]", Kind(high - low + 1)
        return f"{name} = {self._expressions.value(kind, scope.readable(), 3)};"

    def _validity(self, scope: Scope) -> str:
        header = self._random.choice(_CHECKED)
        match self._random.randrange(4):
            case 0:
                scope.valid.add(header)
                return f"{header}.setValid();"
            case 1:
                scope.valid.discard(header)
                return f"{header}.setInvalid();"
            case 2 if header != "h.extra":
                other = self._random.choice(_CHECKED[1:])
                (scope.valid.add if other in scope.valid else scope.valid.discard)(header)
                return f"{header} = {other};"
            case _:
                if header not in scope.valid:
                    return self._guarded(scope, header)
                place = self._random.choice(parts_of(header, scope.extra))
                return f"{place.name} = {self._expressions.value(place.kind, scope.readable(), 2)};"

    def _guarded(self, scope: Scope, header: str) -> str:
        before = set(scope.valid)
        scope.valid = before | {header}
        self._depth += 1
        body = self._block(scope, self._random.randrange(1, 3))
        self._depth -= 1
        scope.valid &= before
        return f"if ({header}.isValid()) {{\n{_indented(body)}}}"

    def _stack(self, scope: Scope) -> str:
        scope.valid -= set(_CHECKED[1:])
        return f"h.items.{self._random.choice(('push_front', 'pop_front'))}({self._random.randrange(1, 4)});"

    def _branch(self, scope: Scope) -> str:
        condition = self._expressions.condition(scope.readable(), 3)
        before = set(scope.valid)
        self._depth += 1
        yes = self._block(scope, self._random.randrange(1, 4))
        after, scope.valid = scope.valid, set(before)
        no = self._block(scope, self._random.randrange(0, 3))
        self._depth -= 1
        scope.valid &= after
        otherwise = f" else {{\n{_indented(no)}}}" if no else ""
        return f"if ({condition}) {{\n{_indented(yes)}}}{otherwise}"

    def _switch(self, scope: Scope) -> str:
        width = self._random.choice((3, 8, 16))
        key = self._expressions.value(Kind(width), scope.readable(), 2)
        before = set(scope.valid)
        results: list[set[str]] = [before]
        cases: list[str] = []
        self._depth += 2
        for number in sorted(self._random.sample(range(8), self._random.randrange(1, 5))):
            scope.valid = set(before)
            body = self._block(scope, self._random.randrange(1, 3))
            results.append(scope.valid)
            cases.append(f"    {number}: {{\n{_indented(body, 2)}    }}")
        self._depth -= 2
        scope.valid = set.intersection(*results)
        text = "\n".join(cases)
        return f"switch ({key}) {{\n{text}\n    default: {{ }}\n}}"

    def _hash(self, scope: Scope) -> str:
        targets = [place for place in self._writable if not place.kind.signed and place.kind.width <= 64]
        if not targets:
            return self._assignment(scope)
        target = self._random.choice(targets)
        kind = target.kind
        listed = [place.name for place in self._random.choices(scope.readable(), k=self._random.randrange(1, 4))]
        algorithm = self._random.choice(("crc16", "crc32", "csum16", "xor16", "identity"))
        base = self._random.randrange(1 << min(kind.width, 8))
        bound = self._random.choice((1, 7, 100, 256, 65536))
        arguments = f"HashAlgorithm.{algorithm}, {kind.width}w{base}, {{ {', '.join(listed)} }}, 32w{bound}"
        return f"hash({target.name}, {arguments});"

    def _register(self, scope: Scope) -> str:
        targets = [place for place in self._writable if not place.kind.signed and place.kind.width <= 63]
        # BMv2 runs egress in several threads, so there the order of packets at different ports is open.
        if not targets or scope.in_action or scope.in_egress:
            return self._assignment(scope)
        target = self._random.choice(targets)
        name = self._name("cells")
        self._declarations.append(f"register<{target.kind}>(8) {name};")
        index = self._expressions.value(Kind(3), scope.readable(), 1)
        value = self._expressions.value(target.kind, scope.readable(), 2)
        return f"{name}.read({target.name}, (bit<32>)({index}));\n{name}.write((bit<32>)({index}), {value});"

    def _end(self, scope: Scope) -> str:
        condition = self._expressions.condition(scope.readable(), 2)
        return f"if ({condition}) {{ {self._random.choice(('exit;', 'return;'))} }}"

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _action(self, scope: Scope) -> str:
        """A call of an action with arguments; some have a loop."""
        name = self._name("act")
        parameters = self._fields("p", self._random.randrange(1, 4))
        depth, self._depth = self._depth, 0
        inner = Scope([*scope.names, *parameters], extra=scope.extra, in_action=True)
        body = self._block(inner, self._random.randrange(1, 4))
        if self._random.random() < 0.4:
            inner.names.append(Place("i", Kind(8)))
            inner.valid.clear()  # whatever the turn before has left
            self._depth = 1
            stop = self._expressions.condition(inner.readable(), 2)
            looped = self._block(inner, self._random.randrange(1, 3))
            leave = self._random.choice(("break", "continue"))
            times = self._random.randrange(1, 6)
            body += (
                f"            for (bit<8> i = 0; i < {times}; i = i + 1) {{\n"
                f"                if ({stop}) {{ {leave}; }}\n{looped}            }}\n"
            )
        self._depth = depth
        listed = ", ".join(f"in {place.kind} {place.name}" for place in parameters)
        self._declarations.append(f"action {name}({listed}) {{\n{body}    }}")
        arguments = ", ".join(self._expressions.value(place.kind, scope.readable(), 2) for place in parameters)
        scope.valid.clear()
        return f"{name}({arguments});"

    def _table(self, scope: Scope) -> str:
        """A table with constant entries, and what follows a hit or an action."""
        name, action = self._name("table"), self._name("run")
        # p4c knows no negative action data of constant entries.
        parameters = self._fields("p", self._random.randrange(1, 3), signed=False)
        depth, self._depth = self._depth, 0
        inner = Scope([*scope.names, *parameters], extra=scope.extra, in_action=True)
        body = self._block(inner, self._random.randrange(1, 3))
        self._depth = depth
        listed = ", ".join(f"{place.kind} {place.name}" for place in parameters)
        self._declarations.append(f"action {action}({listed}) {{\n{body}    }}")
        candidates = [place for place in scope.names if not place.kind.signed]
        keys = self._random.sample(candidates, min(len(candidates), self._random.randrange(1, 4)))
        kinds = [self._random.choice(("exact", "ternary", "range")) for _ in keys]
        # Of other keys, BMv2 counts prefixes from the first bit of their first byte, and p4c refuses wide masks.
        if set(kinds) == {"exact"} and keys[-1].kind.width in (8, 16, 24, 32, 48, 64) and self._random.random() < 0.5:
            kinds[-1] = "lpm"
        # BMv2 ends when it is given a key twice.
        matches = {
            self._entry([key.kind.width for key in keys], kinds): None for _ in range(self._random.randrange(1, 6))
        }
        entries = "\n".join(
            f"            {match}: {action}"
            f"({', '.join(self._expressions.literal(place.kind) for place in parameters)});"
            for match in matches
        )
        default = ", ".join(self._expressions.literal(place.kind) for place in parameters)
        fallback = self._random.choice(("NoAction()", f"{action}({default})"))
        key = " ".join(f"{place.name}: {kind};" for place, kind in zip(keys, kinds, strict=True))
        self._declarations.append(
            f"table {name} {{\n        key = {{ {key} }}\n        actions = {{ {action}; NoAction; }}\n"
            f"        const default_action = {fallback};\n        const entries = {{\n{entries}\n        }}\n    }}"
        )
        scope.valid.clear()
        if self._depth >= 2 or self._random.random() < 0.5:
            return f"{name}.apply();"
        self._depth += 1
        follow = self._block(scope, 1)
        self._depth -= 1
        scope.valid.clear()
        if self._random.random() < 0.5:
            return f"if ({self._random.choice(('', '!'))}{name}.apply().hit) {{\n{_indented(follow)}}}"
        return f"switch ({name}.apply().action_run) {{\n    {action}: {{\n{_indented(follow, 2)}    }}\n}}"

    def _entry(self, widths: list[int], kinds: list[str]) -> str:
        parts: list[str] = []
        for width, kind in zip(widths, kinds, strict=True):
            whole = (1 << width) - 1
            value = self._random.choice((0, 1, whole, self._random.randrange(1 << width))) & whole
            match kind:
                case "ternary":
                    mask = self._random.choice((whole, self._random.randrange(1 << width)))
                    parts.append(f"{value & mask} &&& {mask}")
                case "range":
                    parts.append(f"{min(value, whole // 2)}..{max(value, whole // 2)}")
                case "lpm":
                    length = self._random.randrange(1, width + 1)
                    mask = whole ^ (whole >> length)
                    parts.append(f"{value & mask} &&& {mask}")
                case _:
                    parts.append(str(value))
        return f"({', '.join(parts)})" if len(parts) > 1 else parts[0]


def _joined(declarations: list[str]) -> str:
    return "".join(f"    {text}\n" for text in declarations)


def _indented(body: str, depth: int = 1) -> str:
    """A block's lines, indented against the statement that holds it."""
    return "".join(f"{'    ' * depth}{line.lstrip()}\n" for line in body.splitlines())
