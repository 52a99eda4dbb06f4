# SPDX-License-Identifier: Apache-2.0
"""The table of docs/agent.md has what the agent can say, and nothing else."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.paths import DOCS, ROOT

SOURCES = ROOT / "agent" / "src" / "gradlane"
PAGE = (DOCS / "agent.md").read_text()
ROWS = re.findall(r"^\| (`.+?) \|", PAGE[PAGE.index("## Troubleshooting") :], re.MULTILINE)
MESSAGES = [message for row in ROWS for message in re.findall(r"`([^`]+)`", row)]

# What programs are told of their own mistakes is in the Python pages; the doctor says how to fix what it finds.
CLIENT = ("connection", "link", "tensor", "command", "collectives", "gradient", "communicator", "handle")
NOT_THE_AGENT = ("torch", "commands", "doctor", *(f"client/{name}.py" for name in CLIENT))
SAYING = {"AgentError", "Refused", "fail", "failed", "_failed", "_refuse", "refused"}
LOGGING = {"warning", "error", "exception"}
# Here reasons are put together before they are said.
REASONS = ("handshake.py", "security.py", "liveness.py", "listener.py")
# These hand on what another part says, or go to a program that the other side of a connection is not.
PASSED_ON = {
    "job {}: rank {} failed: {}",
    "the agent at {} {}",
    "the configuration was not reloaded: {}",
    "the job is over",
    "a call from {} failed: {}",
    "control connection of {}: {}",
    "says that this agent {}",
    "{} is not a message of an agent",
    "/proc/self/fd/{}",
    "WRONG_VERSION_NUMBER",
    "TLS was broken off",
}
HOLE = "{}"


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(SOURCES.rglob("*.py"))}


def text_of(node: ast.AST) -> str | None:
    """A string as it is written, with a hole for each value."""
    if isinstance(node, ast.Constant):
        return re.sub(r"%[-.\w]*[a-z]", HOLE, node.value) if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else HOLE for part in node.values)
    return None


def docstrings(tree: ast.AST) -> set[int]:
    """Strings that nobody is told, or that are parts of others."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, kinds)]
    joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    parts = {id(part) for node in joined for part in ast.walk(node) if part is not node}
    return parts | {id(body[0].value) for body in bodies if isinstance(body[0], ast.Expr)}


def said() -> Iterator[str]:
    """What the agent's modules raise, log or give as a reason."""
    for path, tree in trees().items():
        if any(path.is_relative_to(SOURCES / part) for part in NOT_THE_AGENT):
            continue
        not_said = docstrings(tree) if path.name in REASONS else set[int]()
        for node in ast.walk(tree):
            text = None
            if isinstance(node, ast.Call) and node.args:
                of = node.func
                name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
                logs = isinstance(of, ast.Attribute) and getattr(of.value, "id", "") == "log" and name in LOGGING
                text = text_of(node.args[0]) if logs or name in SAYING else None
            elif path.name in REASONS and id(node) not in not_said:
                text = text_of(node)
            if text and len(re.findall(r"[a-zA-Z']{2,}", text)) >= 3 and text not in PASSED_ON:
                yield text


def pieces(message: str) -> list[str]:
    """What a message of the table has between its values."""
    return [piece.strip() for piece in re.split(r"\.\.\.|\b\d+\b|\b[A-Z]{3,}:", message) if len(piece.strip()) > 2]


def tells(message: str, text: str) -> bool:
    """Whether the table's message is (a part of) that text."""
    at = 0
    for piece in pieces(message):
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return bool(pieces(message))


def test_what_the_agent_says_is_in_the_table() -> None:
    unexplained = [text for text in sorted(set(said())) if not any(tells(message, text) for message in MESSAGES)]
    assert not unexplained, "docs/agent.md does not explain these"


def test_what_is_in_the_table_is_said() -> None:
    everything = {text for tree in trees().values() for node in ast.walk(tree) if (text := text_of(node)) is not None}
    unsaid = [piece for message in MESSAGES for piece in pieces(message) if not any(piece in it for it in everything)]
    assert not unsaid, "nothing says these"
