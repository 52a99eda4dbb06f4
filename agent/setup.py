# SPDX-License-Identifier: Apache-2.0
"""Builds the transport's C core; everything else about the package stands in pyproject.toml."""

from setuptools import setup

setup(cffi_modules=["core_build.py:ffi"])
