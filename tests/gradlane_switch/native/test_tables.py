# SPDX-License-Identifier: Apache-2.0
"""Lookups against a plain model of what each match kind means, while entries come and go."""

from dataclasses import dataclass
from dataclasses import field as of
from functools import cache
from random import Random
from typing import Any

import pytest
from finsy.proto import p4r, rpc_code
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_switch import EntityError, Switch
from tests.gradlane_switch.small_programs import (
    SEND,
    Json,
    action,
    assign,
    encode,
    entry,
    field,
    load,
    param,
    program,
    table,
)
from tests.support.effort import tries

MISS = 0xFFFF
SHAPES: dict[str, list[tuple[str, int]]] = {
    "exact": [("exact", 8)],
    "exact words": [("exact", 48), ("exact", 32), ("exact", 9)],
    "lpm": [("lpm", 8)],
    "exact and lpm": [("exact", 4), ("lpm", 64)],
    "ternary": [("ternary", 8), ("exact", 4)],
    "range": [("exact", 4), ("range", 8), ("range", 6)],
    "all": [("range", 6), ("ternary", 7), ("exact", 3), ("lpm", 8)],
    "wide exact": [("exact", 128), ("exact", 9), ("exact", 65)],
    "wide lpm": [("exact", 9), ("lpm", 128)],
    "wide list": [("ternary", 130), ("range", 72), ("exact", 12), ("lpm", 96), ("range", 10)],
    "widest": [("ternary", 1100), ("exact", 4)],
    "many fields": [("exact", 8)] * 70,
    "long lpm": [("exact", 2048), ("exact", 2048), ("lpm", 48)],
    "long list": [("range", 72), ("ternary", 2048), ("exact", 9), ("lpm", 2048), ("range", 130)],
}


@dataclass
class Match:
    """An entry in the model: what each field wants, as (value, operand)."""

    wanted: list[tuple[int, int]]
    priority: int
    result: int = 0
    age: int = 0
    fields: list[Any] = of(default_factory=list)

    def accepts(self, shape: list[tuple[str, int]], keys: list[int]) -> bool:
        for (kind, width), (value, operand), key in zip(shape, self.wanted, keys, strict=True):
            if kind == "exact" and key != value:
                return False
            if kind == "lpm" and key >> (width - operand) != value >> (width - operand):
                return False
            if kind == "ternary" and key & operand != value:
                return False
            if kind == "range" and not value <= key <= operand:
                return False
        return True


@cache
def document(name: str) -> Json:
    shape = SHAPES[name]
    fields = [(f"k{index}", width) for index, (_, width) in enumerate(shape)]
    padding = -sum(width for _, width in shape) % 8
    hit = action(0, "hit", [16], assign(field("h", "out"), param(0)), SEND)
    miss = action(1, "miss", [16], assign(field("h", "out"), param(0)), SEND)
    keys = [(kind, field("h", f"k{index}")) for index, (kind, _) in enumerate(shape)]
    tables = [table(0, "t", keys, [hit, miss], miss, (MISS,))]
    return program([*fields, *([("pad", padding)] if padding else []), ("out", 16)], [hit, miss], tables)


