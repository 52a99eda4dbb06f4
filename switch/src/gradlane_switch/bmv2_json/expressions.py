# SPDX-License-Identifier: Apache-2.0
"""Reads expressions of the BMv2 JSON into trees, and refuses by name what can't be computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from gradlane_switch.bmv2_json.document import Node
from gradlane_switch.ir.expressions import (
    ARITHMETIC,
    COMPARISONS,
    LOGIC,
    MAX_COMPUTED,
    MAX_WIDTH,
    Binary,
    Choice,
    Const,
    Element,
    Expr,
    Field,
    LastIndex,
    Lookahead,
    Param,
    SameNumber,
    Saturate,
    Unary,
    Valid,
    Wrap,
    shape,
)
from gradlane_switch.ir.headers import Stack
from gradlane_switch.ir.statements import Picked

_DEREFERENCES = ("dereference_header_stack", "dereference_stack")


@dataclass(frozen=True)
class Scope:
    """What names mean while an expression is read.

    `fields` by (header, field); `layouts` the fields of each header in order; `variable` the headers that have a
    variable-length field, by (header, field).
    """

    fields: Mapping[tuple[str, str], Field]
    headers: Mapping[str, int]
    params: tuple[Param, ...] = ()
    layouts: Sequence[tuple[Field, ...]] = ()
    variable: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    unions: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    stacks: Mapping[str, int] = field(default_factory=dict[str, int])
    stack_list: Sequence[Stack] = ()


def require_exact(expr: Expr, node: Node, where: str) -> Expr:
    """The expression, if its value is bounded; raises ProgramError otherwise."""
    if shape(expr) is None:
        raise node.refuse(f"a value that may have more than {MAX_COMPUTED} bits, in {where}, is not supported")
    return expr


def parse_value(node: Node, scope: Scope) -> Expr:
    """The expression that a type-value object stands for. Raises ProgramError for unsupported types."""
    kind = node.text("type")
    match kind:
        case "expression":
            inner = node.child("value")
            return parse_value(inner, scope) if inner.has("type") else _parse_operation(inner, scope)
        case "hexstr":
            return _constant(node)
        case "bool":
            return Const(int(node.flag("value")))
        case "field":
            return parse_field(node, scope)
        case "local" | "runtime_data":
            index = node.integer("value")
            if not 0 <= index < len(scope.params):
                raise node.refuse(f"action parameter {index} does not exist")
            return scope.params[index]
        case "lookahead":
            offset, width = node.sequence("value")
            if not 0 < width <= MAX_WIDTH or not 0 <= offset <= MAX_WIDTH:
                raise node.refuse(f"a lookahead of {width} bits after {offset} is not supported (at most {MAX_WIDTH})")
            return Lookahead(offset, width)
        case "stack_field" | "union_stack_field":
            return _last_field(node, scope)
        case _:
            raise node.refuse(f"values of type {kind!r} are not supported")


def parse_field(node: Node, scope: Scope) -> Field | Valid:
    """The field that a type-value object of type `field` names."""
    return find_field(node.sequence("value"), node, scope)


def find_field(value: list[Any], node: Node, scope: Scope) -> Field | Valid:
    """The field that a pair (header, field) names; the hidden field `$valid$` is the header's validity."""
    header, name = value
    if not isinstance(header, str):
        raise node.refuse("the validity of a stack's element with a computed index is not supported")
    if name == "$valid$" and header in scope.headers:
        return Valid(scope.headers[header])
    found = scope.fields.get((header, name))
    if (header, name) in scope.variable:
        raise node.refuse(f"{header}.{name} has a variable length: it can only be extracted, copied and hashed")
    if found is None:
        raise node.refuse(f"field {header}.{name} does not exist")
    return found


def find_header(node: Node, scope: Scope) -> int:
    """Index of the header that a type-value object of type `header` names."""
    node = unwrapped(node)
    if node.text("type") != "header":
        raise node.refuse(f"headers of type {node.text('type')!r} are not supported")
    name = node.text("value")
    if name not in scope.headers:
        raise node.refuse(f"header {name} does not exist")
    return scope.headers[name]


def find_picked(node: Node, scope: Scope) -> int | Picked:
    """As `find_header`, or the headers that a computed index into a stack may select."""
    inner = _operation(node)
    if inner.optional_text("op") not in _DEREFERENCES:
        return find_header(node, scope)
    headers, index = _dereferenced(inner, scope)
    return Picked(headers, require_exact(index, node, "an index"))


