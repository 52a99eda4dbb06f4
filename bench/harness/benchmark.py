# SPDX-License-Identifier: Apache-2.0
"""The file that a benchmark leaves: its figures, and where and how they were measured."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lab.model import results as results_file


def save(path: Path, settings: Mapping[str, Any], results: Sequence[Any], *, show: bool) -> None:
    """Writes JSON: the machine, its load, the settings, and "runs", one for each result (a dataclass).

    `show`: also on standard output.
    """
    found = {
        "machine": results_file.machine(),
        "load": os.getloadavg(),
        **settings,
        "runs": [asdict(result) for result in results],
    }
    results_file.save(path, found)
    if show:
        print(json.dumps(found, indent=1))
