# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown."""

import re
from collections.abc import Iterable, Sequence


def cell(text: str, *, code: bool = False) -> str:
    """A text in a table: nothing in it is markup."""
    line = re.sub(r"\s+", " ", text).strip()
    if code and line:
        return f"`{line}`" if "|" not in line else f"<code>{_html(line)}</code>"
    return re.sub(r"([\\`*_\[\]])", r"\\\1", _html(line))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Of cells that are Markdown already."""
    lines = [f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)]
    return "\n".join(lines) + "\n"


def _html(line: str) -> str:
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return line.replace("|", "&#124;")
