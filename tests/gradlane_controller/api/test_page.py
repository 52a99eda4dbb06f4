# SPDX-License-Identifier: Apache-2.0
"""Files of the page: what is there, how long browsers keep it, and that there is no way to others."""

import asyncio
import gzip
import time
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from gradlane_controller.api.errors import handle_errors
from gradlane_controller.api.routes import page

SCRIPT = b"console.log(1);" * 100


@pytest.fixture
def application(tmp_path: Path) -> FastAPI:
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "page"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "sources.sha256").write_text("of how it was built")
    (folder / "favicon.svg").write_text("<svg/>")
    (folder / "assets" / "main-1a2b.js").write_bytes(SCRIPT)
    (folder / "assets" / "main-1a2b.woff2").write_bytes(b"\0\1")
    it = FastAPI(docs_url=None, redoc_url=None, redirect_slashes=False)
    handle_errors(it)
    page.add(it, folder)
    return it


def ask(application: FastAPI, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    said: list[dict[str, Any]] = []
    given = [(name.replace("_", "-").lower().encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
    scope |= {"headers": given, "http_version": "1.1", "scheme": "http", "server": ("x", 1), "client": ("x", 1)}

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        said.append(message)

    asyncio.run(application(scope, receive, send))
    found = {name.decode(): value.decode() for name, value in said[0]["headers"]}
    return said[0]["status"], found, b"".join(it.get("body", b"") for it in said[1:])


def test_files_are_served_with_their_types_and_a_strict_policy(application: FastAPI) -> None:
    status, headers, body = ask(application, "/")
    assert (status, body, headers["content-type"]) == (200, b"<!doctype html>", "text/html; charset=utf-8")
    policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["cache-control"] == "no-cache"
    status, headers, body = ask(application, "/assets/main-1a2b.js")
    assert (status, body) == (200, SCRIPT)
    assert headers["content-type"].startswith("text/javascript")
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert ask(application, "/favicon.svg")[1]["cache-control"] == "no-cache"
    assert ask(application, "/", "HEAD")[0] == 200


def test_what_a_browser_has_is_not_sent_again_and_what_it_takes_packed_is(application: FastAPI) -> None:
    _, headers, _ = ask(application, "/assets/main-1a2b.js")
    status, again, body = ask(application, "/assets/main-1a2b.js", If_None_Match=headers["etag"])
    assert (status, body, again["etag"]) == (304, b"", headers["etag"])
    _, packed, body = ask(application, "/assets/main-1a2b.js", Accept_Encoding="br, gzip")
    assert (packed["content-encoding"], packed["vary"]) == ("gzip", "Accept-Encoding")
    assert gzip.decompress(body) == SCRIPT
    assert len(body) < len(SCRIPT)
    assert "content-encoding" not in ask(application, "/assets/main-1a2b.woff2", Accept_Encoding="gzip")[1]


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/../../secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt",
        "//secret.txt",
        "/assets//main-1a2b.js",
        "/assets/main-1a2b.js/",
        "/assets/main-1a2b.js\0",
        "/assets/",
        "/assets",
        "/index.html",
        "/sources.sha256",
        "\\assets\\main-1a2b.js",
        "/ASSETS/main-1a2b.js",
    ],
)
def test_no_other_path_leads_to_a_file(application: FastAPI, path: str) -> None:
    status, _, body = ask(application, path)
    assert status == 404
    assert b"secret" not in body.replace(path.encode(), b"").replace(b"secret.txt", b"")
    assert SCRIPT not in body


def test_without_a_page_there_is_none(tmp_path: Path) -> None:
    it = FastAPI(docs_url=None, redoc_url=None)
    handle_errors(it)
    page.add(it, tmp_path / "none")
    assert ask(it, "/")[0] == 404


def test_the_first_byte_comes_at_once(application: FastAPI) -> None:
    took = []
    for _ in range(20):
        began = time.perf_counter()
        ask(application, "/")
        took.append(time.perf_counter() - began)
    assert sorted(took)[len(took) // 2] < 0.05
