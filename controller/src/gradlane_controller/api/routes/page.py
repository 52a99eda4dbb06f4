# SPDX-License-Identifier: Apache-2.0
"""The web page: files that come with the package, all of which are in memory, so that no path leads to another one."""

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response

FOLDER = Path(__file__).parents[2] / "page"

_POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect")),
        *(f"{what} 'none'" for what in ("base-uri", "form-action", "frame-ancestors")),
    )
)
mimetypes.add_type("font/woff2", ".woff2")
mimetypes.add_type("application/manifest+json", ".webmanifest")
_PACKED = ("text/", "application/json", "application/javascript", "image/svg+xml")


@dataclass(frozen=True)
class _File:
    """What is answered for a path."""

    content: bytes
    packed: bytes | None
    media_type: str
    tag: str
    immutable: bool


def add(application: FastAPI, folder: Path = FOLDER) -> None:
    """Serves what is in the folder: index.html at /, and what it uses below /assets, whose names change with it."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        name = path.relative_to(folder).as_posix()
        if path.is_file() and mimetypes.guess_type(path.name)[0] is not None:
            _serve(application, "/" if name == "index.html" else f"/{name}", _read(path, name.startswith("assets/")))


def _read(path: Path, immutable: bool) -> _File:
    content = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or ""
    packed = gzip.compress(content, mtime=0) if media_type.startswith(_PACKED) else None
    return _File(content, packed, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"', immutable)


def _serve(application: FastAPI, path: str, file: _File) -> None:
    headers = {
        "ETag": file.tag,
        "Cache-Control": "public, max-age=31536000, immutable" if file.immutable else "no-cache",
        "Content-Security-Policy": _POLICY,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Vary": "Accept-Encoding",
    }

    async def answer(request: Request) -> Response:
        if file.tag in request.headers.get("If-None-Match", ""):
            return Response(None, 304, headers)
        if file.packed is not None and "gzip" in request.headers.get("Accept-Encoding", ""):
            return Response(file.packed, 200, {**headers, "Content-Encoding": "gzip"}, file.media_type)
        return Response(file.content, 200, headers, file.media_type)

    application.add_route(path, answer, include_in_schema=False)
