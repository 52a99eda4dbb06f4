# SPDX-License-Identifier: Apache-2.0
"""Every link in a Markdown file of the repository leads to a file that is there, and to a heading in it.

So does every file that the page for newcomers names.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_OURS = {"out", "build", "node_modules"}
FENCES = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")


def is_ours(path: Path) -> bool:
    folders = path.relative_to(ROOT).parts[:-1]
    return not any(name in NOT_OURS or name.startswith(".") or name.endswith(".egg-info") for name in folders)


PAGES = [path for path in sorted(ROOT.rglob("*.md")) if is_ours(path)]


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    found: set[str] = set()
    seen: Counter[str] = Counter()
    for heading in re.findall(r"^#+ +(.+?)\s*$", FENCES.sub("", page.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    broken: list[str] = []
    for link in LINK.findall(FENCES.sub("", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


def test_the_map_of_the_code_names_files_that_exist() -> None:
    sources = [path for ending in ("py", "c", "h", "p4") for path in ROOT.rglob(f"*.{ending}") if is_ours(path)]
    named = set(re.findall(r"`([\w/]+\.(?:py|c|h|p4))`", (ROOT / "docs" / "architecture.md").read_text()))
    assert len(named) > 20
    assert [name for name in sorted(named) if not any(str(path).endswith(f"/{name}") for path in sources)] == []


def test_broken_links_would_be_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One `two`\n## A, b\n## A, b\n```\n# no heading\n```\n[x](page.md#a-b-1) [y](page.md#none)\n")
    assert anchors(page) == {"one-two", "a-b", "a-b-1"}
    with pytest.raises(AssertionError, match="#none"):
        test_links_lead_somewhere(page)
