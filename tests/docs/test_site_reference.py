# SPDX-License-Identifier: Apache-2.0
"""The pages that are made of the sources have every flag, key, metric and public name. What is there is looked for in
the sources' text, not as the pages are made."""

import argparse
import ast
import re
from collections.abc import Iterator

import pytest

from docs.site import api, commands, keys, metrics
from gradlane import toml_schema
from gradlane.job import sync
from tests.deploy.commands import PARSERS, all_commands
from tests.support.paths import ROOT

AGENT, CONTROLLER = ROOT / "agent" / "src" / "gradlane", ROOT / "controller" / "src" / "gradlane_controller"
SCHEMAS = {"job": AGENT / "job" / "schema.py", "fabric": CONTROLLER / "network" / "fabric_schema.py"}
SOURCES = [path for root in (AGENT, CONTROLLER, ROOT / "switch" / "src") for path in sorted(root.rglob("*.py"))]
METRICS = metrics.page()
NAMES = set(re.findall(r"^\| `(\w+)` \|", METRICS, re.MULTILINE))


@pytest.mark.parametrize("program", sorted(PARSERS))
def test_every_command_and_flag_is_on_the_page(program: str) -> None:
    parts = re.split(r"^#+ ", commands.page(program), flags=re.MULTILINE)[1:]
    found = {part.split("\n")[0]: part for part in parts}
    for each in all_commands(program):
        rows = re.findall(r"^\| (?:`|<code>)(.+?)(?:`|</code>) \|", found.pop(" ".join(each.words)), re.MULTILINE)
        assert each.flags <= {word for row in rows for word in re.split(r"[ ,]+", row)}
    assert not found


def test_a_new_flag_is_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def parser() -> argparse.ArgumentParser:
        made = argparse.ArgumentParser("gradlane")
        made.add_subparsers().add_parser("new").add_argument("--more-of|it", help="100 %% of *it*", metavar="N")
        return made

    monkeypatch.setattr("gradlane.cli.make_parser", parser)
    page = commands.page("gradlane")
    assert "## gradlane new\n" in page
    assert "| <code>--more-of&#124;it N</code> | 100 % of \\*it\\* |" in page


