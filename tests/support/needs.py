# SPDX-License-Identifier: Apache-2.0
"""Marks that skip a test where the machine lacks what it needs, and say what that is."""

import os
import shutil

import pytest


def needs(*commands: str) -> pytest.MarkDecorator:
    """Commands that must be on PATH."""
    missing = [command for command in commands if shutil.which(command) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not on PATH: {', '.join(missing)}")


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: network namespaces, raw sockets")
needs_bmv2 = pytest.mark.skipif(shutil.which("simple_switch_grpc") is None, reason="BMv2 is not on PATH")
needs_mininet = pytest.mark.skipif(shutil.which("mnexec") is None, reason="Mininet is not installed")
