# SPDX-License-Identifier: Apache-2.0
"""A study's result file: runs by their keys, none of which is repeated."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from lab.model import results
from lab.model.errors import UsageError

Run: TypeAlias = Mapping[str, Any]


def document(found: Mapping[str, Run], failures: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The result file."""
    return {"machine": results.machine(), "runs": list(found.values()), "failures": list(failures)}


def load(file: Path) -> tuple[dict[str, Run], list[dict[str, str]]]:
    """The runs and the failures of earlier calls. Raises UsageError."""
    if not file.exists():
        return {}, []
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return {run["key"]: run for run in content["runs"]}, list(content.get("failures", []))
    except (ValueError, KeyError, TypeError) as problem:
        raise UsageError(f"{file} is no result of this study ({problem!r}): move it elsewhere") from None
