# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the test of the experiment's arms: it trains as the runner would have it."""

import json
from pathlib import Path
from typing import Any


def train_arm(rank: int, size: int, folder: str, config: str) -> list[dict[str, Any]]:
    """The worker's records."""
    from lab import train

    out = Path(folder, f"{rank}.jsonl")
    assert train.main(["worker", "--rank", str(rank), "--config", config, "--out", str(out)]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]
