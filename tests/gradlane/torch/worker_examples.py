# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the tests of the examples: it runs one, as torchrun would."""

import contextlib
import io
import os
import runpy
import sys

from tests.support.paths import EXAMPLES


def run_example(rank: int, size: int, folder: str, port: int, name: str, *arguments: str) -> str:
    """Its output."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_RANK": "0"}
    sys.argv = [name, *arguments]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return output.getvalue()