def keys_in(source: str) -> set[str]:
    """The keys of the tables in a module of schemas."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Dict):
            found |= {key.value for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    words_of_schemas = {
        "description",
        "type",
        "items",
        "minItems",
        "maxItems",
        "anyOf",
        "oneOf",
        "enum",
        "default",
        "const",
    }
    return found - words_of_schemas - set(sync.SCHEMES)


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_every_key_is_on_the_page(kind: str) -> None:
    page = keys.page(kind)
    rows = re.findall(r"^\| (?:\*\*)?`(\w+)`", page, re.MULTILINE)
    heads = re.findall(r"^## \[+([\w.]+)\]+$", page, re.MULTILINE)
    wanted = keys_in(SCHEMAS[kind].read_text())
    assert len(wanted) > 30
    assert wanted - {*rows, *(part for head in heads for part in head.split("."))} == set()


def test_a_new_key_is_on_the_page_at_any_depth_with_what_it_takes() -> None:
    deep = toml_schema.table("Deep", {"deepest": toml_schema.integer("How | deep", 1, 2000, 7)}, ("deepest",))
    ways = [toml_schema.table("", {"way": {"const": name}, f"of_{name}": {"type": "string"}}) for name in ("a", "b")]
    schema = toml_schema.document(
        "A file",
        {
            "top": toml_schema.table("Top", {"one": toml_schema.boolean("Or not", False), "deep": deep}),
            "many": toml_schema.tables(toml_schema.table("", {"two": toml_schema.choice("", ("x", "y"))}), 3, 1),
            "ways": {"oneOf": ways},
        },
    )
    page = keys.page("job", schema)
    for line in (
        "| `one` | `true` or `false` | `false` | Or not |",
        "## [top.deep]",
        "| **`deepest`** | integer from 1 to 2,000 | `7` | How &#124; deep |",
        "## [[many]]\n\n1 to 3 of them.",
        '| `two` | `"x"`, `"y"` |  |  |',
        '### way = "b"',
        "| `of_b` | string |  |  |",
    ):
        assert line in page


def metrics_in(source: str) -> Iterator[str]:
    """The names of metrics that a source makes: of families, of instruments, in calls of `name(...)`, and whole
    ones."""
    if not re.search(r"prometheus_client|metric_families", source):
        return
    whole = r"gradlane_(?:switch|controller)_\w+[a-z]"
    by_name = {"_gauge", "_counter", "_info", "lost", "name", "Counter", "Gauge", "Histogram"}
    by_name |= {"CounterMetricFamily", "GaugeMetricFamily", "InfoMetricFamily"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and re.fullmatch(whole, str(node.value)):
            yield str(node.value)
        elif isinstance(node, ast.Call) and node.args:
            of = node.func
            called = isinstance(of, ast.Name) and of.id in by_name
            if called or (isinstance(of, ast.Attribute) and of.attr in ("gauge", "counter")):
                first = node.args[0]
                if isinstance(first, ast.Constant) and re.fullmatch(r"\w+", str(first.value)):
                    yield str(first.value)


def test_every_metric_of_the_sources_is_on_the_page() -> None:
    found = {name for path in SOURCES for name in metrics_in(path.read_text())}
    assert len(found) > 50
    bare = [re.sub("_(total|info)$", "", name) for name in NAMES]
    ends = [name.removesuffix("_total") for name in found]
    assert [it for it in ends if not any(re.search(rf"(^|_){it}$", name) for name in bare)] == []


def test_a_metric_that_the_page_has_not_would_be_found() -> None:
    source = "from gradlane.metric_families import Families\n_gauge('never_seen', 'It', (), [])\n"
    assert [*metrics_in(source)] == ["never_seen"]
    assert not any(name.endswith("never_seen") for name in NAMES)


def test_the_page_of_metrics_tells_types_and_labels() -> None:
    for line in (
        "| `gradlane_datagrams_refused_total` | counter | `job`, `reason` |",
        "| `gradlane_agent_info` | info | `version`, `addresses` |",
        "| `gradlane_switch_queue_depth_bytes` | gauge | `port`, `queue` |",
        "| `gradlane_controller_http_request_seconds` | histogram | `route` |",
        "| `gradlane_controller_switch_up_to_date` | gauge | `switch` |",
    ):
        assert line in METRICS


@pytest.mark.parametrize("module", sorted(api.MODULES))
def test_every_public_name_is_on_the_page_of_its_module(module: str) -> None:
    source = api.file_of(module).read_text()
    named = re.search(r"^__all__ = \[(.*?)\]", source, re.MULTILINE | re.DOTALL)
    names = re.findall(r'"(\w+)"', named[1]) if named else re.findall(r"^(?:def|class) ([a-zA-Z]\w*)", source, re.M)
    assert names
    assert re.findall(r"^::: (\S+)$", api.page(module), re.MULTILINE) == [f"{module}.{name}" for name in names]


def test_a_new_public_name_is_on_the_page() -> None:
    page = api.page("gradlane.ray", '"""It.\n\nrun(1)\n"""\ndef run(n): ...\ndef _not(): ...\nclass Late: ...\n')
    assert "```python\nrun(1)\n```" in page
    assert re.findall(r"^::: (\S+)$", page, re.MULTILINE) == ["gradlane.ray.run", "gradlane.ray.Late"]


def test_every_module_that_the_guides_import_has_a_page() -> None:
    texts = [path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))]
    imported = {name for text in texts for name in re.findall(r"^(?:import|from) (gradlane[\w.]*)", text, re.MULTILINE)}
    assert len(imported) > 5
    assert imported - set(api.MODULES) == set()
