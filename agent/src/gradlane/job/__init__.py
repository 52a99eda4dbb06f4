# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a job agree on: its file, its policy, its loss classes, and how tensors are cut and numbered."""

from gradlane.job.file import (
    MAX_PACKET,
    Job,
    JobError,
    Member,
    fill,
    headers,
    is_template,
    largest_slice,
    load,
    parse,
)

__all__ = [
    "MAX_PACKET",
    "Job",
    "JobError",
    "Member",
    "fill",
    "headers",
    "is_template",
    "largest_slice",
    "load",
    "parse",
]
