# SPDX-License-Identifier: Apache-2.0
"""The file that a benchmark leaves: its figures, and where and how they were measured."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "mininet"))

from results import machine


def save(path: Path, settings: Mapping[str, Any], results: Sequence[Any], *, show: bool) -> None:
    """Writes JSON: the machine, its load, the settings, and "runs", one for each result (a dataclass).

    `show`: also on standard output.
    """
    found = {
        "machine": machine(),
        "load": os.getloadavg(),
        **settings,
        "runs": [asdict(result) for result in results],
    }
    text = json.dumps(found, indent=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if show:
        print(text)
