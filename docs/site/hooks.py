# SPDX-License-Identifier: Apache-2.0
"""What MkDocs calls: the pages of the repository and those that are made, where they lie, and checks of them."""

import logging
import os
import re
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath
from typing import Any

import pymdownx.superfences
from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from docs.site.generated import GROUPS
from docs.site.pages import HOME, Pages, address

_LOG = logging.getLogger("mkdocs.hooks.gradlane")  # whose warnings end a build with --strict
_PAGES = Pages()
_MADE = {page: text for group in GROUPS.values() for page, text in group.values()}
_FOR_DEVELOPERS = {page for _, them in _PAGES.contents["Contribute"] for each in them for page in each.pages()}
_SOURCE = "---\nsearch: {exclude: true}\nhide: [navigation, toc]\n---\n\n"
_STRUCTURE = {"ul", "ol", "li", "table", "tr", "pre", "blockquote", "h1", "h2", "h3", "h4"}


def slug(text: str, _separator: str) -> str:
    """The anchor that Git hosts give to a heading."""
    return re.sub(r"[^\w\- ]", "", text).lower().replace(" ", "-")


def on_config(config: MkDocsConfig) -> None:
    """Settings that YAML can't say, and the order of the pages."""
    diagrams = {"name": "mermaid", "class": "mermaid", "format": pymdownx.superfences.fence_code_format}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [diagrams]}
    config.mdx_configs["toc"] = {**config.mdx_configs["toc"], "slugify": slug}
    config.nav = _PAGES.nav({title: {name: at for name, (at, _) in group.items()} for title, group in GROUPS.items()})
    for page in sorted(set(_PAGES.markdown) - set(_PAGES.listed)):
        _LOG.warning(f"{page}: docs/README.md does not list it")


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds everything that is no part of the theme."""

    def add(name: str, inclusion: InclusionLevel = InclusionLevel.INCLUDED, **source: Any) -> None:
        file = File.generated(config, name, inclusion=inclusion, **source)
        file.dest_uri = address(name)
        file.name = "index" if name in _PAGES.heads else "page"  # a README is the head of nothing by its name alone
        files.append(file)

    for name in (*_PAGES.markdown, *_PAGES.images):
        add(name, abs_src_path=str(_PAGES.root / name))
    for name, text in _MADE.items():
        add(name, content=text())
    for name, source in _PAGES.shown.items():
        add(name, InclusionLevel.NOT_IN_NAV, content=_SOURCE + _PAGES.source(source))
    folder = Path(sys.prefix, "scripts")  # where scripts.py has put them
    for script in sorted(folder.iterdir()):
        add(f"scripts/{script.name}", abs_src_path=str(script))
    ends = [file.dest_uri for file in files]
    for twice in sorted({it for it in ends if ends.count(it) > 1}):
        _LOG.warning(f"{twice}: several pages would lie there")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to files lead to the pages that show them. The home page lists what is made, too."""
    name = page.file.src_uri
    if name == HOME:
        page.meta["hide"] = ["navigation", "toc"]
        lists = [f"### {title}\n\n{_list(group)}" for title, group in GROUPS.items()]
        markdown = re.sub(r"^## Reference\n.*?(?=^## )", rf"\g<0>{''.join(lists)}", markdown, flags=re.M | re.S)
    if name in _FOR_DEVELOPERS:
        page.meta["search"] = {"boost": 0.5}
    return _PAGES.in_the_site(name, markdown) if name in _PAGES.markdown else markdown


def _list(group: Mapping[str, tuple[str, Any]]) -> str:
    lines = [f"- [{title}]({os.path.relpath(at, PurePosixPath(HOME).parent)})" for title, (at, _) in group.items()]
    return "\n".join(lines) + "\n\n"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Looks at a page as it is; the home page gets a box for each section and each group.

    A page that a Git host would show with other lists, tables or programs is not as its author saw it."""
    name = page.file.src_uri
    if name not in _PAGES.markdown:
        return html
    here, there = structure(html), structure(MarkdownIt("commonmark").enable("table").render(page.markdown or ""))
    if [tag for tag, _ in here] != [tag for tag, _ in there]:
        differ = (n for n, (one, other) in enumerate(zip(here, there, strict=False)) if one[0] != other[0])
        at = next(differ, min(len(here), len(there)) - 1)
        _LOG.warning(f"{name}: the site has {here[at][0]}, a Git host {there[at][0]}, near {there[at][1]!r}")
    return boxed(boxed(html, "h2", "gl-section"), "h3", "gl-group") if name == HOME else html


def boxed(html: str, heading: str, kind: str) -> str:
    """Each heading and what follows it, up to the next one or the end of the box around it, in a box of that kind."""
    inside = rf"(<{heading} .*?)(?=<{heading} |</section>|\Z)"
    return re.sub(inside, rf'<section class="{kind}">\1</section>', html, flags=re.DOTALL)


class _Structure(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []
        self._text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _STRUCTURE:
            first = dict(attrs).get("start") or "1"
            self.found.append((f"{tag} from {first}" if tag == "ol" else tag, self._text[-40:]))

    def handle_endtag(self, tag: str) -> None:
        if tag in _STRUCTURE:
            self.found.append((f"end of {tag}", self._text[-40:]))

    def handle_data(self, data: str) -> None:
        self._text += " ".join(data.split())


def structure(html: str) -> list[tuple[str, str]]:
    """The tags that make a page's structure, and what was before each."""
    parser = _Structure()
    parser.feed(html)
    return parser.found
