# SPDX-License-Identifier: Apache-2.0
"""What the controller needs, among it `gradlane` of its own version; everything else stands in pyproject.toml."""

from pathlib import Path

from setuptools import setup

VERSION = Path(__file__).with_name("VERSION").read_text().strip()

setup(
    install_requires=[
        f"gradlane=={VERSION}",
        # The HTTP API: FastAPI (on starlette and pydantic) and uvicorn, with httptools as its parser, in the event loop
        # of finsy, which is asyncio.
        "finsy>=0.30,<0.31",
        "fastapi>=0.165,<1",
        "starlette>=1.10,<2",
        "pydantic>=2.14,<3",
        "uvicorn>=0.54,<0.55",
        "httptools>=0.9,<1",
        "prometheus-client>=0.20",
        # The store, in SQLite or PostgreSQL, and the history of its tables.
        "sqlalchemy>=2.1,<2.2",
        "alembic>=1.20,<2",
        "psycopg[binary]>=3.3,<4",
        # Job files from templates.
        "tomli-w>=1.0",
    ]
)
