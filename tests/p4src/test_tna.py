# SPDX-License-Identifier: Apache-2.0
"""p4src/tna is the same design as p4src/v1model: the same files, and the same tables for a controller.

What its controls decide is tested with those of v1model, see tests/p4src/tna_on_v1model.
"""

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from finsy import P4Schema
from finsy.proto import p4i
from google.protobuf import text_format

from tests.support.paths import P4_SOURCE, P4INFO, ROOT, SUM_P4INFO

# By table: entries on Tofino, where that is not what v1model has.
SMALLER = {"senders": 1024, "job_shares": 1024}
TRANSLATION = ROOT / "tests" / "p4src" / "tna_on_v1model"


def load(path: Path) -> ModuleType:
    """A script that is no part of a package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_tna = load(P4_SOURCE / "build_tna.py")
translate = load(TRANSLATION / "translate.py")
BOTH = pytest.mark.parametrize(
    ("of_v1model", "of_tofino"),
    [(P4INFO, translate.P4INFO), (SUM_P4INFO, translate.SUM_P4INFO)],
    ids=["ordinary", "aggregation"],
)
EACH_PROFILE = pytest.mark.parametrize("profile", build_tna.PROFILES, ids=lambda profile: profile.name)


def tables(p4info: Path) -> dict[str, Any]:
    """What a controller has to know of the tables, by name."""
    schema = P4Schema(p4info)
    return {
        table.alias: (
            table.id,
            table.size,
            [(field.id, field.alias, field.bitwidth, field.match_type) for field in table.match_fields],
            {
                ref.alias: (ref.id, [(param.id, param.name, param.bitwidth) for param in ref.params])
                for ref in table.actions
            },
        )
        for table in schema.tables
    }


def annotations(p4info: Path) -> dict[str, Any]:
    """What controllers may write, by the names of tables and actions."""
    info = text_format.Parse(p4info.read_text(), p4i.P4Info())
    found: dict[str, Any] = {it.preamble.alias: list(it.preamble.annotations) for it in (*info.tables, *info.actions)}
    found |= {
        f"{it.preamble.alias}.{param.name}": list(param.annotations) for it in info.actions for param in it.params
    }
    return {name: declared for name, declared in found.items() if declared}


OF_LARGE_JOBS = "stand_for"  # an action of v1model's alone: Tofino sums jobs of up to 32 workers


@BOTH
def test_both_have_the_same_restrictions_and_references(of_v1model: Path, of_tofino: Path) -> None:
    expected = annotations(of_v1model)
    assert len(expected) > 15
    assert (expected.pop(OF_LARGE_JOBS, None) is not None) == (of_v1model == SUM_P4INFO)
    assert annotations(of_tofino) == expected


def test_both_folders_have_the_same_files() -> None:
    """But for slots.p4: what v1model keeps in a few lines takes Tofino's registers a file."""
    of_v1model = {p.name for p in (P4_SOURCE / "v1model").iterdir()}
    assert {p.name for p in (P4_SOURCE / "tna").iterdir()} == {*of_v1model, "slots.p4"}


@BOTH
def test_both_have_the_same_tables_keys_actions_and_parameters_by_name_and_id(
    of_v1model: Path, of_tofino: Path
) -> None:
    expected = tables(of_v1model)
    assert len(expected) > 10
    for name, size in SMALLER.items():
        number, more, *rest = expected[name]
        assert more > size
        expected[name] = (number, size, *rest)
    if of_v1model == SUM_P4INFO:
        del expected["subtrees"][-1][OF_LARGE_JOBS]
    assert tables(of_tofino) == expected


def test_the_translation_was_made_from_these_sources() -> None:
    stale = f"sources changed: run `python3 {TRANSLATION.relative_to(ROOT)}/translate.py`"
    assert translate.DIGEST.read_text() == translate.sources_digest(), stale


def test_a_rule_of_the_translation_that_has_nothing_to_do_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"arch\.p4: nothing matches 'RED = 3'"):
        translate.translate("arch.p4", "enum bit<8> Color { GREEN = 0 }")


def test_an_extern_that_no_rule_translates_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rule translates Mirror"):
        translate.translate("admission.p4", "Mirror() mirror;")


@EACH_PROFILE
def test_it_has_no_type_errors_for_tofino(profile: Any) -> None:
    compiler, backend = shutil.which("p4c-bm2-ss"), shutil.which("p4c-barefoot")
    if compiler is None or backend is None:
        pytest.skip("p4c-bm2-ss and p4c-barefoot (with tna.p4) are not on PATH: types of p4src/tna were not checked")
    include = Path(backend).with_name("p4include")
    number = {"tna": 1, "t2na": 2}[profile.arch]
    command = [compiler, f"-D__TARGET_TOFINO__={number}", *profile.macros, "-I", str(include)]
    command += ["-o", "/dev/null", "tna/gradlane.p4"]
    result = subprocess.run(command, cwd=P4_SOURCE, capture_output=True, text=True, check=False)
    # The front end has gone through when BMv2's back end finds that the package is none of its own.
    errors = re.findall(r"error: (.*)", result.stderr)
    assert errors == ["package Switch: main package  match the expected model"], result.stderr


@EACH_PROFILE
def test_the_report_belongs_to_these_sources_and_they_fit(profile: Any) -> None:
    assert build_tna.DIGEST.read_text() == build_tna.sources_digest(), "sources changed: run `make p4-tna`"
    report = profile.report_file.read_text()
    found = re.match(rf"{profile.name}: (\d+) stages", report)
    assert found, report
    assert 0 < int(found[1]) <= profile.stages
