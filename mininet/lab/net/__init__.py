# SPDX-License-Identifier: Apache-2.0
"""What runs: namespaces, interfaces, switches, processes, the controller."""

import contextlib
import importlib
import logging

# Mininet makes every logger that comes after it one of its own kind, with a level and a handler.
with contextlib.suppress(ImportError):
    importlib.import_module("mininet.log")
logging.setLoggerClass(logging.Logger)