def find_union(node: Node, scope: Scope) -> tuple[int, ...]:
    """The headers of the union that a type-value object names."""
    node = unwrapped(node)
    name = node.text("value")
    if node.text("type") not in ("header_union", "header") or name not in scope.unions:
        raise node.refuse(f"header union {name} does not exist")
    return scope.unions[name]


def find_stack(node: Node, scope: Scope) -> int:
    """Index of the stack that a type-value object of type `header_stack` or `header_union_stack` names."""
    if node.text("type") not in ("header_stack", "header_union_stack"):
        raise node.refuse(f"a header stack is wanted, not a {node.text('type')}")
    return _stack_named(node.text("value"), node, scope)


def hex_value(text: str, node: Node) -> int:
    """The integer that a hexstr stands for."""
    try:
        return int(text, 16)
    except ValueError:
        raise node.refuse(f"{text!r} is not a hexadecimal number") from None


def all_of(conditions: Sequence[Expr]) -> Expr:
    """1 if every condition is."""
    return reduce(lambda left, right: Binary("and", left, right), conditions)


def any_of(conditions: Sequence[Expr]) -> Expr:
    """1 if any condition is."""
    return reduce(lambda left, right: Binary("or", left, right), conditions)


def _constant(node: Node) -> Const:
    value = hex_value(node.text("value"), node)
    if value.bit_length() > MAX_WIDTH:
        raise node.refuse(f"a constant of {value.bit_length()} bits is not supported (at most {MAX_WIDTH})")
    return Const(value)


def _stack_named(name: str, node: Node, scope: Scope) -> int:
    if name not in scope.stacks:
        raise node.refuse(f"header stack {name} does not exist")
    return scope.stacks[name]


def _last_field(node: Node, scope: Scope) -> Element:
    """`stack.last.field`, or `stack.last.header.field` of a stack of unions."""
    name, *member, field_name = node.sequence("value")
    stack = _stack_named(name, node, scope)
    found = scope.stack_list[stack]
    if len(member) != (found.names is not None):
        raise node.refuse(f"{'.'.join(map(str, node.sequence('value')))} is not a field of {name}")
    column = found.names.index(member[0]) if found.names is not None else 0
    headers = tuple(element[column] for element in found.elements)
    first = next(key for key, index in scope.headers.items() if index == headers[0])
    return _element(headers, LastIndex(stack), scope.fields.get((first, field_name)), node)


def _element(headers: tuple[int, ...], index: Expr, like: Field | None, node: Node) -> Element:
    if like is None:
        raise node.refuse("that field of the stack does not exist")
    return Element(headers, require_exact(index, node, "an index"), like.field, like.width, like.signed)


def _access_field(node: Node, scope: Scope) -> Expr:
    """A field, by its position, of the element of a stack that an index selects."""
    left = _operation(node.child("left"))
    if left.optional_text("op") not in _DEREFERENCES:
        raise node.refuse("access to a field of a computed header is supported for header stacks only")
    headers, index = _dereferenced(left, scope)
    position = node.integer("right")
    layout = {item.field: item for item in scope.layouts[headers[0]]}
    return _element(headers, index, layout.get(position), node)


def _dereferenced(node: Node, scope: Scope) -> tuple[tuple[int, ...], Expr]:
    """The headers of a stack, and the index that selects one of them."""
    stack = scope.stack_list[find_stack(node.child("left"), scope)]
    if stack.names is not None:
        raise node.refuse("a computed index into a stack of header unions is not supported")
    return tuple(element[0] for element in stack.elements), parse_value(node.child("right"), scope)


def unwrapped(node: Node) -> Node:
    """An operand without what merely wraps it."""
    while node.optional_text("type") == "expression" and node.child("value").has("type"):
        node = node.child("value")
    return node


def _operation(node: Node) -> Node:
    """The operation in an operand; one that is none as it is, unwrapped."""
    node = unwrapped(node)
    return node.child("value") if node.optional_text("type") == "expression" else node


def _kind(node: Node) -> str:
    return unwrapped(node).optional_text("type") or ""


def _same_headers(left: int, right: int, node: Node, scope: Scope) -> Expr:
    """1 if both headers are valid and equal in every field."""
    layouts = scope.layouts[left], scope.layouts[right]
    if [item.width for item in layouts[0]] != [item.width for item in layouts[1]]:
        raise node.refuse("headers of different types can't be compared")
    if {left, right} & set(scope.variable.values()):
        raise node.refuse("comparing headers with a variable-length field is not supported")
    equal = [Binary("==", a, b) for a, b in zip(*layouts, strict=True)]
    return all_of([Valid(left), Valid(right), *equal])


