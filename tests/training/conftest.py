# SPDX-License-Identifier: Apache-2.0
"""Makes the training package importable, as it is for the experiment's scripts, and the helpers beside the tests."""

import sys
from pathlib import Path

MININET = Path(__file__).parents[2] / "mininet"
sys.path[:0] = [str(MININET), str(Path(__file__).parent)]
