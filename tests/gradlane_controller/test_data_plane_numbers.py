# SPDX-License-Identifier: Apache-2.0
"""The numbers that Python and P4 both write down are the same."""

import re

from gradlane import wire
from gradlane.job import policy
from gradlane.job.file import BUDGET_SLOTS
from gradlane.job.transport import SUM_SLOTS
from gradlane_controller.commands.tables import format_table
from gradlane_controller.data_plane import CLASSES, TRIMMED_BYTES, Reason, SumEvent, Way, sent_cell
from gradlane_controller.network import fabric
from gradlane_controller.policy import checks, spreading, trees
from gradlane_controller.session.counters import JOB_SHIFT, SUM_SHIFT, decode_decision
from gradlane_switch.ir.program import DROP_PORT
from tests.support.paths import P4_SOURCE

TYPES = (P4_SOURCE / "shared" / "types.p4").read_text()
SUMS = (P4_SOURCE / "shared" / "sums.p4").read_text()


def constant(name: str) -> int:
    found = re.search(rf"const \w+(?:<\d+>)? {name} = (\d+);", TYPES)
    assert found, f"no constant {name} in types.p4"
    return int(found[1])


def test_reasons() -> None:
    body = re.search(r"enum bit<5> Reason \{(.*?)\}", TYPES, re.DOTALL)
    assert body
    in_p4 = {name: int(value) for name, value in re.findall(r"^\s*(\w+)\s*=\s*(\d+)", body[1], re.MULTILINE)}
    of_sums = re.findall(r"^const Reason (\w+) = \(Reason\)5w(\d+);", SUMS, re.MULTILINE)
    in_p4 |= {name: int(value) for name, value in of_sums}
    assert in_p4 == {reason.name: reason.value for reason in Reason}


def test_sums() -> None:
    aggregation = (P4_SOURCE / "v1model" / "aggregation.p4").read_text()
    assert f"const bit<32> SUM_SLOTS = {SUM_SLOTS};" in SUMS
    assert f"const bit<32> SUM_EVENTS = {(checks.MAX_JOBS + 1) << SUM_SHIFT};" in SUMS
    assert "sums.count((bit<32>)(meta.job_index ++ happened));" in aggregation
    assert f"hdr.gradlane.message[{trees.BUCKETS.bit_length() - 2}:0]: exact" in aggregation
    body = re.search(r"enum bit<4> SumEvent \{(.*?)\}", SUMS, re.DOTALL)
    assert body
    in_p4 = {name: int(value) for name, value in re.findall(r"^\s*(\w+)\s*=\s*(\d+)", body[1], re.MULTILINE)}
    assert in_p4 == {event.name: event.value for event in SumEvent}


def test_sizes_and_classes() -> None:
    assert constant("BUDGET_SLOTS") == BUDGET_SLOTS
    assert constant("PORTS") == fabric.DROP_PORT + 1
    assert fabric.DROP_PORT == DROP_PORT
    assert constant("CONTROL_CLASS") == wire.CONTROL_CLASS == policy.HIGHEST_GRADIENT_CLASS + 1
    assert constant("JOBS") == checks.MAX_JOBS
    arch = (P4_SOURCE / "v1model" / "arch.p4").read_text()
    assert f"CPU_PORT = {fabric.CPU_PORT};" in arch
    assert f"DECISIONS = {(checks.MAX_JOBS + 1) << JOB_SHIFT};" in arch
    most = spreading.NUMBER_BITS - spreading.LEFT_BITS
    assert f"chosen_bits <= {most}" in (P4_SOURCE / "shared" / "admission.p4").read_text()
    assert f"{most}: skip_{most}();\n        }}" in (P4_SOURCE / "tna" / "routing.p4").read_text()


def test_decisions_are_decoded_as_the_data_plane_composes_their_index() -> None:
    telemetry = (P4_SOURCE / "v1model" / "telemetry.p4").read_text()
    assert "meta.job_index ++ meta.reason ++ meta.queue_class ++ meta.drop_precedence" in telemetry
    row = decode_decision("s1", {9: "demo"}, (9 << 11) | (Reason.DROPPED_RED << 6) | (5 << 3) | 3, 7, 9000)
    assert (row.switch, row.job, row.reason) == ("s1", "demo", "dropped_red")
    assert (row.queue_class, row.drop_precedence, row.packets, row.bytes) == (5, 3, 7, 9000)
    assert decode_decision("s1", {9: "demo"}, 0, 1, 1).job is None


def test_cells_of_what_is_sent_are_where_the_data_plane_counts_it() -> None:
    arch = (P4_SOURCE / "v1model" / "arch.p4").read_text()
    telemetry = (P4_SOURCE / "v1model" / "telemetry.p4").read_text()
    body = re.search(r"enum bit<2> Way \{(.*?)\}", arch)
    assert body
    assert {name: int(value) for name, value in re.findall(r"(\w+) = (\d)", body[1])} == {it.name: it for it in Way}
    assert "sent.count((bit<32>)(egress_port ++ way ++ meta.queue_class));" in telemetry
    assert "typedef bit<3> queue_class_t;" in TYPES
    assert "typedef bit<9> port_t;" in TYPES
    assert CLASSES == 1 << 3
    assert sent_cell(5, Way.TREE, 6) == 0b000000101_01_110
    assert f"SENT_CELLS = {sent_cell(fabric.DROP_PORT, Way.TRIMMED_IPV6, CLASSES - 1) + 1};" in arch
    headers = {name: constant(f"{name}_BYTES") for name in ("ETHERNET", "IPV4", "IPV6", "UDP", "GRADLANE")}
    beside_ip = headers["ETHERNET"] + headers["UDP"] + headers["GRADLANE"]
    assert TRIMMED_BYTES[Way.TRIMMED_IPV4] == beside_ip + headers["IPV4"]
    assert TRIMMED_BYTES[Way.TRIMMED_IPV6] == beside_ip + headers["IPV6"]


def test_tables_for_people_line_up() -> None:
    assert format_table("t", ("a", "count"), [("x", 1), ("long", 20)]).splitlines() == [
        "t:",
        "  a     count",
        "  x         1",
        "  long     20",
    ]
    assert format_table("t", ("a",), []) == "t: none"
