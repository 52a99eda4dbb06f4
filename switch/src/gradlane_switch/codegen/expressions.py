# SPDX-License-Identifier: Apache-2.0
"""C for expressions. Nothing but indices and numbers of the program gets into it.

What fits in 64 bits is a `uint64_t`; wider values are structs of words (runtime/base/wide.h). Long fields are computed
in place, and each has a mark that says whether it has been set. Until then it is 0, whatever its bytes are: so nobody
has to clear or copy what most packets do not have.
"""

from __future__ import annotations

from gradlane_switch.codegen.bits import number, read_bits
from gradlane_switch.ir.expressions import (
    COMPARISONS,
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
    Shape,
    Unary,
    Valid,
    Wrap,
    shape,
    split_words,
    words_of,
)

SOME_LONG = "h->l"
"""The member of the headers' struct that is not 0 if any long field has been set, or any header with one made valid."""
_OPERATORS = {"and": "&&", "or": "||"}
_DIVISIONS = {"/": "quotient", "%": "remainder"}
_LONG = 256  # bits: an address is not long
_WIDE_OPERATORS = {"+": "add", "-": "subtract", "*": "multiply", "&": "and", "|": "or", "^": "xor"}
_IN_PLACE = ("+", "-", "&", "|", "^")


def field_name(header: int, field: int) -> str:
    """The member of the headers' struct that holds a field."""
    return f"h->f{header}_{field}"


def valid_name(header: int) -> str:
    """The member of the headers' struct that says whether a header is valid."""
    return f"h->v{header}"


def bytes_name(header: int) -> str:
    """The member of the headers' struct that holds a variable-length field's bytes."""
    return f"h->x{header}"


def length_name(header: int) -> str:
    """The member of the headers' struct that holds a variable-length field's length in bytes."""
    return f"h->y{header}"


def next_name(stack: int) -> str:
    """The member of the headers' struct that counts a stack's extracted elements."""
    return f"h->n{stack}"


def mark_name(header: int, field: int) -> str:
    """The member of the headers' struct that says whether a long field has been set."""
    return f"h->w{header}_{field}"


def is_long(width: int) -> bool:
    """Whether fields of that width have marks."""
    return width > _LONG


def c_type(width: int) -> str:
    """The C type that holds `width` bits."""
    return "uint64_t" if width <= 64 else f"gl_w{words_of(width)}"


def set_mark(header: int, field: int) -> str:
    """Statement: a long field has been set."""
    return f"{mark_name(header, field)} = {SOME_LONG} = 1;"


def place(header: int, field: int, width: int) -> str:
    """A C pointer to what a field of more than 64 bits holds."""
    name = field_name(header, field)
    return f"{c_type(width)}_held(&{name}, {mark_name(header, field)})" if is_long(width) else f"&{name}"


def stored(header: int, field: int, width: int) -> str:
    """A C expression: what a field holds."""
    return f"(*{place(header, field, width)})" if is_long(width) else field_name(header, field)


def set_field(header: int, field: int, width: int, value: str) -> str:
    """Statements: sets a field to a C expression of its type."""
    marked = f" {set_mark(header, field)}" if is_long(width) else ""
    return f"{field_name(header, field)} = {value};{marked}"


# 64 bits


def expression(expr: Expr) -> str:
    """A C expression of type uint64_t: the value modulo 2**64.

    The parser's position is `q`, an action's arguments are `a`.
    """
    match expr:
        case Const(value):
            return number(value % (1 << 64))
        case Field(header, field, width, signed):
            name = stored(header, field, width)
            if width > 64:
                return f"{name}.w[0]"
            return f"gl_extend({name}, {width})" if signed and width < 64 else name
        case Valid(header):
            return f"(uint64_t){valid_name(header)}"
        case Param(word):
            return f"a[{word}]"
        case Lookahead(offset, width):
            kept = min(width, 64)
            return read_bits("q", offset + width - kept, kept)
        case LastIndex(stack):
            return f"((uint64_t){next_name(stack)} - 1)"
        case Element(width=width, signed=signed):
            if width > 64:
                return f"{_element(expr)}.w[0]"
            return f"gl_extend({_element(expr)}, {width})" if signed and width < 64 else _element(expr)
        case SameNumber(left, right):
            sides = ", ".join(f"{bytes_name(side)}, {length_name(side)}" for side in (left, right))
            return f"gl_same_number({sides})"
        case Unary("not", operand):
            return f"(uint64_t)!{truth(operand)}"
        case Unary(_, operand):
            return f"~{_paren(operand)}"
        case Choice(condition, left, right):
            return f"({truth(condition)} ? {expression(left)} : {expression(right)})"
        case Wrap(operand, width):
            return f"gl_extend({expression(operand)}, {width})" if width < 64 else expression(operand)
        case Saturate(operand, width, signed):
            return _saturated(operand, width, signed)
        case Binary(op, left, right):
            return _binary(op, left, right)


