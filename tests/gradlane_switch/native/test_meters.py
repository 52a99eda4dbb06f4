# SPDX-License-Identifier: Apache-2.0
"""The two-rate three-colour meter against RFC 2698, in exact arithmetic."""

import json
from fractions import Fraction
from functools import cache

import pytest
from finsy.proto import p4r, rpc_code
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_switch import EntityError, Switch
from tests.gradlane_switch.small_programs import SEND, action, assign, field, load, program, table

METER = 0x15000001


@cache
def document(unit: str) -> str:
    meter = {"name": "m", "id": 0, "is_direct": False, "size": 4, "rate_count": 2, "type": unit}
    color = field("scalars", "color")
    execute = {"op": "execute_meter", "parameters": [{"type": "meter_array", "value": "m"}, field("h", "cell"), color]}
    run = action(0, "run", [], execute, assign(field("h", "color"), color), SEND)
    fields = [("cell", 8), ("color", 8)]
    return json.dumps(program(fields, [run], [table(0, "t", [], [run], run)], meter_arrays=[meter]))


def make(unit: str) -> Switch:
    return load(json.loads(document(unit)))


def configure(switch: Switch, cell: int, cir: int, cbs: int, pir: int, pbs: int) -> None:
    message = p4r.MeterEntry(meter_id=METER, config=p4r.MeterConfig(cir=cir, cburst=cbs, pir=pir, pburst=pbs))
    message.index.index = cell
    switch.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(meter_entry=message)))


def color(switch: Switch, cell: int, length: int) -> int:
    [(_, out)] = switch.process(0, bytes([cell, 9]) + bytes(length - 2))
    return out[1]


class Rfc2698:
    """Colour-blind, with buckets that start full."""

    def __init__(self, cir: int, cbs: int, pir: int, pbs: int) -> None:
        self.rates, self.bursts = (cir, pir), (cbs, pbs)
        self.tokens = [Fraction(cbs), Fraction(pbs)]
        self.last = 0

    def color(self, now: int, cost: int) -> int:
        elapsed = Fraction(now - self.last, 10**9)
        self.last = now
        self.tokens = [
            min(tokens + rate * elapsed, Fraction(burst))
            for tokens, rate, burst in zip(self.tokens, self.rates, self.bursts, strict=True)
        ]
        if self.tokens[1] < cost:
            return 2
        self.tokens[1] -= cost
        if self.tokens[0] < cost:
            return 1
        self.tokens[0] -= cost
        return 0


@pytest.mark.parametrize("unit", ["bytes", "packets"])
@settings(deadline=None)
@given(
    rates=st.tuples(st.integers(0, 2_000_000), st.integers(0, 2_000_000)).map(sorted),
    bursts=st.tuples(st.integers(0, 5000), st.integers(0, 5000)),
    packets=st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(2, 1500)), max_size=60),
)
def test_colours(unit: str, rates: list[int], bursts: tuple[int, int], packets: list[tuple[int, int]]) -> None:
    switch = make(unit)
    scale = 1 if unit == "bytes" else 1000
    config = (rates[0] // scale, bursts[0] // scale, rates[1] // scale, bursts[1] // scale)
    configure(switch, 2, *config)
    model = Rfc2698(*config)
    for gap, length in packets:
        switch.now += gap
        assert color(switch, 2, length) == model.color(switch.now, length if unit == "bytes" else 1)


def test_a_meter_without_configuration_is_green() -> None:
    switch = make("bytes")
    assert color(switch, 1, 1500) == 0
    configure(switch, 1, 0, 0, 0, 0)
    assert color(switch, 1, 1500) == 2
    reset = p4r.MeterEntry(meter_id=METER)
    switch.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(meter_entry=reset)))
    assert color(switch, 1, 1500) == 0


def test_an_index_beyond_the_meter_is_green() -> None:
    assert color(make("bytes"), 200, 100) == 0


def test_a_long_silence_does_not_overflow() -> None:
    switch = make("bytes")
    configure(switch, 0, 1 << 53, 1500, 1 << 53, 3000)
    switch.now = 1 << 62
    assert [color(switch, 0, 1500) for _ in range(3)] == [0, 1, 2]


def test_configuration_reads_back_and_is_checked() -> None:
    switch = make("bytes")
    configure(switch, 3, 10, 20, 30, 40)
    request = p4r.MeterEntry(meter_id=METER)
    found = switch.read(p4r.Entity(meter_entry=request))
    assert [item.meter_entry.HasField("config") for item in found] == [False, False, False, True]
    assert found[3].meter_entry.config == p4r.MeterConfig(cir=10, cburst=20, pir=30, pburst=40)
    for bad, code, message in [
        ((31, 20, 30, 40), rpc_code.INVALID_ARGUMENT, "cir = 31 is above pir = 30"),
        ((-1, 20, 30, 40), rpc_code.INVALID_ARGUMENT, "cir = -1"),
    ]:
        with pytest.raises(EntityError, match=message) as caught:
            configure(switch, 0, *bad)
        assert caught.value.code == code
    with pytest.raises(EntityError, match="index 4 is beyond") as caught:
        configure(switch, 4, 1, 1, 1, 1)
    assert caught.value.code == rpc_code.OUT_OF_RANGE


def test_cells_count_by_colour_until_their_counts_are_cleared() -> None:
    switch = make("packets")
    configure(switch, 2, 0, 1, 0, 3)
    assert [color(switch, 2, length) for length in (100, 200, 300, 400)] == [0, 1, 1, 2]
    assert color(switch, 1, 60) == 0

    def counted() -> list[list[tuple[int, int]]]:
        request = p4r.MeterEntry(meter_id=METER, counter_data=p4r.MeterCounterData())
        data = [item.meter_entry.counter_data for item in switch.read(p4r.Entity(meter_entry=request))]
        return [[(part.packet_count, part.byte_count) for part in (d.green, d.yellow, d.red)] for d in data]

    none = [(0, 0)] * 3
    assert counted() == [none, [(1, 60), (0, 0), (0, 0)], [(1, 100), (2, 500), (1, 400)], none]
    configure(switch, 2, 0, 1, 0, 3)
    assert counted()[2][0] == (1, 100)
    reset = p4r.MeterEntry(meter_id=METER, counter_data=p4r.MeterCounterData())
    reset.index.index = 2
    switch.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(meter_entry=reset)))
    assert counted() == [none, [(1, 60), (0, 0), (0, 0)], none, none]
    reset.counter_data.yellow.packet_count = 1
    with pytest.raises(EntityError, match="m: counts by colour can only be cleared, and yellow is not 0"):
        switch.write(p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(meter_entry=reset)))
    [plain, *_] = switch.read(p4r.Entity(meter_entry=p4r.MeterEntry(meter_id=METER)))
    assert not plain.meter_entry.HasField("counter_data")
