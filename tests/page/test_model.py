# SPDX-License-Identifier: Apache-2.0
"""The parts of the page that need no browser have tests of their own, which node runs."""

import re
import subprocess

import pytest

from tests.page.test_build import SOURCE, build


def test_what_the_page_computes() -> None:
    found = build.npm()
    if found is None or not (SOURCE / "node_modules").is_dir():
        pytest.skip("no controller/page/node_modules (`make page` installs it): the page's own tests did not run")
    command, environment = found
    version = subprocess.run(["node", "--version"], env=environment, capture_output=True, text=True, check=True).stdout
    if [int(part) for part in version.lstrip("v").split(".")[:2]] < [22, 18]:
        pytest.skip(f"node {version.strip()} does not run TypeScript; 22.18 does: the page's own tests did not run")
    ran = subprocess.run(
        [*command, "test"], cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counted = re.search(r"^. pass (\d+)$", ran.stdout, re.MULTILINE)
    assert counted is not None, ran.stdout
    assert int(counted[1]) > 0