def _binary(op: str, left: Expr, right: Expr) -> str:
    if op in COMPARISONS:
        return _comparison(op, left, right)
    if op in _OPERATORS:
        return f"(uint64_t)({truth(left)} {_OPERATORS[op]} {truth(right)})"
    if op in _DIVISIONS:
        return _division(op, left, right)
    if op == "<<":
        return f"gl_shift_left({expression(left)}, {clamped(right)})"
    if op == ">>":
        known = _known(left)
        if known.width <= 64:
            suffix = "_signed" if known.signed else ""
            return f"gl_shift_right{suffix}({expression(left)}, {clamped(right)})"
        return f"{_shifted(left, right, words_of(known.width))}.w[0]"
    return f"(uint64_t)({_paren(left)} {op} {_paren(right)})"


def _division(op: str, left: Expr, right: Expr) -> str:
    words = words_of(max(_known(left).width, _known(right).width))
    if words == 1:
        return f"gl_{_DIVISIONS[op]}({expression(left)}, {expression(right)})"
    return f"gl_w{words}_{_DIVISIONS[op]}({wide(left, words)}, {wide(right, words)}).w[0]"


def _comparison(op: str, left: Expr, right: Expr) -> str:
    a, b = _known(left), _known(right)
    signed = a.signed or b.signed
    width = max(a.signed_width, b.signed_width) if signed else max(a.width, b.width)
    if width <= 64:
        cast = "(int64_t)" if signed else ""
        return f"(uint64_t)({cast}{_paren(left)} {op} {cast}{_paren(right)})"
    words = words_of(width)
    x, y = wide(left, words), wide(right, words)
    if op in ("==", "!="):
        return f"(uint64_t)({'!' if op == '!=' else ''}gl_w{words}_equal({x}, {y}))"
    if op in (">", "<="):
        x, y = y, x
    less = f"gl_w{words}_less{'_signed' if signed else ''}({x}, {y})"
    return f"(uint64_t)!{less}" if op in ("<=", ">=") else less


def _saturated(operand: Expr, width: int, signed: bool) -> str:
    known = _known(operand)
    suffix = "_signed" if signed else ""
    if known.signed_width <= 64 and width < 64:
        return f"gl_saturate{suffix}({expression(operand)}, {width})"
    return f"{_saturated_wide(operand, width, signed, 1)}.w[0]"


def _element(expr: Element) -> str:
    """The field, as it is stored, of the header that the index selects."""
    zero = f"(({c_type(expr.width)}){{{{0}}}})" if expr.width > 64 else "0"
    index = clamped(expr.index)
    choices = (
        f"{index} == {position} ? {stored(header, expr.field, expr.width)} : "
        for position, header in enumerate(expr.headers)
    )
    return f"({''.join(choices)}{zero})"


def _known(expr: Expr) -> Shape:
    known = shape(expr)
    assert known is not None, "the loader lets no unbounded value get here"
    return known


def _paren(expr: Expr) -> str:
    return f"({expression(expr)})"


def truth(expr: Expr) -> str:
    """A C expression that is not 0 if the value is not."""
    known = shape(expr)
    if known is None or known.width <= 64:
        return _paren(expr)
    return _paren(Binary("!=", expr, Const(0)))


def clamped(expr: Expr) -> str:
    """An index or a distance: a C expression of type uint64_t, which is the largest number for what has more bits."""
    known = _known(expr)
    if known.width <= 64:
        return expression(expr)
    words = words_of(known.width)
    return f"gl_w{words}_clamp({wide(expr, words)})"


def truncated(expr: Expr, width: int) -> str:
    """An expression cut to a width in bits, of the C type for that width."""
    expr = _uncut(expr, width)
    if isinstance(expr, Field | Element) and expr.width == width:
        return stored(expr.header, expr.field, width) if isinstance(expr, Field) else _element(expr)
    known = shape(expr)
    fits = known is not None and not known.signed and known.width <= width
    if width > 64:
        words = words_of(width)
        value = wide(expr, words)
        return value if fits or width == 64 * words else f"gl_w{words}_mask({value}, {width})"
    if width == 64 or fits:
        return expression(expr)
    return f"{_paren(expr)} & {number((1 << width) - 1)}"


def _uncut(expr: Expr, width: int) -> Expr:
    """The operand of masks that keep so many bits at least, as compilers write them around every sum."""
    whole = (1 << width) - 1
    while isinstance(expr, Binary) and expr.op == "&" and isinstance(expr.right, Const):
        if expr.right.value & whole != whole:
            break
        expr = expr.left
    return expr


def pieces(expr: Expr, width: int) -> list[tuple[str, int]]:
    """The value cut to a width, as C expressions of at most 64 bits and their widths, the highest first."""
    if width <= 64:
        return [(f"({truncated(expr, width)})", width)]
    value = truncated(expr, width)
    top = words_of(width) - 1
    return [(f"({value}).w[{word}]", 64 if word < top else width - 64 * top) for word in range(top, -1, -1)]


