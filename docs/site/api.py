# SPDX-License-Identifier: Apache-2.0
"""The reference of the Python interfaces: which names each module makes public, for mkdocstrings to show.

Sources are read and not run, so no framework has to be there.
"""

import ast
import textwrap
from pathlib import Path

from docs.site.pages import ROOT

SOURCES = ROOT / "agent" / "src"
# Which page tells how it is used.
MODULES = {
    "gradlane": "../python.md",
    "gradlane.torch": "../pytorch.md",
    "gradlane.tensorflow": "../tensorflow.md",
    "gradlane.keras": "../tensorflow.md",
    "gradlane.jax": "../jax.md",
    "gradlane.mxnet": "../mxnet.md",
    "gradlane.ray": "../ray.md",
    "gradlane.torchft": "../trainers.md",
    "gradlane.sync": "../sync/README.md",
}


def file_of(module: str) -> Path:
    """Where a module's source is."""
    path = SOURCES.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def public_names(tree: ast.Module) -> list[str]:
    """What `__all__` has; without one, the functions and classes that do not begin with an underscore."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(it, ast.Name) and it.id == "__all__" for it in node.targets):
            return list(ast.literal_eval(node.value))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def page(module: str, source: str | None = None) -> str:
    """The page of a module, as Markdown with the directives of mkdocstrings."""
    tree = ast.parse(source if source is not None else file_of(module).read_text())
    first, *others = (ast.get_docstring(tree) or "").split("\n\n")
    lines = [f"# {module}", "", first, "", f"[How it is used]({MODULES[module]})", ""]
    lines += [_example(others), ""] if others else []
    for name in public_names(tree):
        lines += [f"::: {module}.{name}", ""]
    return "\n".join(lines)


def _example(paragraphs: list[str]) -> str:
    """What follows a module's first paragraph: a program, or text."""
    text = textwrap.dedent("\n\n".join(paragraphs))
    try:
        ast.parse(text)
    except SyntaxError:
        return text
    return f"```python\n{text}\n```"
