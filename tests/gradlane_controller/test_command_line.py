# SPDX-License-Identifier: Apache-2.0
"""A command imports what it needs itself, and its parser is the one of the whole command line."""

import argparse
import subprocess
import sys

import pytest

from gradlane_controller.cli import SUBJECTS, make_parser


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (it for it in parser._actions if isinstance(it, argparse._SubParsersAction))
    return found.choices


@pytest.mark.parametrize("subject", SUBJECTS)
def test_a_command_alone_is_as_among_all(subject: str) -> None:
    everything = commands(make_parser())
    for name in SUBJECTS[subject]:
        alone = commands(make_parser(name))
        assert alone.keys() == {*SUBJECTS[subject], "completion"}
        assert alone[name].format_help() == everything[name].format_help()


@pytest.mark.parametrize("asked", ["", "--help", "stats", "completion"])
def test_what_is_no_command_alone_has_all(asked: str) -> None:
    names = {name for each in SUBJECTS.values() for name in each}
    assert commands(make_parser(asked)).keys() == names | {"completion"}


@pytest.mark.parametrize(
    ("asked", "without"),
    [
        ("", {"fastapi", "sqlalchemy", "pydantic"}),
        ("status", {"fastapi", "sqlalchemy", "pydantic", "finsy", "grpc", "google.protobuf", "numpy"}),
        ("token", {"fastapi", "sqlalchemy", "pydantic", "finsy", "grpc", "google.protobuf", "numpy"}),
    ],
)
def test_what_asks_a_controller_loads_no_library_of_one(asked: str, without: set[str]) -> None:
    code = f"import sys, gradlane_controller.cli as it; it.make_parser({asked!r}); print({without} & set(sys.modules))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stdout == "set()\n"
