# SPDX-License-Identifier: Apache-2.0
"""What `gradlane-switch trace` tells of a SUM: what became of it, in which slot, and who is in that."""

import re
from typing import Any

import pytest

from gradlane_switch.commands.trace_text import text
from tests.p4src.packet_bench import Bench
from tests.p4src.packet_targets import InProcess
from tests.p4src.sums.sum_bench import H1, H2, H3, JOBS, SumBench, bits_of, contribution, everybody
from tests.support.gradlane_packets import Host
from tests.support.paths import DOCS
from tests.support.sum_switch import Event

NUMBER = 3
SLOT = JOBS[1].base + NUMBER


@pytest.fixture
def sums(sum_in_process: InProcess, sum_schema: Any) -> SumBench:
    it = SumBench(Bench(sum_in_process, sum_schema))
    it.install()
    return it


def trace(sums: SumBench, source: Host, number: int = NUMBER) -> dict[str, Any]:
    assert isinstance(sums.bench.target, InProcess)
    return sums.bench.target.switch.trace(source.port, contribution(source, number=number))


def happened(packet: dict[str, Any]) -> list[Event]:
    counted = [it["index"] for it in packet["events"] if it["event"] == "counter" and it["name"].endswith(".sums")]
    assert all(index >> 4 == 1 for index in counted), "of another job"
    return [Event(index & 15) for index in counted]


def members(packet: dict[str, Any], done: str) -> list[tuple[int, int]]:
    """Slots, and who is accounted for (upper half) and in the sum."""
    found = [it for it in packet["events"] if it["event"] == "register" and it["name"].endswith(".slot_members")]
    return [(it["index"], int(it[done], 16)) for it in found if done in it]


def twice(workers: int) -> int:
    return workers << 32 | workers


def test_a_trace_follows_a_slice_from_the_first_contribution_to_answers(sums: SumBench) -> None:
    first, again, second, last, asked = (trace(sums, source) for source in (H1, H1, H2, H3, H1))
    old = trace(sums, H1, NUMBER - 8)
    assert [happened(it) for it in (first, again, second, last, asked, old)] == [
        [Event.CONTRIBUTION],
        [Event.DUPLICATE],
        [Event.CONTRIBUTION],
        [Event.CONTRIBUTION, Event.RESULT],
        [Event.ANSWER],
        [Event.STALE],
    ]
    assert members(again, "read") == members(first, "written") == [(SLOT, twice(bits_of([H1])))]
    assert members(last, "read") == members(second, "written") == [(SLOT, twice(bits_of([H1, H2])))]
    assert members(last, "written") == members(asked, "read") == [(SLOT, twice(everybody(1)))]
    assert members(asked, "written") == members(old, "written") == []


def test_the_text_names_table_slot_members_and_event(sums: SumBench) -> None:
    trace(sums, H1)
    lines = [line.strip().replace("GradlaneIngress.", "") for line in text(trace(sums, H1)).splitlines()]
    shown = twice(bits_of([H1]))
    assert f"register aggregation.slot_members[{SLOT}] read: {shown:#x}" in lines
    assert f"counter aggregation.sums[{1 << 4 | Event.DUPLICATE:#x}]" in lines
    assert any(line.startswith(f"table aggregation.sum_trees (job = 0x1, bucket = {NUMBER:#x}): hit") for line in lines)
    assert lines[-1] == "dropped: dropped in ingress"
    assert max(map(len, lines)) < 300, "the words of a sum are cut"


def test_the_page_shows_what_a_trace_prints(sums: SumBench) -> None:
    """Its job has other workers and trees, so numbers differ; not that of the job, nor what became of the slice."""
    trace(sums, H1)
    page = re.split(r"^```\w*\n", (DOCS / "aggregation.md").read_text(), flags=re.MULTILINE)
    [shown] = [it for it in page if it.startswith("table GradlaneIngress.aggregation.sum_trees")]

    def words(lines: str) -> list[str]:
        return [
            re.sub(r"(?<!job = )(?<!sums\[)0x[0-9a-f]+|(?<=\[)\d+", "N", line.strip()) for line in lines.splitlines()
        ]

    printed = words(text(trace(sums, H1)))
    for line in words(shown):
        pattern = re.escape(line).replace(re.escape("..."), ".*")
        assert any(re.fullmatch(pattern, it) for it in printed), (line, printed)


def test_an_answer_meets_the_virtual_queue_of_its_port(sums: SumBench) -> None:
    for source in (H1, H2, H3):
        trace(sums, source)
    found = [it for it in trace(sums, H2)["events"] if it["event"] == "meter" and "virtual_queue" in it["name"]]
    assert [(it["index"], it["colour"]) for it in found] == [(H2.port, "green")]
