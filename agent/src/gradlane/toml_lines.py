# SPDX-License-Identifier: Apache-2.0
"""In which line of a TOML document a key is, as tomllib does not say."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_MOST_AROUND = 8  # arrays and inline tables around a value: what is deeper has the line of what it is in
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*)|(?P<newline>\n)"""
    r"""|(?P<text>"{3}(?:\\.|[^\\])*?"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')"""
    r"""|(?P<mark>[\[\]{}=,])|(?P<bare>[^\s#"'\[\]{}=,]+)""",
    re.DOTALL,
)


def find(text: str, key: str) -> int | None:
    """The line, from 1 on, of a key such as "switch[1].tls.ca", or of the innermost table around it that is there; None
    if there is none. The document is valid, and the time grows with its length."""
    return find_in(lines(text), key)


def lines(text: str) -> Mapping[str, int]:
    """The lines of all keys and tables of a valid document."""
    return _Scan(text).lines


def find_in(known: Mapping[str, int], key: str) -> int | None:
    """As `find`, of such lines."""
    while key:
        if key in known:
            return known[key]
        key = key[: max(key.rfind("."), key.rfind("["), 0)]
    return None


def of_problem(text: str, problem: str) -> int | None:
    """The line that tomllib's message about an invalid document names."""
    if named := re.search(r"\(at line (\d+), column \d+\)\Z", problem):
        return int(named[1])
    return text.count("\n") + 1 if problem.endswith("(at end of document)") else None


@dataclass
class _Around:
    """An array (`item` is the number of the next one) or an inline table (None) around what is read."""

    path: str
    item: int | None


@dataclass
class _Scan:
    """`lines` by key."""

    text: str
    lines: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        self._line = 1
        self._table = ""
        self._counts: dict[str, int] = {}  # of arrays of tables
        self._around: list[_Around] = []
        self._key: list[str] = []
        self._path = ""  # of the value that is read; while a key is, empty
        header = ""  # "[" or "[["
        for token in _TOKEN.finditer(self.text):
            kind, word = token.lastgroup, token.group()
            if header:
                if word == "[" and not self._key:
                    header = "[["
                elif word == "]":
                    self._open(header)
                    header = ""
                elif kind in ("text", "bare"):
                    self._add(kind, word)
            elif kind == "newline" and not self._around:
                self._key, self._path = [], ""
            elif word == "[" and not self._around and not self._path:
                header, self._key = "[", []
            elif kind in ("text", "bare", "mark"):
                self._take(kind, word)
            self._line += word.count("\n")

    def _add(self, kind: str, word: str) -> None:
        """A part of a key, or several."""
        self._key += [word[1:-1]] if kind == "text" else [part for part in word.split(".") if part]

    def _open(self, header: str) -> None:
        """A table begins."""
        path = ""
        for place, part in enumerate(self._key, 1):
            path = self._note(_join(path, part))
            if place < len(self._key):
                path += f"[{self._counts[path] - 1}]" if path in self._counts else ""
            elif header == "[[":
                number = self._counts[path] = self._counts.get(path, 0) + 1
                path = self._note(f"{path}[{number - 1}]")
        self._table, self._key = path, []

    def _take(self, kind: str, word: str) -> None:
        """A token of a key or a value."""
        here = self._around[-1] if self._around else None
        if here is not None and here.item is not None and word not in (",", "]"):
            deep = len(self._around) > _MOST_AROUND
            self._path = here.path if deep else self._note(f"{here.path}[{here.item}]")
        if word in ("[", "{"):
            self._around.append(_Around(self._path, 0 if word == "[" else None))
            self._key, self._path = [], ""
        elif word in ("]", "}"):
            self._path = self._around.pop().path if self._around else ""
        elif word == ",":
            self._key = []
            if here is not None and here.item is not None:
                here.item += 1
            else:
                self._path = ""
        elif word == "=":
            path = self._table if here is None else here.path
            for part in self._key:
                path = path if len(self._around) > _MOST_AROUND else self._note(_join(path, part))
            self._path = path
        elif not self._path:
            self._add(kind, word)

    def _note(self, path: str) -> str:
        self.lines.setdefault(path, self._line)
        return path


def _join(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part
