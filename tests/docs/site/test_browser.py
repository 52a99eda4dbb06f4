# SPDX-License-Identifier: Apache-2.0
"""The site in a browser, as files, without a network: the search finds, diagrams are drawn, a phone shows it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.site.pages import address
from tests.docs.pages.page_blocks import all_blocks

PHONE = {"width": 390, "height": 844}


@pytest.fixture
def visit(chromium: Any, site: Path) -> Iterator[Callable[..., Any]]:
    """Opens a page of the site. Nothing may be asked of anybody, and no script may fail."""
    contexts: list[Any] = []
    problems: list[str] = []

    def open_page(name: str, **options: Any) -> Any:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(60_000)  # no promise: mermaid is 3.5 MB to read for a machine with other work
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.on("request", lambda it: problems.append(it.url) if it.url.startswith(("http:", "https:", "ws")) else None)
        page.goto((site / name).as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ("allreduce_hook", "reference/gradlane.torch.html"),
        ("gradlane_datagrams_refused_total", "reference/metrics.html"),
        ("on_congestion", "reference/job-keys.html"),
        ("loss budget", "how-it-works.html"),
        ("--metrics", "reference/gradlane-command.html"),
        ("StragglAR", "stragglers.html"),
    ],
)
def test_the_search_finds_guides_and_the_reference(visit: Callable[..., Any], words: str, address: str) -> None:
    page = visit("index.html")
    page.locator("[data-md-component=search-query]").press_sequentially(words)
    page.wait_for_selector(".md-search-result__item a")
    found = page.eval_on_selector_all(".md-search-result__item a", "links => links.map(link => link.href)")
    assert any(f"/{address}" in it for it in found), found


def test_the_search_finds_nothing_where_nothing_is(visit: Callable[..., Any]) -> None:
    page = visit("index.html")
    page.locator("[data-md-component=search-query]").press_sequentially("qzxwvkj")
    page.wait_for_function("() => /no matching/i.test(document.querySelector('.md-search-result__meta').textContent)")


@pytest.mark.parametrize(
    "name", [address(page) for page, blocks in all_blocks().items() if any(it.language == "mermaid" for it in blocks)]
)
def test_every_diagram_is_drawn(visit: Callable[..., Any], site: Path, name: str) -> None:
    count = (site / name).read_text().count('<pre class="mermaid">')
    assert count
    page = visit(name)
    page.wait_for_function(f"() => document.querySelectorAll('div.mermaid').length === {count}")
    heights = page.eval_on_selector_all("div.mermaid", "all => all.map(it => it.getBoundingClientRect().height)")
    assert min(heights) > 100


@pytest.mark.parametrize(
    "name", ["index.html", "how-it-works.html", "reference/job-keys.html", "reference/gradlane.torch.html"]
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(visit: Callable[..., Any], name: str, scheme: str) -> None:
    page = visit(name, viewport=PHONE, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    wanted = {"light": "default", "dark": "slate"}[scheme]
    page.wait_for_function(f"() => document.body.dataset.mdColorScheme === '{wanted}'")


def test_pictures_are_shown(visit: Callable[..., Any]) -> None:
    for name in ("index.html", "how-it-works.html", "overview.html", "accuracy.html"):
        sizes = visit(name).eval_on_selector_all("article img", "all => all.map(it => it.naturalWidth)")
        assert sizes, name
        assert min(sizes) > 0, name


def test_the_home_page_leads_to_what_is_made_of_the_sources(visit: Callable[..., Any]) -> None:
    page = visit("index.html")
    for link in ("gradlane-command", "fabric-keys", "metrics", "gradlane.torch"):
        assert page.locator(f"article a[href='reference/{link}.html']").count() == 1
    page.click("article a[href='reference/metrics.html']")
    page.wait_for_selector("article table")


def test_a_source_file_and_a_folder_are_shown(visit: Callable[..., Any]) -> None:
    page = visit("pytorch.html")
    page.click("article a[href$='examples/index.html']")
    page.wait_for_url("**/examples/index.html")
    assert "Examples" in page.inner_text("h1")
    page = visit("files.html")
    page.click("article a[href$='costs.py.html']")
    page.wait_for_selector("article .highlight")
    assert "def " in page.inner_text("article")
    assert "kustomization.yaml" in visit("deploy/kubernetes/folder.html").inner_text("article")
