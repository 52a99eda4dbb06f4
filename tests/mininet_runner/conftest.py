# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside the tests importable by their plain names."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
