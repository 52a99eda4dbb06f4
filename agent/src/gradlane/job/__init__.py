# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a job agree on: its file, its policy, its loss classes, and how tensors are cut and numbered."""

from gradlane.job.file import Job, JobError, Member, fill, is_template, load, parse, renumbered
from gradlane.job.transport import MAX_PACKET, headers, largest_slice

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
    "renumbered",
]
