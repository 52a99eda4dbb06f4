# SPDX-License-Identifier: Apache-2.0
"""The site as files: every link leads to something, nothing is loaded from elsewhere, and what is wrong in a
page ends a build."""

import shutil
import subprocess
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from tests.support.paths import ROOT

# What a browser loads by itself.
LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "use": "href"}


class Page(HTMLParser):
    """The anchors of a page, where it leads to, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors, self.links, self.loaded = set[str](), list[str](), list[str]()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := values.get(key))}
        target = values.get(LOADED.get(tag, ""))
        if target and values.get("rel") != "canonical":
            self.loaded.append(target)
        if tag == "a" and (target := values.get("href")):
            self.links.append(target)


@cache
def page(path: Path) -> Page:
    return Page(path)


def broken(path: Path) -> list[str]:
    """The links of a page that lead nowhere, and what it loads from elsewhere."""
    found = [it for it in page(path).loaded if it.partition(":")[0] in ("http", "https") or it.startswith("//")]
    for link in [*page(path).links, *page(path).loaded]:
        name, _, anchor = link.partition("#")
        if ":" in name.partition("/")[0]:
            continue
        target = (path.parent / unquote(name)).resolve() if name else path
        missing = not target.is_file() or (anchor and target.suffix == ".html" and not at(target, unquote(anchor)))
        if missing and not link.startswith("/"):
            found.append(link)
    return found


def at(target: Path, anchor: str) -> bool:
    return anchor.startswith("__") or anchor in page(target).anchors


def test_every_link_leads_to_a_file_and_a_heading_and_nothing_comes_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 100
    assert {
        str(path.relative_to(site)): them for path in pages if path.name != "404.html" and (them := broken(path))
    } == {}


def test_styles_load_nothing_from_elsewhere(site: Path) -> None:
    styles = sorted(site.rglob("*.css"))
    assert styles
    assert [path.name for path in styles if "url(http" in path.read_text() or "@import" in path.read_text()] == []


def test_a_link_that_leads_nowhere_would_be_found(tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h1 id="x">')
    (tmp_path / "a.html").write_text(
        '<a href="b.html#x"><a href="b.html#y"><a href="c.html"><a href="https://x.org"><img src="https://x.org/i.png">'
    )
    assert broken(tmp_path / "a.html") == ["https://x.org/i.png", "b.html#y", "c.html"]


def test_what_is_wrong_in_a_page_ends_a_build_and_is_named(tmp_path: Path, python: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("docs", "agent/src"):  # what is linked beside these is missing, too
        shutil.copytree(ROOT / name, copy / name)
    (copy / "docs" / "lost.md").write_text("# Lost\n")
    guide = copy / "docs" / "pytorch.md"
    wrong = "[a](nowhere.md) [b](agent.md#nothing) [c](../agent/src/none.py)\n\n- one\n\n  | a |\n  |---|\n"
    guide.write_text(f"{guide.read_text()}\n{wrong}")
    options = ["--strict", "-f", "docs/site/mkdocs.yml", "-d", str(tmp_path / "site")]
    build = [str(python), "-m", "mkdocs", "build", *options]
    done = subprocess.run(build, cwd=copy, capture_output=True, text=True, timeout=300, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    for part in (
        "docs/lost.md: docs/README.md does not list it",
        "contains a link 'nowhere.md'",
        "does not contain an anchor '#nothing'",
        "contains a link '../agent/src/none.py.md'",
        "docs/pytorch.md: the site has",
    ):
        assert part in said
