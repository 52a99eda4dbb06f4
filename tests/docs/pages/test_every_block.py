# SPDX-License-Identifier: Apache-2.0
"""Every block of every page is proven: commands and programs are run as they stand, in their order, in a world of their
own (`world.sh`), and print what a ```text block after them shows; what else a block may be has `special_blocks.py`.
"""

import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import presumed, stand_ins
from tests.docs.pages.page_blocks import Block, all_blocks, blocks_of
from tests.docs.pages.programs import commands_for
from tests.docs.pages.special_blocks import SPECIAL, By, NotRun, WrittenTo, kind_of
from tests.docs.test_guarantees import missing
from tests.support.needs import needs, needs_root
from tests.support.pages import PageError, differs
from tests.support.paths import ROOT
from tests.support.shell import Failed, Shell

pytestmark = pytest.mark.long

BLOCKS = all_blocks()
TESTS = ROOT / "tests"
# Of a block; most take some seconds, and each import of torch on a busy machine many more.
SECONDS = 200.0


def commands_of(page: str) -> list[Block]:
    return [block for block in BLOCKS[page] if kind_of(block) is None]


RUN = [page for page in BLOCKS if commands_of(page)]


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: Unix sockets are made in it."""
    made = Path(tempfile.mkdtemp(prefix="glt"))
    yield made
    shutil.rmtree(made)


def follow(blocks: list[Block], folder: Path) -> None:
    """Does what a page says; fails at the first thing that is not so."""
    (folder / "presumed").mkdir()
    presumed.write(folder / "presumed")
    with Shell(folder, isolated=True) as shell:
        shell.run(f". tests/docs/pages/world.sh {Path(sys.executable).parent}", SECONDS)
        shell.run(presumed.BEFORE.get(blocks[0].page, ""), SECONDS)
        for block in blocks:
            if isinstance(kind := kind_of(block), WrittenTo):
                folder = Path(kind.path).parent
                shell.run(f"mkdir -p {folder}\ncat >> {kind.path} <<'END_OF_FILE'\n{block.text}END_OF_FILE\n", SECONDS)
        printed = ""
        for block in blocks:
            if kind_of(block) is not None:
                continue
            if block.language == "text":
                if problem := differs(block.text, printed):
                    raise PageError(f"{block}: {problem}")
            elif block.language == "sh":
                printed = attempt(shell, block, block.text)
                if re.search(r"torchrun --standalone .* examples/", block.text):
                    assert learned(printed), f"{block}: {printed}"
        if python := [block for block in blocks if block.language == "python" and kind_of(block) is None]:
            attempt(shell, python[0], commands_for(python))


def learned(printed: str) -> bool:
    """Whether a training's losses fall."""
    losses = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", printed)]
    return len(losses) >= 4 and losses[-1] < losses[0]


def attempt(shell: Shell, block: Block, text: str) -> str:
    try:
        return shell.run(text, SECONDS)
    except Failed as error:
        raise PageError(f"{block}\n{error}") from None


@needs_root
@needs("ip", "openssl")
@pytest.mark.parametrize("page", RUN)
def test_a_page_is_followed_as_it_stands(page: str, folder: Path) -> None:
    follow(BLOCKS[page], folder)


def unproven(block: Block) -> str:
    """Why nothing would fail if it was wrong; empty of what is proven."""
    kind = kind_of(block)
    if kind is None:
        return "" if block.language in ("sh", "text", "python") else f"what is a block of {block.language!r}?"
    if isinstance(kind, By):
        file = kind.test.partition("::")[0]
        if missing(kind.test):
            return f"there is no {kind.test}"
        return "" if names(TESTS / file, Path(block.page)) else f"{file} does not read {block.page}"
    return ""


def names(module: Path, page: Path) -> bool:
    """Whether a test, or what it imports of tests, has the name of the page, or all pages."""
    texts = [module.read_text()]
    imported = re.findall(r"^from (tests\.[\w.]+) import", texts[0], re.MULTILINE)
    texts += [path.read_text() for it in imported if (path := ROOT / f"{it.replace('.', '/')}.py").is_file()]
    return any(page.name in it or f'"{page.stem}"' in it or "all_blocks()" in it for it in texts)


