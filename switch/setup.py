# SPDX-License-Identifier: Apache-2.0
"""What the switch needs, among it `gradlane` of its own version; everything else stands in pyproject.toml."""

from pathlib import Path

from setuptools import setup

VERSION = Path(__file__).with_name("VERSION").read_text().strip()

setup(
    install_requires=[
        f"gradlane=={VERSION}",
        "cffi>=1.16",
        "finsy>=0.28",
        "grpcio>=1.60",
        "grpcio-health-checking>=1.60",
        "grpcio-reflection>=1.60",
        "prometheus-client>=0.20",
        "protobuf>=4.25",
    ]
)
