# SPDX-License-Identifier: Apache-2.0
"""A Markdown page as what its reader does: files to write, commands to type in one shell, and what these print.

| block | is |
|---|---|
| ```sh | commands. Each succeeds, and together they print what the ```text block that follows shows, or nothing |
| ```text | what the commands before it print |
| any other | a file, whose name ends the line before: "Write `train.py`:" |
| after `<!-- not run: WHY -->` | not followed |
| after `<!-- with PROGRAM -->`, `<!-- without PROGRAM -->` | followed only where the program is, or is not, on PATH |

In what is shown, words and signs are as they are printed; blanks and empty lines do not count, and

- `...` stands for any text of a line, and a line of `...` for any lines;
- a 0 stands for 0;
- a number of one digit, or one that touches a letter or is a part of an address or a time, stands for itself;
- any other number stands for any number but 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (not run|with|without):? (.+?) -->\n\Z", re.DOTALL)
_FILE = re.compile(r"`([\w.-]+)`:\n\n?\Z")
_NUMBER = re.compile(r"(?<![\w.:/-])\d+(?:\.\d+)?(?![\w:/]|\.\d)")
_ZERO = r"0+(?:\.0+)?"


class PageError(Exception):
    """The page can't be followed as it stands."""


@dataclass(frozen=True)
class Block:
    """`shown`: what its commands print. `file`: where its text goes, if it is no commands. `when`: "not run", "with" or
    "without" and `why` of it, or empty."""

    line: int
    text: str
    shown: str = ""
    file: str = ""
    when: str = ""
    why: str = ""


def blocks(page: str) -> list[Block]:
    """What there is to do, in its order; a PageError names the line of what nobody could follow."""
    found: list[Block] = []
    fences = list(_FENCE.finditer(page))
    if page.count("```") != 2 * len(fences):
        raise PageError("a fence is not closed")
    for number, (match, before) in enumerate(_with_text_before(page, fences)):
        language, text = match[1], match[2]
        line = page.count("\n", 0, match.start()) + 1
        comment = _COMMENT.search(before)
        when, why = (comment[1], " ".join(comment[2].split())) if comment else ("", "")
        if language == "sh":
            following = fences[number + 1] if number + 1 < len(fences) else None
            shown = following[2] if following is not None and following[1] == "text" else ""
            found.append(Block(line, text, shown=shown, when=when, why=why))
        elif language == "text":
            if number == 0 or fences[number - 1][1] != "sh":
                raise PageError(f"line {line}: no commands print this")
        elif when == "not run":
            found.append(Block(line, text, when=when, why=why))
        else:
            name = _FILE.search(before[: comment.start()] if comment else before)
            if name is None:
                raise PageError(f"line {line}: the line before names no file, as in: Write `train.py`:")
            found.append(Block(line, text, file=name[1], when=when, why=why))
    return found


def _with_text_before(page: str, fences: list[re.Match[str]]) -> Iterator[tuple[re.Match[str], str]]:
    end = 0
    for match in fences:
        yield match, page[end : match.start()]
        end = match.end()


def differs(shown: str, printed: str) -> str:
    """In what the one is not the other, or nothing."""
    wanted, got = _lines(shown), _lines(printed)
    pattern = "".join(r"(?:.*\n)*?" if line == "..." else _pattern(line) + r"\n" for line in wanted)
    if re.fullmatch(pattern, "".join(f"{line}\n" for line in got)):
        return ""
    lost = [line for line in wanted if line != "..." and not any(re.fullmatch(_pattern(line), it) for it in got)]
    parts = ["the page shows:", *wanted, "it printed:", *got, "the page alone has:", *lost]
    return "\n  ".join(parts)


def _lines(text: str) -> list[str]:
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [" ".join(line.split()) for line in plain.splitlines() if line.strip()]


def _pattern(line: str) -> str:
    """What is printed for a line that is shown."""
    return r"[^\n]*".join(_numbers(part) for part in line.split("..."))


def _numbers(text: str) -> str:
    made, end = "", 0
    for match in _NUMBER.finditer(text):
        made += re.escape(text[end : match.start()]) + _number(match[0])
        end = match.end()
    return made + re.escape(text[end:])


def _number(shown: str) -> str:
    if re.fullmatch(_ZERO, shown):
        return _ZERO
    return shown if len(shown) == 1 else rf"(?!{_ZERO}(?![\d.]))\d+(?:\.\d+)?"
