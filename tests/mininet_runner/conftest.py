# SPDX-License-Identifier: Apache-2.0
"""Makes the runner's modules, and the helpers beside the tests, importable by their plain names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "mininet"))
