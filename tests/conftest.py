# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside each test importable by their plain names."""

import sys
from pathlib import Path

for folder in ("protocol", "packet"):
    sys.path.insert(0, str(Path(__file__).parent / folder))
