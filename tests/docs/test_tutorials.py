# SPDX-License-Identifier: Apache-2.0
"""The tutorials are followed as they stand: every command runs, and prints what the page shows.

`support/pages.py` says how a page is read, and what may differ in what is shown.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.needs import needs, needs_mininet, needs_root
from tests.support.pages import Block, PageError, blocks, differs
from tests.support.paths import DOCS
from tests.support.shell import Failed, Shell

pytestmark = pytest.mark.long

FOLDER = DOCS / "tutorials"
# Of a block; most take a second or two, and those that train or build a network some more, on a busy machine many more.
SECONDS = 150.0
# A switch has 10 s to answer its controller, a host 3 s to answer a neighbour: too little beside busy tests.
MARKS = {
    "first-job": [needs_root, needs("ip", "ping", "openssl")],
    "drop-policy": [needs_root, needs("ip", "ping"), pytest.mark.timed],
    "p4-table": [needs("patch", "cc")],
    "leaf-spine": [needs_root, needs_mininet, pytest.mark.timed],
    "own-model": [needs_root, needs_mininet, needs("patch", "openssl")],
}
# What no test follows, by the page and the reason that the page gives.
NOT_RUN: dict[str, list[str]] = {}


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: Unix sockets are made in it."""
    made = Path(tempfile.mkdtemp(prefix="glt"))
    yield made
    shutil.rmtree(made)


def follow(page: list[Block], folder: Path) -> None:
    """Does what it says, in a shell of its own; fails at the first thing that is not as it says."""
    with Shell(folder, isolated=os.geteuid() == 0) as shell:
        for block in page:
            text = f"cat > {block.file} <<'END_OF_FILE'\n{block.text}END_OF_FILE\n" if block.file else block.text
            printed = shell.run(text, SECONDS)
            if problem := differs(block.shown, printed):
                raise PageError(f"line {block.line}, after\n{block.text}{problem}")


def followed(page: str, *programs: str) -> list[Block]:
    """What a reader does who has these programs, of those that the page asks for."""

    def applies(block: Block) -> bool:
        return block.when != "not run" and (not block.when or (block.why in programs) == (block.when == "with"))

    return [block for block in blocks(page) if applies(block)]


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks) for name, marks in MARKS.items()])
def test_a_tutorial_is_followed_word_for_word(name: str, folder: Path) -> None:
    follow(followed((FOLDER / f"{name}.md").read_text()), folder)


@needs("patch", "cc", "p4c-bm2-ss")
def test_the_tutorial_of_p4_is_followed_with_a_compiler(folder: Path) -> None:
    follow(followed((FOLDER / "p4-table.md").read_text(), "p4c-bm2-ss"), folder)


def test_every_tutorial_is_followed_and_listed() -> None:
    found = {path.stem for path in FOLDER.glob("*.md")} - {"README"}
    assert found == set(MARKS)
    assert re.findall(r"\]\(([\w-]+)\.md\)", (FOLDER / "README.md").read_text()) == list(MARKS)
    skipped = {
        name: [block.why for block in blocks((FOLDER / f"{name}.md").read_text()) if block.when == "not run"]
        for name in MARKS
    }
    assert {name: why for name, why in skipped.items() if why} == NOT_RUN


PAGE = """# A page

```sh
cd "$(mktemp -d)"
```

Write `name.txt`:

```toml
world
```

```sh
export GREETING=hello
echo $GREETING $(cat name.txt) 12 times
```

```text
hello world 34 times
```

```sh
test $GREETING = hello
```

<!-- not run: it would never end -->
```sh
sleep infinity
```
"""


def test_a_page_that_is_right_is_followed(folder: Path) -> None:
    follow(followed(PAGE), folder)


@pytest.mark.parametrize(
    ("before", "after", "error"),
    [
        ("hello world 34", "hello word 34", PageError),  # a word of what is shown
        ("34 times\n```", "34 times\nand more\n```", PageError),  # a line too many
        ("```text\nhello world 34 times\n```", "", PageError),  # something is printed, and nothing shown
        ("12 times", "0 times", PageError),
        ("12 times", "12 times twice", PageError),
        ("echo $GREETING", "echo -x $GREETING", PageError),  # a flag of a command
        ("cat name.txt", "cat --flag name.txt", Failed),
        ("export GREETING=hello", "false", Failed),  # a command in the middle fails
        ("GREETING = hello", "GREETING = hallo", Failed),
        ("sleep infinity", "sleep infinity\n```\n\n```python", PageError),  # a file without a name
        ("```sh\ntest", "```sh\ntest $(", Failed),
    ],
)
def test_a_page_that_is_wrong_is_not(before: str, after: str, error: type[Exception], folder: Path) -> None:
    page = PAGE.replace(before, after)
    assert page != PAGE
    with pytest.raises(error):
        follow(followed(page), folder)


def test_a_command_that_does_not_end_is_a_failure(folder: Path) -> None:
    with Shell(folder, isolated=False) as shell, pytest.raises(Failed, match="too slow"):
        shell.run("sleep 60\n", 0.5)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("rank 1 is gone", "rank 1 is gone"),
        ("sent 1234", "sent 5"),
        ("a  b", "  a b\n\n"),
        ("...\nlast", "first\nsecond\nlast"),
        ("since ... it works", "since 12:30 it works"),
        ("0.00 lost", "0 lost"),
        ("took 12.5 s", "took 300 s"),
        ("0% of 12", "0% of 99"),
    ],
)
def test_what_may_differ_from_what_is_shown(shown: str, printed: str) -> None:
    assert not differs(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("rank 1 is gone", "rank 2 is gone"),  # one digit stands for itself
        ("10.0.0.1 is gone", "10.0.0.2 is gone"),
        ("at 127.0.0.1:9559", "at 127.0.0.1:9560"),
        ("h10 is gone", "h11 is gone"),
        ("0 lost", "12 lost"),
        ("1234 lost", "0 lost"),
        ("12.5 s", "0.0 s"),
        ("sent 12", "sent twelve"),
        ("sent 12", "sent 12 times"),
        ("...\nlast", "last\nand more"),
        ("a...", "b..."),
        ("", "something"),
    ],
)
def test_what_may_not_differ_from_what_is_shown(shown: str, printed: str) -> None:
    assert differs(shown, printed)


def test_the_parts_of_a_page_are_told_apart() -> None:
    found = blocks(PAGE)
    parts = [(block.file, block.when) for block in found]
    assert parts == [("", ""), ("name.txt", ""), ("", ""), ("", ""), ("", "not run")]
    assert found[2].shown == "hello world 34 times\n"
    assert found[4].why == "it would never end"
    choice = "<!-- with p4c -->\n```sh\np4c\n```\n\n<!-- without p4c -->\n```sh\ncp\n```\n"
    assert [block.text for block in followed(choice)] == ["cp\n"]
    assert [block.text for block in followed(choice, "p4c")] == ["p4c\n"]
