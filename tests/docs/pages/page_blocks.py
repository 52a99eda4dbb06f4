# SPDX-License-Identifier: Apache-2.0
"""Every block of code of a page, fenced or indented, in whatever list or quotation, as a Markdown parser sees it."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

from tests.docs.test_links import PAGES
from tests.support.paths import DOCS, ROOT

# Followed by `test_tutorials.py`, which also compares all that is printed.
TUTORIALS = DOCS / "tutorials"


@dataclass(frozen=True)
class Block:
    """`language`: what a fence says of it, "sh" of an indented one."""

    page: str
    line: int
    language: str
    text: str

    @property
    def first(self) -> str:
        """Its first line, by which others name it."""
        return self.text.strip().splitlines()[0].strip()

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.first}"


def blocks_of(page: str, text: str) -> Iterator[Block]:
    """In their order."""
    for token in MarkdownIt().parse(text):
        if token.type in ("fence", "code_block"):
            assert token.map is not None
            language = token.info.strip() if token.type == "fence" else "sh"
            yield Block(page, token.map[0] + 1, language, token.content)


@cache
def all_blocks() -> dict[str, list[Block]]:
    """By the page, without pages that have none."""
    found = {str(it.relative_to(ROOT)): it for it in PAGES if not it.is_relative_to(TUTORIALS)}
    return {page: blocks for page, file in found.items() if (blocks := list(blocks_of(page, Path(file).read_text())))}
