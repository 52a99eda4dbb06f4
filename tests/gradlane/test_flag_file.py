# SPDX-License-Identifier: Apache-2.0
"""Flags in a TOML file: the same as on the command line, which wins; and errors that name line and key."""

import argparse
import re
from pathlib import Path

import pytest

from gradlane.flag_file import ConfigError, FlagFile
from gradlane_controller.cli import make_parser as controller_parser
from gradlane_switch.cli import make_parser as switch_parser
from tests.support.paths import DOCS


class Program:
    """A parser with a flag of each kind."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "program.toml"
        self.parser = argparse.ArgumentParser(prog="program")
        self.parser.add_argument("--fabric", type=Path, required=True)
        self.parser.add_argument("-i", "--in-put", action="append", default=[], dest="inputs")
        self.parser.add_argument("--job", type=Path, action="append", default=[])
        self.parser.add_argument("--grace", type=float, default=60.0, metavar="SECONDS", help="how long")
        self.parser.add_argument("--level", choices=["low", "high"], default="low")
        self.parser.add_argument("--loud", action="store_true")
        self.parser.add_argument("--store")
        self.file = FlagFile(self.parser, "/etc/program.toml")

    def run(self, text: str | None, *arguments: str) -> argparse.Namespace:
        """All options, with a file of that text, if there is one."""
        given = list(arguments)
        if text is not None:
            self.path.write_text(text)
            given += ["--config", str(self.path)]
        return self.file.resolve(self.parser.parse_args(given))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


WHOLE = """fabric = "/f"
in_put = ["a,b", "c"]
job = "/j"
grace = 5
level = "high"
loud = true
"""


def test_what_is_in_neither_has_its_default(program: Program) -> None:
    found = program.run(None, "--fabric", "f")
    assert (found.fabric, found.inputs, found.job, found.grace, found.level, found.loud, found.store) == (
        Path("f"), [], [], 60.0, "low", False, None,
    )  # fmt: skip


def test_a_file_says_what_flags_say(program: Program) -> None:
    found = program.run(WHOLE)
    flags = ["--fabric", "/f", "-i", "a,b", "-i", "c", "--job", "/j", "--grace", "5", "--level", "high", "--loud"]
    assert {**vars(found), "config": None} == {**vars(program.run(None, *flags)), "config": None}
    assert (found.fabric, found.inputs, found.job, found.grace) == (Path("/f"), ["a,b", "c"], [Path("/j")], 5.0)


def test_flags_win_over_the_file_even_if_they_say_what_would_hold_without_any(program: Program) -> None:
    found = program.run(WHOLE, "--grace", "60", "--level", "low", "-i", "d", "--fabric", "g")
    assert (found.grace, found.level, found.inputs, found.fabric) == (60.0, "low", ["d"], Path("g"))
    assert (found.loud, found.job) == (True, [Path("/j")])


def test_each_change_is_named_by_its_key(program: Program) -> None:
    old = program.run(WHOLE)
    assert program.file.changed(old, program.run(WHOLE)) == []
    assert program.file.changed(old, program.run(WHOLE.replace("5", "6").replace("a,b", "a"))) == ["in_put", "grace"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("lewel = 'low'", 2, "lewel: is not known here; did you mean 'level'? known: fabric, grace, in_put, job,"),
        ("in-put = 'a'", 2, "in-put: is not known here; did you mean 'in_put'?"),
        ("inputs = 'a'", 2, "inputs: is not known here; did you mean 'in_put'?"),
        ("config = '/other'", 2, "config: is not known here;"),
        ("help = true", 2, "help: is not known here;"),
        ("grace = 'long'", 2, "grace: is 'long'; it must be SECONDS: how long"),
        ("grace = true", 2, "grace: is True; it must be a non-empty string or a number"),
        ("loud = 1", 2, "loud: is 1; it must be true or false"),
        ("level = 'middle'", 2, "level: is 'middle'; it must be one of 'low', 'high'"),
        ("job = ['/a', 'b']", 2, "job: is 'b'; it must be an absolute path, e.g. '/etc/gradlane/b'"),
        ("in_put = [1]", 2, "in_put: is [1]; it must be a string or a list of strings"),
        ("store = ''", 2, "store: is ''; it must be a non-empty string or a number"),
        ("[grace]", 2, "grace: is {}; it must be a non-empty string or a number"),
        ("store =", 2, "not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_what_would_be_right(
    program: Program, text: str, line: int, reason: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        program.run(f"fabric = '/f'\n{text}\n")
    assert str(caught.value).startswith(f"{program.path}:{line}: {reason}")


def test_what_is_required_is_asked_for_in_both_places(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"program\.toml: fabric: is missing; write it here, or give --fabric"):
        program.run("")
    with pytest.raises(SystemExit) as ended:
        program.run(None)
    assert ended.value.code == 2
    assert "the following arguments are required: --fabric (or --config, with 'fabric')" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(program: Program) -> None:
    with pytest.raises(ConfigError, match=r"/none: can't be read: No such file"):
        program.file.resolve(program.parser.parse_args(["--config", "/none"]))


@pytest.mark.parametrize(
    ("parser", "command"), [(controller_parser, ["run"]), (switch_parser, [])], ids=["controller", "switch"]
)
def test_every_flag_of_the_services_is_a_key(parser, command: list[str], capsys, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args([*command, "--help"])
    shown = capsys.readouterr().out
    flags = set(re.findall(r"^  (?:-\w(?: \S+)?, )?--([\w-]+)", shown, re.MULTILINE)) - {"help", "version", "config"}
    assert {"fabric", "job-grace", "insecure"} <= flags or {"interface", "grpc-server-addr", "log-level"} <= flags
    path = tmp_path / "all.toml"
    path.write_text("nothing = 1\n")
    given = parser().parse_args([*command, "--config", str(path)])
    with pytest.raises(ConfigError) as caught:
        given.config_file.resolve(given)
    known = str(caught.value).rpartition("known: ")[2].split(", ")
    assert set(known) == {flag.replace("-", "_") for flag in flags}


def test_the_guides_configurations_are_taken(tmp_path: Path) -> None:
    blocks = re.findall(r"^```toml\n(.*?)^```$", (DOCS / "operations.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block, parser, command in zip(blocks, (controller_parser, switch_parser), (["run"], []), strict=True):
        path = tmp_path / "guide.toml"
        path.write_text(block)
        given = parser().parse_args([*command, "--config", str(path)])
        options = given.config_file.resolve(given)
        assert options.fabric == Path("/etc/gradlane-controller/fabric.toml") if command else options.ports
