# SPDX-License-Identifier: Apache-2.0
"""Benchmarks. Each is one module, run by `python -m bench.FOLDER.NAME`."""