def lookup(switch: Switch, shape: list[tuple[str, int]], keys: list[int]) -> int:
    whole, total = 0, sum(width for _, width in shape)
    for (_, width), key in zip(shape, keys, strict=True):
        whole = whole << width | key
    padding = -total % 8
    [(_, out)] = switch.process(0, (whole << padding).to_bytes((total + padding) // 8, "big") + b"\0\0")
    return int.from_bytes(out[-2:], "big")


def draw_value(data: st.DataObject, width: int) -> int:
    """Few different values, so that entries and keys meet."""
    few = st.integers(0, 3)
    return data.draw(st.one_of(few, few.map(lambda n: (1 << width) - 1 - n), st.integers(0, (1 << width) - 1)))


def draw_match(data: st.DataObject, shape: list[tuple[str, int]]) -> Match:
    wanted: list[tuple[int, int]] = []
    fields: list[Any] = []
    for number, (kind, width) in enumerate(shape, 1):
        full = (1 << width) - 1
        message = p4r.FieldMatch(field_id=number)
        value = draw_value(data, width)
        if kind == "exact":
            operand = full
            message.exact.value = encode(value)
        elif kind == "lpm":
            operand = data.draw(st.integers(0, width))
            value = value >> (width - operand) << (width - operand)
            message.lpm.value, message.lpm.prefix_len = encode(value), operand
        elif kind == "ternary":
            operand = draw_value(data, width)
            value &= operand
            message.ternary.value, message.ternary.mask = encode(value), encode(operand)
        else:
            value, operand = sorted((value, draw_value(data, width)))
            message.range.low, message.range.high = encode(value), encode(operand)
        wanted.append((value, operand))
        wildcard = (kind in ("lpm", "ternary") and operand == 0) or (kind == "range" and (value, operand) == (0, full))
        if not wildcard:
            fields.append(message)
    ordered = any(kind in ("ternary", "range") for kind, _ in shape)
    return Match(wanted, data.draw(st.integers(1, 5)) if ordered else 0, fields=fields)


@pytest.mark.parametrize("name", SHAPES)
@settings(deadline=None, max_examples=tries(12))
@given(data=st.data())
def test_lookup_is_what_the_match_kinds_mean(name: str, data: st.DataObject) -> None:
    shape = SHAPES[name]
    switch = load(document(name))
    model: dict[tuple[tuple[tuple[int, int], ...], int], Match] = {}
    lpm = next((index for index, (kind, _) in enumerate(shape) if kind == "lpm"), None)
    for step in range(data.draw(st.integers(1, min(20, max(4, 100 // len(shape)))))):  # few of many fields
        match = draw_match(data, shape)
        if model and data.draw(st.booleans()):
            match = data.draw(st.sampled_from(sorted(model.values(), key=lambda item: item.age)))
        key = (tuple(match.wanted), match.priority)
        kind = data.draw(st.sampled_from([p4r.Update.INSERT, p4r.Update.INSERT, p4r.Update.MODIFY, p4r.Update.DELETE]))
        update = p4r.Update(type=kind, entity=entry(1, match.fields, 1, (step,), match.priority))
        if (kind == p4r.Update.INSERT) == (key in model):
            code = rpc_code.ALREADY_EXISTS if kind == p4r.Update.INSERT else rpc_code.NOT_FOUND
            with pytest.raises(EntityError) as caught:
                switch.write(update)
            assert caught.value.code == code
        else:
            switch.write(update)
            if kind == p4r.Update.DELETE:
                del model[key]
            else:
                age = model[key].age if key in model else step
                model[key] = Match(match.wanted, match.priority, step, age, match.fields)
        keys = [draw_value(data, width) for _, width in shape]
        hits = [item for item in model.values() if item.accepts(shape, keys)]
        if not hits:
            assert lookup(switch, shape, keys) == MISS
        elif any(kind in ("ternary", "range") for kind, _ in shape):
            # Several entries of the highest priority may match: which one wins is the switch's choice.
            top = max(item.priority for item in hits)
            assert lookup(switch, shape, keys) in {item.result for item in hits if item.priority == top}
        else:
            best = max(hits, key=lambda item: item.wanted[lpm][1] if lpm is not None else 0)
            assert lookup(switch, shape, keys) == best.result
    found = switch.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=0x02000001)))
    assert len(found) == len(model)
    for item in found:
        switch.write(p4r.Update(type=p4r.Update.DELETE, entity=item))
    assert lookup(switch, shape, [0] * len(shape)) == MISS


@pytest.mark.parametrize("name", ["ternary", "range", "all", "wide list", "widest"])
def test_a_long_list_finds_the_entry_of_the_highest_priority(name: str) -> None:
    shape = SHAPES[name]
    switch = load(with_table(document(name), max_size=4096))
    random = Random(7)
    model: dict[int, Match] = {}
    for step in range(1300):
        wanted, fields = random_match(random, shape)
        key = Match(wanted, random.randint(1, 1 << 30), step, step, fields)
        switch.insert(entry(1, key.fields, 1, (step,), key.priority))
        model[step] = key
        if step % 3 == 0:
            gone = model.pop(random.choice(list(model)))
            switch.write(p4r.Update(type=p4r.Update.DELETE, entity=entry(1, gone.fields, 1, (0,), gone.priority)))
        if step % 5 == 0:
            # A key that some entry accepts, more often than not.
            near = random.choice(list(model.values())) if model else key
            keys = [
                random.choice((value, value | random.getrandbits(width) & ~operand, random.getrandbits(width)))
                if kind == "ternary"
                else random.choice((value, operand if kind == "range" else value, random.getrandbits(width)))
                for (kind, width), (value, operand) in zip(shape, near.wanted, strict=True)
            ]
            hits = [item for item in model.values() if item.accepts(shape, keys)]
            best = max(hits, key=lambda item: item.priority, default=None)
            assert lookup(switch, shape, keys) == (best.result if best else MISS)


@pytest.mark.parametrize("name", ["lpm", "exact and lpm", "wide lpm"])
def test_many_prefixes_find_the_longest_while_they_come_and_go(name: str) -> None:
    shape = SHAPES[name]
    switch = load(with_table(document(name), max_size=4096))
    random = Random(11)
    model: dict[tuple[tuple[int, int], ...], Match] = {}
    place = next(index for index, (kind, _) in enumerate(shape) if kind == "lpm")
    width = shape[place][1]
    for step in range(1500):
        wanted, fields = random_match(random, shape)
        if model and step % 2:
            # A prefix that begins another, or goes on where it ends.
            wanted = list(random.choice(list(model.values())).wanted)
            length = random.randint(1, width)
            value = wanted[place][0] ^ random.getrandbits(min(width, 9))
            wanted[place] = value >> (width - length) << (width - length), length
            fields = match_fields(shape, wanted)
        if tuple(wanted) not in model:
            model[tuple(wanted)] = Match(wanted, 0, step, step, fields)
            switch.insert(entry(1, fields, 1, (step,)))
        if step % 3 == 0:
            gone = model.pop(random.choice(list(model)))
            switch.write(p4r.Update(type=p4r.Update.DELETE, entity=entry(1, gone.fields, 1, (0,))))
        if model and step % 4 == 0:
            near = random.choice(list(model.values()))
            keys = [value for value, _ in near.wanted]
            keys[place] ^= random.getrandbits(random.randint(1, width))
            hits = [item for item in model.values() if item.accepts(shape, keys)]
            best = max(hits, key=lambda item: item.wanted[place][1], default=None)
            assert lookup(switch, shape, keys) == (best.result if best else MISS)
    for item in model.values():
        switch.write(p4r.Update(type=p4r.Update.DELETE, entity=entry(1, item.fields, 1, (0,))))
    assert lookup(switch, shape, [0] * len(shape)) == MISS


def match_fields(shape: list[tuple[str, int]], wanted: list[tuple[int, int]]) -> list[Any]:
    """Match fields of exact values and prefixes."""
    fields: list[Any] = []
    for number, ((kind, _), (value, operand)) in enumerate(zip(shape, wanted, strict=True), 1):
        message = p4r.FieldMatch(field_id=number)
        if kind == "exact":
            message.exact.value = encode(value)
        else:
            message.lpm.value, message.lpm.prefix_len = encode(value), operand
        fields.append(message)
    return fields


def random_match(random: Random, shape: list[tuple[str, int]]) -> tuple[list[tuple[int, int]], list[Any]]:
    """Field values and operands of an entry, and its match fields."""
    wanted: list[tuple[int, int]] = []
    fields: list[Any] = []
    for number, (kind, width) in enumerate(shape, 1):
        full = (1 << width) - 1
        value = random.getrandbits(min(width, random.choice((3, width))))
        message = p4r.FieldMatch(field_id=number)
        operand = full
        if kind == "exact":
            message.exact.value = encode(value)
        elif kind == "lpm":
            operand = random.randint(1, width)
            value = value >> (width - operand) << (width - operand)
            message.lpm.value, message.lpm.prefix_len = encode(value), operand
        elif kind == "ternary":
            operand = random.choice((full, 0xF << random.randrange(width - 3), random.getrandbits(width) | 1)) & full
            value &= operand
            message.ternary.value, message.ternary.mask = encode(value), encode(operand)
        else:
            value, operand = sorted((value, random.getrandbits(width)))
            message.range.low, message.range.high = encode(value), encode(operand)
        wanted.append((value, operand))
        if kind != "range" or (value, operand) != (0, full):
            fields.append(message)
    return wanted, fields


def test_many_entries_survive_growth_and_deletion() -> None:
    shape = SHAPES["exact words"]
    switch = load(with_table(document("exact words"), max_size=4096))

    def match(n: int) -> list[Any]:
        values = (n * 0x10001, n * 7, n % 512)
        return [
            p4r.FieldMatch(field_id=i, exact=p4r.FieldMatch.Exact(value=encode(v))) for i, v in enumerate(values, 1)
        ]

    for n in range(2000):
        switch.insert(entry(1, match(n), 1, (n,)))
    for n in range(0, 2000, 3):
        switch.write(p4r.Update(type=p4r.Update.DELETE, entity=entry(1, match(n), 1, (n,))))
    for n in range(2000):
        expected = MISS if n % 3 == 0 else n
        assert lookup(switch, shape, [n * 0x10001, n * 7, n % 512]) == expected


def test_a_full_table_says_so() -> None:
    switch = load(document("exact"))
    for n in range(64):
        switch.insert(entry(1, [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=encode(n)))], 1, (n,)))
    with pytest.raises(EntityError, match="t is full: 64 entries") as caught:
        switch.insert(entry(1, [p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x50"))], 1, (1,)))
    assert caught.value.code == rpc_code.RESOURCE_EXHAUSTED


def with_table(source: Json, **changes: Any) -> Json:
    """The document with changes to its only table."""
    ingress, egress = source["pipelines"]
    return source | {"pipelines": [ingress | {"tables": [ingress["tables"][0] | changes]}, egress]}


def test_const_entries_match_in_bmv2s_order_and_cannot_be_written() -> None:
    def const_entry(value: str, mask: str, result: int, priority: int) -> Json:
        key = [{"match_type": "ternary", "key": value, "mask": mask}, {"match_type": "exact", "key": "0x3"}]
        return {
            "match_key": key,
            "action_entry": {"action_id": 0, "action_data": [hex(result)]},
            "priority": priority,
        }

    entries = [const_entry("0x00", "0x00", 8, 2), const_entry("0x10", "0xf0", 7, 1)]
    switch = load(with_table(document("ternary"), entries=entries))
    assert lookup(switch, SHAPES["ternary"], [0x15, 3]) == 7
    assert lookup(switch, SHAPES["ternary"], [0x25, 3]) == 8
    assert lookup(switch, SHAPES["ternary"], [0x25, 4]) == MISS
    found = switch.read(p4r.Entity(table_entry=p4r.TableEntry(table_id=0x02000001)))
    assert [item.table_entry.is_const for item in found] == [True, True]
    with pytest.raises(EntityError, match="constant table") as caught:
        switch.write(p4r.Update(type=p4r.Update.DELETE, entity=found[0]))
    assert caught.value.code == rpc_code.PERMISSION_DENIED
