# SPDX-License-Identifier: Apache-2.0
"""Batches of updates and of reads, run to their end."""

from collections.abc import Sequence
from typing import Any

from gradlane_switch.p4runtime import batch
from gradlane_switch.p4runtime.turns import Work
from gradlane_switch.state.pipeline import Pipeline


def write(pipeline: Pipeline, updates: Sequence[Any], atomicity: int = 0) -> list[Any]:
    """The p4.v1.Error of each update; none if all went well."""
    return batch.finish(batch.write(pipeline, updates, atomicity))


def read(pipeline: Pipeline, requests: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The p4.v1.ReadResponse messages; and the p4.v1.Error of each request, none if all went well."""
    work, found = Work(batch.read(pipeline, requests)), list[Any]()
    while not work.ended:
        found += work.advance()
    return found, work.result
