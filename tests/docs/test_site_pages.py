# SPDX-License-Identifier: Apache-2.0
"""The site has every page of the repository, in the order of docs/README.md, and no link of a page leads out of it."""

from collections import Counter
from pathlib import Path

import pytest

from docs.site.generated import GROUPS
from docs.site.pages import HOME, TUTORIALS, Nav, Pages, address

PAGES = Pages()


def leaves(nav: "str | Nav") -> list[str]:
    """The pages of a navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    return [page for each in nav for inside in each.values() for page in leaves(inside)]


@pytest.fixture
def small(tmp_path: Path) -> Pages:
    """A repository with a home page, tutorials, a page in a folder, a source file and a folder of files."""
    texts = {
        HOME: "# Home\n\n## Tutorials\n\n- [Tutorials](tutorials/README.md): all\n\n## Reference\n\n"
        "### Files\n\n- [A](a.md): what\n    - [B](deep/b.md)\n",
        TUTORIALS: "# Tutorials\n\n1. [x](two.md), as [there](../a.md)\n2. [y](one.md#z), [again](two.md)\n",
        "docs/tutorials/one.md": "# One\n",
        "docs/tutorials/two.md": "<!-- x -->\n# Two\n",
        "docs/a.md": "# A\n[b](deep/b.md#x) [c](../src/c.py) [d](../src) [e](#a) [f](https://x.org/c.py)\n"
        "```\n[no](../src/c.py)\n```\n",
        "docs/deep/b.md": "# B\n![picture](../p.png)\n",
        "docs/p.png": "",
        "src/c.py": "```` = 1\n",
        "src/d.bin": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in (".git/x.md", "out/y.md", "src/build/z.md", "src/w.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return Pages(tmp_path)


def test_every_page_is_listed_once() -> None:
    assert sorted(PAGES.markdown) == sorted(PAGES.listed)


def test_every_page_is_in_the_navigation() -> None:
    made = {title: {name: at for name, (at, _) in group.items()} for title, group in GROUPS.items()}
    pages = leaves(PAGES.nav(made))
    assert Counter(pages) == Counter([*PAGES.markdown, *(at for group in made.values() for at in group.values())])
    assert pages[0] == HOME
    assert [*PAGES.contents][1:] == ["Tutorials", "How-to guides", "Reference", "Explanation", "Contribute"][
        "Tutorials" not in PAGES.contents :
    ]


def test_every_link_leads_to_something_in_the_site() -> None:
    there = {*PAGES.markdown, *PAGES.images, *PAGES.shown}
    for page in PAGES.markdown:
        for at in PAGES.links(page):
            assert at in there or PAGES.readme(at) or f"{at}.md" in there or f"{at}/.folder.md" in there, (page, at)


def test_no_two_things_have_one_address() -> None:
    made = [at for group in GROUPS.values() for at, _ in group.values()]
    addresses = Counter(address(it) for it in [*PAGES.markdown, *PAGES.images, *PAGES.shown, *made])
    assert [it for it, count in addresses.items() if count > 1] == []


def test_a_page_that_nobody_lists_is_found(small: Pages) -> None:
    assert sorted(small.markdown) == sorted(small.listed)
    (small.root / "docs" / "new.md").write_text("# New\n")
    assert set(Pages(small.root).markdown) - set(small.listed) == {"docs/new.md"}


def test_the_navigation_is_that_of_the_home_page_and_of_the_tutorials(small: Pages) -> None:
    assert small.nav({"Made": {"M": "docs/reference/m.md"}}) == [
        {"Home": HOME},
        {
            "Tutorials": [
                {"Tutorials": TUTORIALS},
                {"Two": "docs/tutorials/two.md"},
                {"One": "docs/tutorials/one.md"},
            ]
        },
        {
            "Reference": [
                {"Files": [{"A": [{"A": "docs/a.md"}, {"B": "docs/deep/b.md"}]}]},
                {"Made": [{"M": "docs/reference/m.md"}]},
            ]
        },
    ]


def test_links_to_files_and_folders_lead_to_pages_that_show_them(small: Pages) -> None:
    assert small.in_the_site("docs/a.md", small.text("docs/a.md")) == (
        "# A\n[b](deep/b.md#x) [c](../src/c.py.md) [d](../src/.folder.md) [e](#a) [f](https://x.org/c.py)\n"
        "```\n[no](../src/c.py)\n```\n"
    )
    assert small.shown == {"src/c.py.md": "src/c.py", "src/.folder.md": "src"}
    assert small.source("src/c.py") == "# c.py\n\n`src/c.py`\n\n`````python\n```` = 1\n`````\n"
    assert small.source("src") == "# src/\n\n- [c.py](c.py.md)\n- d.bin\n"
    assert small.images == ["docs/p.png"]
    assert [address(it) for it in ("docs/a.md", "README.md", HOME, "switch/README.md", "src/.folder.md")] == [
        *("a.html", "overview.html", "index.html", "switch/index.html", "src/folder.html"),
    ]