@pytest.mark.parametrize("page", BLOCKS)
def test_every_block_of_a_page_is_proven(page: str) -> None:
    assert [f"{block}: {why}" for block in BLOCKS[page] if (why := unproven(block))] == []


def test_what_is_said_of_blocks_is_of_blocks_that_there_are() -> None:
    for page, special in SPECIAL.items():
        firsts = [block.first for block in BLOCKS[page]]
        assert [it for it in special if not any(first.startswith(it) for first in firsts)] == []
    assert set(presumed.BEFORE) <= set(BLOCKS)


def test_few_blocks_are_taken_on_trust() -> None:
    found = [block for blocks in BLOCKS.values() for block in blocks if isinstance(kind_of(block), NotRun)]
    assert len(found) <= 4


def test_each_stand_in_says_why_and_is_needed() -> None:
    text = (TESTS / "docs" / "pages" / "world.sh").read_text()
    typed = "".join(block.text for blocks in BLOCKS.values() for block in blocks)
    for name, (_, because) in stand_ins.STAND_INS.items():
        assert because
        assert name in typed, f"no page types {name}"
        assert re.search(rf"\b{re.escape(name.partition('.')[0])}\b", text), f"nothing hands {name} to its stand-in"


PAGE = """# A page

    install -D -m 644 -t /etc/gradlane job.toml
    make demo SCENARIO=burst
    echo 12 jobs

```text
34 jobs
```

```python
assert rank < 2
```
"""


@needs_root
@needs("ip", "openssl")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("job.toml", "jobb.toml"),
        ("SCENARIO=burst", "SCENARIO=brust"),
        ("34 jobs", "34 job"),
        ("rank < 2", "rank < 1"),
    ],
)
def test_a_page_that_is_wrong_is_not(before: str, after: str, folder: Path) -> None:
    page = PAGE.replace(before, after)
    assert page != PAGE
    with pytest.raises(PageError):
        follow(list(blocks_of("page.md", page)), folder)


@needs_root
@needs("ip", "openssl")
def test_a_page_that_is_right_is_followed(folder: Path) -> None:
    follow(list(blocks_of("page.md", PAGE)), folder)


@pytest.mark.parametrize(
    "typed",
    [
        "pip install './agent[torhc]'",
        "pip install ./agnet",
        "pip install gradlane_swicth-*.whl",
        "make demmo",
        'make bench-sync SYNC="--csaes all"',
        "systemctl restart gradlane-agnet",
        "systemctl enable gradlane-agent",  # it is not installed here
        "docker build -f deploy/containers/Containerfile --target agnet .",
        "docker run -d gradlane-agent:0.0.9",
        "kubectl apply -f deploy/nothing.yaml",
        "kubectl apply -k deploy/kubernetes/examples",
        "kubectl label node h1 gradlane/agnet=true",
        "kubectl exec controller-0 -- gradlane-controller stauts",
        "helm upgrade --install g deploy/kubernetes --set controler.enabled=false",
        "npm tets",
        "sbatch deploy/slurm/prolog.sh",
        "torchrun --nnodes 4 --nprocs-per-node 2 train.py",
        "pytest tests/docs/test_link.py",
        "gradlane_sim run studdy",
        "example examples/jax_digits.py --jobb examples/job.toml",
        "tcpdump -i none0 -w job.pcap",
    ],
)
def test_what_is_wrong_a_stand_in_refuses(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    name, *arguments = shlex.split(typed)
    with pytest.raises((SystemExit, OSError)):
        stand_ins.STAND_INS[name][0](arguments)


def test_a_block_that_nothing_proves_is_found() -> None:
    [block] = blocks_of("page.md", "```toml\na = 1\n```\n")
    assert unproven(block)
    assert not names(TESTS / "docs" / "test_links.py", Path("nothing.md"))
    assert [it.text for it in blocks_of("page.md", "- a\n\n      code\n\n      more\n\n  text\n")] == ["code\n\nmore\n"]
