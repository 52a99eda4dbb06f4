# SPDX-License-Identifier: Apache-2.0
"""What answers of several subjects have."""

from pydantic import BaseModel


class Error(BaseModel):
    """What was wrong, and what would be right."""

    error: str


class Deleted(BaseModel):
    """What is no more."""

    deleted: str
