# SPDX-License-Identifier: Apache-2.0
"""The controller against a small simulated fabric."""

import json
from pathlib import Path

import pytest

from bench.controller import scale
from bench.controller.large_fabric import LargeFabric


def test_a_small_fabric(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "_IDLE_SECONDS", 0.1)
    assert scale.main(["--sizes", "3x2x24x3", "--json", "--out", str(tmp_path)]) == 0
    [found] = json.loads(capsys.readouterr().out)["runs"]
    assert (found["switches"], found["hosts"], found["jobs"]) == (5, 24, 3)
    first, again, added = (found[name] for name in ("first", "again", "job_added"))
    assert (first["switches"], added["switches"]) == (5, 5)
    assert first["updates"] + added["updates"] >= found["entries"] > 5 * 24, "a route to each host, at each switch"
    assert (again["updates"], again["switches"]) == (0, 0)
    assert len(found["links_down"]) == 3
    for down in found["links_down"]:
        assert 0 < down["updates"] < first["updates"]
        assert min(down["known"], down["seconds"]) > 0
    assert found["violations"] == []


def test_a_fabric_has_every_link_and_its_hosts_at_all_leaves() -> None:
    fabric = LargeFabric(3, 2, 8)
    ends = [end for link in fabric.links for end in link]
    hosts = [(f"leaf{host.leaf}", host.port) for host in fabric.hosts]
    assert len({*ends, *hosts}) == 2 * 3 * 2 + 8
    assert [sum(name == f"leaf{n}" for name, _ in hosts) for n in (1, 2, 3)] == [3, 3, 2]
    assert {(one[0], other[0]) for one, other in fabric.links} == {
        (f"leaf{n}", f"spine{m}") for n in (1, 2, 3) for m in (1, 2)
    }


@pytest.mark.parametrize("text", ["3x2x24", "3x2x24x4", "0x2x24x1", "axbxcxd"])
def test_a_size_that_can_not_be_is_named(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        scale.main(["--sizes", text])
    assert text in capsys.readouterr().err
