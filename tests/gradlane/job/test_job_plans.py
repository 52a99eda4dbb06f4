# SPDX-License-Identifier: Apache-2.0
"""What a job file says of algorithms, shares of owners and late workers."""

import re

import pytest
from gradlane._core import lib

from gradlane import job
from gradlane.job import JobError
from gradlane.job.loss import Late
from tests.gradlane.job.texts import MINIMAL, ranks


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        ('ownership = "adaptive"', True),
        ("", False),
        ("ownership = [1, 1, 2]", False),
        ('ownership = "adaptive"\ncollective = "direct"', False),
        ('ownership = "adaptive"\nmulticast = "239.1.0.1"', False),
    ],
)
def test_the_algorithm_changes_where_the_job_file_leaves_it_open(lines: str, changes: bool) -> None:
    assert job.parse(ranks(3, lines), "j.toml").changes_algorithm == changes


def test_what_is_lost_where_many_senders_meet_may_be_told() -> None:
    assert job.parse(ranks(3, ""), "j.toml").transport.contention == 0.03
    told = job.parse(ranks(3, "contention = 0.5"), "j.toml")
    assert told.transport.contention == 0.5
    assert told.digest != job.parse(ranks(3, ""), "j.toml").digest


def test_stragglar_needs_a_straggler_and_not_too_many_workers() -> None:
    assert job.parse(ranks(3, 'collective = "ring"'), "j.toml").transport.straggler is None
    most, late = lib.GL_STRAGGLAR_MOST, 'collective = "stragglar"\nstraggler = 2'
    assert job.parse(ranks(most, late), "j.toml").transport.straggler == 2
    for text, reason in (
        (ranks(most + 1, late), f"with {most + 1} workers; it takes up to {most}"),
        (ranks(2, late), "transport.straggler: is 2; it must be an integer from 0 to 1"),
        (ranks(3, 'collective = "stragglar"'), "transport.straggler: is missing"),
    ):
        with pytest.raises(JobError, match=reason):
            job.parse(text, "j.toml")


def test_shares_of_owners_are_read_and_do_not_go_with_a_ring() -> None:
    assert job.parse(MINIMAL, "j").transport.ownership == "even"
    changed = MINIMAL.replace("[transport]", "[transport]\nownership = [3]")
    assert job.parse(changed, "j").transport.ownership == (3,)
    assert job.parse(changed, "j").digest != job.parse(MINIMAL, "j").digest
    with pytest.raises(JobError, match="collective is 'ring'"):
        job.parse(changed.replace("ownership", 'collective = "ring"\nownership'), "j")


TWO = MINIMAL + '[[worker]]\nrank = 1\nhost = "b"\naddress = "10.0.1.3"\n'
LATE = "\n[loss.late]\nafter = 0.05\nsteps = 4\n"


def test_who_is_late_may_be_left_out_and_all_agree_on_it() -> None:
    it = job.parse(TWO + LATE, "j.toml")
    assert it.loss.late == Late(0.05, 4, 100)
    assert it.digest != job.parse(TWO, "j.toml").digest


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("", "the job has one worker"),
        ('[sync]\nscheme = "ds-sync"\n', "can't be with [sync]"),
        ('[transport]\ncollective = "ring"\n', "partial sums need every worker"),
        ('[transport]\ncollective = "stragglar"\nstraggler = 0\n', "partial sums need every worker"),
    ],
)
def test_what_needs_every_worker_leaves_nobody_out(more: str, reason: str) -> None:
    table = more.split("\n", 1)[0]
    text = (TWO if more else MINIMAL) + LATE
    text = text.replace(f"{table}\n", more) if table and table in text else text + more
    with pytest.raises(JobError, match=re.escape(reason)):
        job.parse(text, "j.toml")
