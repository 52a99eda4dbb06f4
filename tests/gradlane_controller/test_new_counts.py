# SPDX-License-Identifier: Apache-2.0
"""A job counts from zero: what others left at its index is set to zero, and looked for only where there can be any."""

import signal
from queue import SimpleQueue

import grpc
from finsy.proto import p4r, p4r_grpc

from gradlane_controller.desired import pipeline
from tests.gradlane_controller.texts import fabric_text, job_text

DECISIONS = pipeline.load(pipeline.DEFAULT_FOLDER).schema.counters["decisions"].id
CELL = DECISIONS, 1 << 11 | 5  # of index 1, which the only job has
FIRST, SECOND = job_text("first", 1), job_text("second", 2)


def test_where_the_program_was_just_loaded_nothing_has_counted(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address))
    it.wait_for("ready:")
    assert it.ask("POST", "/jobs", FIRST)[0] == 200
    assert not {index for counter, index in fake_switch.read_cells if counter == DECISIONS}
    assert it.ask("DELETE", "/jobs/first")[0] == 200
    fake_switch.counters[CELL] = 7, 9000
    assert it.ask("POST", "/jobs", SECOND)[0] == 200
    assert fake_switch.counters[CELL] == (0, 0)


def test_a_controller_that_finds_the_program_there_does_not_know_what_has_counted(fake_switch, run_controller) -> None:
    first = run_controller(fabric_text(fake_switch.address))
    first.wait_for("ready:")
    first.end(signal.SIGKILL)
    fake_switch.counters[CELL] = 7, 9000
    second = run_controller(fabric_text(fake_switch.address))
    second.wait_for("ready:")
    assert second.ask("POST", "/jobs", FIRST)[0] == 200
    assert fake_switch.counters[CELL] == (0, 0)


def test_nor_does_one_to_which_another_has_left_the_switch(fake_switch, run_controller) -> None:
    first = run_controller(fabric_text(fake_switch.address))
    first.wait_for("ready:")
    second = run_controller(fabric_text(fake_switch.address))
    second.wait_for("stands by: ")
    first.end(signal.SIGKILL)
    fake_switch.counters[CELL] = 7, 9000
    second.wait_for("converged")
    assert second.ask("POST", "/jobs", FIRST)[0] == 200
    assert fake_switch.counters[CELL] == (0, 0)


def test_nor_one_that_was_not_primary_for_a_while(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address))
    it.wait_for("ready:")
    bid = p4r.StreamMessageRequest()
    bid.arbitration.election_id.low = 1 << 60
    bids: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
    with grpc.insecure_channel(fake_switch.address) as channel:
        _stream = p4r_grpc.P4RuntimeStub(channel).StreamChannel(iter(bids.get, None))
        bids.put(bid)
        it.wait_for("another client is primary")
        fake_switch.counters[CELL] = 7, 9000
        bids.put(None)
        it.wait_for("converged")
    assert it.ask("POST", "/jobs", FIRST)[0] == 200
    assert fake_switch.counters[CELL] == (0, 0)


def test_nor_one_whose_session_was_lost(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address))
    it.wait_for("ready:")
    fake_switch.stop()
    it.wait_for("trying again")
    fake_switch.start()
    it.wait_for("converged")
    fake_switch.counters[CELL] = 7, 9000
    assert it.ask("POST", "/jobs", FIRST)[0] == 200
    assert fake_switch.counters[CELL] == (0, 0)


def test_a_switch_that_has_forgotten_everything_counts_from_zero(fake_switch, run_controller) -> None:
    it = run_controller(fabric_text(fake_switch.address), FIRST)
    it.wait_for("ready:")
    fake_switch.stop()
    fake_switch.forget()
    fake_switch.read_cells.clear()
    fake_switch.start()
    it.wait_for("converged")
    assert not {index for counter, index in fake_switch.read_cells if counter == DECISIONS}
