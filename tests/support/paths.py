# SPDX-License-Identifier: Apache-2.0
"""Where in the repository things are that tests read."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
P4_SOURCE = ROOT / "p4src"
# The project's own program.
PIPELINE = P4_SOURCE / "build" / "v1model"
PROGRAM, P4INFO = PIPELINE / "gradlane.json", PIPELINE / "gradlane.p4info.txtpb"
# The same with sums.
SUM_PROGRAM, SUM_P4INFO = PIPELINE / "gradlane-aggregation.json", PIPELINE / "gradlane-aggregation.p4info.txtpb"
# Programs that the tests of the switch use, and the compiled corpus of the differential tests.
SWITCH_PROGRAMS = ROOT / "tests" / "gradlane_switch" / "programs"
CORPUS = ROOT / "tests" / "differential" / "build"
