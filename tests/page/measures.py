# SPDX-License-Identifier: Apache-2.0
"""How fast the page is there, and what memory it takes. Printed by `make bench-page`; tests use the same."""

import argparse
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.page.conftest import CHROMIUM, simulation
from tests.page.simulated.server import Server
from tests.page.simulated.topology import large, small
from tests.support.paths import ROOT

MOST_PAINT = 5.0  # s, with this machine's other work: far more than the goal of 1 s means that something is broken
MOST_GROWTH = 4e6  # bytes of JavaScript's heap, from one look to the end


def heap(page: Any) -> int:
    """Bytes of JavaScript's heap after everything that can be freed is."""
    for _ in range(3):
        page.evaluate("() => { gc(); return new Promise(done => setTimeout(done, 50)); }")
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    used = int(session.send("Runtime.getHeapUsage")["usedSize"])
    session.detach()
    return used


def elements(page: Any) -> int:
    """Of the document."""
    return page.evaluate("() => document.querySelectorAll('*').length")


def settle(page: Any, more: int) -> None:
    """Waits until so many more snapshots were shown. Raises playwright's Error if there is none for a minute."""
    page.evaluate(
        """more => new Promise((done, failed) => {
          const late = () => failed(new Error("no snapshot was shown for a minute"));
          let timer = setTimeout(late, 60000);
          const clock = document.querySelector(".now .muted");
          const watch = new MutationObserver(() => {
            clearTimeout(timer);
            if (--more > 0) timer = setTimeout(late, 60000);
            else { watch.disconnect(); done(); }
          });
          watch.observe(clock, { subtree: true, characterData: true, childList: true });
        })""",
        more,
    )


def paint(page: Any, address: str, wait: str) -> float:
    """Seconds from the request of a page until the picture of the fabric is there."""
    begin = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(wait)
    return time.perf_counter() - begin


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints and writes out/bench/page.json. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="make bench-page", description="The page: first paint, and memory over time.")
    parser.add_argument(
        "--seconds", type=int, default=600, help="how long memory is looked at, with 64 switches at 1 Hz"
    )
    options = parser.parse_args(arguments)
    if CHROMIUM is None:
        print("bench-page: error: chromium is not on PATH (apt-get install chromium)", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    found: dict[str, Any] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--js-flags=--expose-gc", "--disable-dev-shm-usage"]
        )

        def on(name: str, topology: Any, measure: Callable[[Any, Server], None]) -> None:
            with Server(simulation(topology, 45)) as server:
                page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
                measure(page, server)
                page.context.close()

        def first(page: Any, server: Server) -> None:
            begin = time.perf_counter()
            urllib.request.urlopen(server.address, timeout=10).read(1)
            found["first byte (simulated server), s"] = round(time.perf_counter() - begin, 4)
            times = []
            for _ in range(5):
                times.append(paint(page, f"{server.address}/#token=admin-token", "[data-node=leaf1]"))
                page.goto("about:blank")
            found["first useful paint, 4 switches, s"] = [round(it, 3) for it in times]
            found["median, s"] = round(statistics.median(times), 3)

        def memory(page: Any, server: Server) -> None:
            took = paint(page, f"{server.address}/#token=admin-token", "[data-node=leaf1]")
            found["first useful paint, 64 switches, s"] = round(took, 3)
            rows = []
            settle(page, 5)
            begin = time.monotonic()
            while True:
                at = round(time.monotonic() - begin)
                rows.append({"s": at, "heap": heap(page), "elements": elements(page)})
                print(f"{at:4d} s: {rows[-1]['heap'] / 1e6:.1f} MB, {rows[-1]['elements']} elements", flush=True)
                if at >= options.seconds:
                    break
                page.wait_for_timeout(1000 * min(60, options.seconds - at + 1))
            found["memory"] = rows

        on("small", small(), first)
        on("large", large(), memory)
        browser.close()
    text = json.dumps(found, indent=2)
    out = ROOT / "out" / "bench" / "page.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text + "\n")
    print(text)
    slow = found["median, s"] > MOST_PAINT
    grown = found["memory"][-1]["heap"] - found["memory"][0]["heap"] > MOST_GROWTH + 1e6
    return 1 if slow or grown else 0


if __name__ == "__main__":
    sys.exit(main())