def _compare_headers(node: Node, scope: Scope) -> Expr:
    left, right = node.child("left"), node.child("right")
    if unwrapped(left).raw("value") in scope.unions:
        pairs = zip(find_union(left, scope), find_union(right, scope), strict=True)
        return any_of([_same_headers(a, b, node, scope) for a, b in pairs])
    return _same_headers(find_header(left, scope), find_header(right, scope), node, scope)


def _parse_operation(node: Node, scope: Scope) -> Expr:
    op = node.text("op")
    match op:
        case "valid":
            return Valid(find_header(node.child("right"), scope))
        case "valid_union":
            return any_of([Valid(header) for header in find_union(node.child("right"), scope)])
        case "?":
            condition = require_exact(parse_value(node.child("cond"), scope), node, "a condition")
            return Choice(condition, parse_value(node.child("left"), scope), parse_value(node.child("right"), scope))
        case "not" | "~" | "d2b" | "b2d":
            return _parse_unary(op, node, scope)
        case "access_field":
            return _access_field(node, scope)
        case "last_stack_index":
            return LastIndex(find_stack(node.child("right"), scope))
        case "two_comp_mod" | "sat_cast" | "usat_cast":
            return _parse_cast(op, node, scope)
        case "+" | "-" if not node.has("left"):
            operand = parse_value(node.child("right"), scope)
            return operand if op == "+" else Binary("-", Const(0), operand)
        case "==" | "!=" if _kind(node.child("left")) in ("header", "header_union"):
            same = _compare_headers(node, scope)
            return same if op == "==" else Unary("not", same)
        case _:
            return _parse_binary(op, node, scope)


def _parse_unary(op: str, node: Node, scope: Scope) -> Expr:
    operand = parse_value(node.child("right"), scope)
    if op == "b2d":
        return operand
    if op == "d2b":
        return Binary("!=", require_exact(operand, node, "a conversion to bool"), Const(0))
    return Unary(op, require_exact(operand, node, "a condition") if op == "not" else operand)


def _parse_cast(op: str, node: Node, scope: Scope) -> Expr:
    operand, width = parse_value(node.child("left"), scope), parse_value(node.child("right"), scope)
    if not isinstance(width, Const) or not 0 < width.value <= MAX_WIDTH:
        raise node.refuse(f"a cast to a width that is not a constant in 1..{MAX_WIDTH} is not supported")
    if op == "two_comp_mod":
        return Wrap(operand, width.value)
    return Saturate(require_exact(operand, node, "saturating arithmetic"), width.value, op == "sat_cast")


def _parse_binary(op: str, node: Node, scope: Scope) -> Expr:
    if op not in COMPARISONS + LOGIC + ARITHMETIC:
        raise node.refuse(f"operator {op!r} is not supported")
    if op in ("==", "!=") and (variable := _variable_fields(node, scope)):
        same = SameNumber(*variable)
        return same if op == "==" else Unary("not", same)
    left, right = parse_value(node.child("left"), scope), parse_value(node.child("right"), scope)
    if op in COMPARISONS or op in LOGIC:
        return Binary(op, require_exact(left, node, repr(op)), require_exact(right, node, repr(op)))
    if op in ("/", "%"):
        for operand in (left, right):
            known = shape(operand)
            if known is None or known.signed:
                raise node.refuse(f"{op} of a value that may be negative is not supported")
    if op == ">>":
        left = require_exact(left, node, "a right shift")
    if op in ("<<", ">>"):
        right = require_exact(right, node, "a shift's distance")
        if isinstance(right, Const) and right.value < 0:
            raise node.refuse("a shift by a negative distance is not supported")
    return Binary(op, left, right)


def _variable_fields(node: Node, scope: Scope) -> tuple[int, int] | None:
    """The headers of two variable-length fields that are compared; None if others are."""
    found: list[int] = []
    for side in (node.child("left"), node.child("right")):
        inner = unwrapped(side)
        name = tuple(inner.sequence("value")) if inner.optional_text("type") == "field" else ()
        if len(name) == 2 and isinstance(name[0], str) and (name[0], str(name[1])) in scope.variable:
            found.append(scope.variable[name[0], str(name[1])])
    return (found[0], found[1]) if len(found) == 2 else None