# More than 64 bits


def wide(expr: Expr, words: int) -> str:
    """A C expression of type gl_w<words>: the value modulo 2**(64 * words)."""
    name = f"gl_w{words}"
    match expr:
        case Const(value):
            return f"(({name}){{{{{', '.join(number(word) for word in split_words(value, words))}}}}})"
        case Choice(condition, left, right):
            return f"({truth(condition)} ? {wide(left, words)} : {wide(right, words)})"
        case Unary("~", operand):
            return f"{name}_not({wide(operand, words)})"
        case Wrap(operand, width) if width > 64:
            value = wide(operand, words)
            return f"{name}_extend({value}, {width})" if width < 64 * words else value
        case Saturate(operand, width, signed) if width >= 64:
            needed = _saturation_words(operand, width, words)
            return _fitted(_saturated_wide(operand, width, signed, words), needed, words)
        case Binary(op, left, right) if op in _DIVISIONS and not _narrow(expr):
            needed = words_of(max(_known(left).width, _known(right).width))
            value = f"gl_w{needed}_{_DIVISIONS[op]}({wide(left, needed)}, {wide(right, needed)})"
            return _fitted(value, needed, words)
        case Binary("<<", left, right):
            return f"{name}_left({wide(left, words)}, {clamped(right)})"
        case Binary(">>", left, right) if _known(left).width > 64:
            needed = max(words, words_of(_known(left).width))
            return _fitted(_shifted(left, right, needed), needed, words)
        case Binary(op, left, right) if op in _WIDE_OPERATORS and not _narrow(expr):
            return f"{name}_{_WIDE_OPERATORS[op]}({wide(left, words)}, {wide(right, words)})"
        case _:
            return _widened(expr, words)


def assigned(target: Field, value: Expr) -> str:
    """Statements: sets a field to a value, cut to its width."""
    header, field, width = target.header, target.field, target.width
    words, kept = words_of(width), _uncut(value, width)
    if is_long(width) and isinstance(kept, Binary) and kept.op in _IN_PLACE and not _narrow(kept):
        into = f"gl_w{words}_{_WIDE_OPERATORS[kept.op]}_into(&{field_name(header, field)}"
        cut = f"gl_wide_mask({field_name(header, field)}.w, {width}, {words});" if width % 64 else ""
        sides = f"{_operand(kept.left, words)}, {_operand(kept.right, words)}"
        return f"{into}, {sides}); {cut} {set_mark(header, field)}"
    return set_field(header, field, width, truncated(value, width))


def _operand(expr: Expr, words: int) -> str:
    """A C pointer to a value of so many words: a field where it lies, or a copy."""
    if isinstance(expr, Field) and is_long(expr.width) and words_of(expr.width) == words and not expr.signed:
        return place(expr.header, expr.field, expr.width)
    return f"(gl_w{words}[]){{{wide(expr, words)}}}"


def _narrow(expr: Expr) -> bool:
    known = shape(expr)
    return known is not None and known.width <= 64


def _widened(expr: Expr, words: int) -> str:
    """A value that is at hand, zero- or sign-extended, or cut."""
    name = f"gl_w{words}"
    known = _known(expr)
    if known.width <= 64:
        return f"{name}_of{'_signed' if known.signed else ''}({expression(expr)})"
    held = words_of(known.width)
    match expr:
        case Param(word):
            return f"{name}_load(a + {word}, {held})"
        case Lookahead(offset, width):
            ends = [(offset + width - 64 * word, min(64, width - 64 * word)) for word in range(min(held, words))]
            parts = [read_bits("q", end - kept, kept) for end, kept in ends]
            return f"(({name}){{{{{', '.join(parts)}}}}})"
        case Field(header, field, width):
            value = stored(header, field, width)
        case Element():
            value = _element(expr)
        case _:
            raise AssertionError(expr)
    value = _fitted(value, held, words)
    return f"{name}_extend({value}, {known.width})" if known.signed and known.width < 64 * words else value


def _fitted(value: str, held: int, words: int) -> str:
    """A value of `held` words in `words` of them, zero-extended or cut."""
    return value if held == words else f"gl_w{words}_load({value}.w, {held})"


def _shifted(left: Expr, right: Expr, words: int) -> str:
    """A right shift of what the words hold whole, so that its high bits are right too."""
    suffix = "_signed" if _known(left).signed else ""
    return f"gl_w{words}_right{suffix}({wide(left, words)}, {clamped(right)})"


def _saturation_words(operand: Expr, width: int, words: int) -> int:
    """Words that hold the operand, with its sign, and what it saturates to."""
    return max(words, words_of(_known(operand).signed_width), words_of(width + 1))


def _saturated_wide(operand: Expr, width: int, signed: bool, words: int) -> str:
    needed = _saturation_words(operand, width, words)
    return f"gl_w{needed}_saturate{'_signed' if signed else ''}({wide(operand, needed)}, {width})"
