# SPDX-License-Identifier: Apache-2.0
"""A C tree is built of parts, a folder each, and a part uses only what README.md there lists for it, all of it below.

Both what is included and what is called: the objects are compiled apart, and their symbols tell who needs whom.
"""

import re
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from gradlane import wire

ROOT = Path(__file__).parents[2]
_ROW = re.compile(r"^\| `(\w+)/` \|[^|]*\|([^|]*)\|$", re.MULTILINE)


@dataclass
class Tree:
    """Parts below `folder`. `generated`: the text of headers that the build makes, by their name."""

    folder: Path
    generated: dict[str, Callable[[], str]]

    @cached_property
    def uses(self) -> dict[str, set[str]]:
        """By part, lowest first, the parts that it may use, as the README has it."""
        rows = _ROW.findall((self.folder / "README.md").read_text())
        return {part: set(re.findall(r"`(\w+)`", cell)) for part, cell in rows}

    @cached_property
    def files(self) -> list[Path]:
        return sorted(path for path in self.folder.rglob("*") if path.suffix in (".c", ".h"))

    def part(self, path: Path) -> str:
        return path.relative_to(self.folder).parts[0]

    def includes(self, path: Path) -> list[Path]:
        """What a file includes of the tree. Raises AssertionError at what is neither there nor generated."""
        names = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
        for name in names:
            assert name in self.generated or (self.folder / name).is_file(), (
                f"{path} includes {name}: not from the root"
            )
        return [self.folder / name for name in names if name not in self.generated]

    def generate(self, build: Path) -> list[str]:
        """Options of a compiler that finds all headers."""
        for name, text in self.generated.items():
            (build / name).write_text(text())
        return ["-std=gnu11", "-D_GNU_SOURCE=", "-I", str(self.folder), "-I", str(build)]

    def calls(self, build: Path) -> list[tuple[Path, Path, str]]:
        """Who needs a symbol that another source defines; that source; the symbol. Each is compiled by itself."""
        options = self.generate(build)
        defined: dict[str, Path] = {}
        needed: dict[Path, set[str]] = defaultdict(set)
        for source in (path for path in self.files if path.suffix == ".c"):
            compiled = build / f"{self.part(source)}.{source.stem}.o"
            subprocess.run(["cc", *options, "-O0", "-c", str(source), "-o", str(compiled)], check=True)
            symbols = subprocess.run(["nm", "-g", str(compiled)], check=True, capture_output=True, text=True).stdout
            for line in symbols.splitlines():
                kind, name = line.split()[-2:]
                if kind == "U":
                    needed[source].add(name)
                else:
                    assert name not in defined, f"{name} is defined twice"
                    defined[name] = source
        return [(user, defined[name], name) for user, names in needed.items() for name in names if name in defined]


TREES = [
    Tree(ROOT / "agent" / "src" / "gradlane" / "core", {"wire.h": wire.c_definitions}),
    Tree(ROOT / "switch" / "src" / "gradlane_switch" / "native" / "runtime", {}),
]


@pytest.fixture(params=TREES, ids=lambda tree: str(tree.folder.relative_to(ROOT)))
def tree(request: pytest.FixtureRequest) -> Tree:
    return request.param


def circle(pairs: Iterable[tuple[Path, Path, str]]) -> list[str]:
    """The names of files that need one another, or none."""
    graph: dict[Path, set[Path]] = defaultdict(set)
    for user, used, _ in pairs:
        graph[user].add(used)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [path.name for path in error.args[1]]
    return []


def upward(tree: Tree, pairs: Iterable[tuple[Path, Path, str]]) -> list[str]:
    """Those who use what their part may not use, and what that is."""
    return [
        f"{user.relative_to(tree.folder)} uses {what} of {used.relative_to(tree.folder)}"
        for user, used, what in pairs
        if tree.part(used) not in tree.uses[tree.part(user)] | {tree.part(user)}
    ]


def test_the_parts_are_those_of_the_plan_and_each_uses_lower_ones_only(tree: Tree) -> None:
    assert set(tree.uses) == {tree.part(path) for path in tree.files}
    below: set[str] = set()
    for part, uses in tree.uses.items():
        assert uses <= below, f"{part} may use {sorted(uses - below)}, not below it"
        below.add(part)


def test_includes_go_down(tree: Tree) -> None:
    pairs = [(path, to, "declarations") for path in tree.files for to in tree.includes(path)]
    assert len(pairs) > len(tree.files)
    assert not upward(tree, pairs)
    assert not circle(pairs)


def test_calls_go_down_and_no_two_sources_need_each_other(tree: Tree, tmp_path: Path) -> None:
    calls = tree.calls(tmp_path)
    assert len(calls) > len(tree.files)
    assert not upward(tree, calls)
    assert not circle(calls)


def test_a_header_needs_no_other_before_it(tree: Tree, tmp_path: Path) -> None:
    headers = [str(path) for path in tree.files if path.suffix == ".h"]
    subprocess.run(["cc", *tree.generate(tmp_path), "-fsyntax-only", *headers], check=True)


def test_a_call_that_goes_up_is_found_without_an_include(tmp_path: Path) -> None:
    for name, code in {
        "low/sum.c": "int report(int); int sum(int a, int b) { return report(a + b); }",
        "high/report.c": "int sum(int, int); int report(int a) { return a < 0 ? sum(a, 1) : a; }",
        "README.md": "| `low/` | | |\n| `high/` | | `low` |\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    tree = Tree(tmp_path, {})
    calls = tree.calls(tmp_path)
    assert upward(tree, calls) == ["low/sum.c uses report of high/report.c"]
    assert set(circle(calls)) == {"sum.c", "report.c"}
