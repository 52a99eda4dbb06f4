# SPDX-License-Identifier: Apache-2.0
"""The live state as a document, and its alarms: from plans, statuses and counters to what a page shows."""

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from gradlane import job
from gradlane_controller.alarms import Alarms
from gradlane_controller.desired import pipeline
from gradlane_controller.desired.plan import Plan, make_plan
from gradlane_controller.live import Paths, snapshot
from gradlane_controller.network import fabric_file
from tests.gradlane_controller.texts import job_text, leafspine_text, summed_text

PROGRAMS = pipeline.Programs(pipeline.DEFAULT_FOLDER)
NOW = datetime.now(timezone.utc)


def plan_of(*texts: str, down: frozenset[tuple[str, int]] = frozenset()) -> Plan:
    text = leafspine_text().replace('address = "127', 'aggregation = true\naddress = "127')
    jobs = [job.parse(each, f"j{n}.toml") for n, each in enumerate(texts)]
    return make_plan(PROGRAMS, fabric_file.parse(text, "f.toml"), {it.name: it for it in jobs}, down=down)


def switch(name: str = "leaf1", **other: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "address": "127.0.0.1:9559", "connected": True, "primary": True}
    row |= {"ready": True, "problem": "", "mended": {"times": 0, "entities": 0}, "entries": {"a": 3, "b": 4}}
    return row | other


def status(*switches: dict[str, Any], jobs: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    controller = {"name": "c1", "leader": True, "number": 7}
    return {"ready": True, "controller": controller, "switches": list(switches), "jobs": list(jobs)}


def job_row(name: str, sums: Any = None) -> dict[str, Any]:
    return {"name": name, "id": 1, "index": 1, "workers": ["h1"], "servers": [], "slots": [0, 1], "sums": sums}


def link(up: bool = True, **other: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"ends": ["leaf1:5", "spine1:1"], "up": up, "deaf": [] if up else ["spine1:1"]}
    return row | {"since": NOW.isoformat(), "load": [7.0, None], "sent": [[1e6] * 8, None]} | other


def links(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"checked": True, "links": list(rows)}


def hosts() -> list[dict[str, Any]]:
    return [{"name": f"h{n}", "sent": [float(n)] * 8 if n < 4 else None} for n in range(1, 5)]


def ends(*pairs: str) -> list[tuple[str, ...]]:
    return sorted(tuple(pair.split(" - ")) for pair in pairs)


ALL = ends("leaf1:5 - spine1:1", "leaf2:5 - spine1:2", "leaf1:6 - spine2:1", "leaf2:6 - spine2:2")


def test_gradients_of_a_job_take_every_shortest_path_and_leave_what_is_down() -> None:
    plan = plan_of(job_text("across", 1, hosts=(1, 3)), job_text("local", 2, hosts=(1, 2), base=4096))
    whole = Paths(plan, frozenset())
    assert [tuple(it) for it in whole.of("across")] == ALL
    assert whole.of("local") == []
    assert whole.trees("across") == []
    less = Paths(plan, frozenset({("leaf1", 5), ("spine1", 1)}))
    assert (
        [tuple(it) for it in less.of("across")]
        == ALL[1:2] + ALL[3:]
        == ends("leaf1:6 - spine2:1", "leaf2:6 - spine2:2")
    )


def test_a_summed_job_has_its_trees_with_their_buckets_and_links() -> None:
    trees = Paths(plan_of(summed_text(1, hosts=(1, 3))), frozenset()).trees("j1")
    assert {it["root"]: (it["buckets"], sorted(map(tuple, it["links"]))) for it in trees} == {
        "spine1": (8, ends("leaf1:5 - spine1:1", "leaf2:5 - spine1:2")),
        "spine2": (8, ends("leaf1:6 - spine2:1", "leaf2:6 - spine2:2")),
    }
    down = frozenset({("leaf1", 5), ("spine1", 1)})
    (tree,) = Paths(plan_of(summed_text(1, hosts=(1, 3)), down=down), down).trees("j1")
    assert (tree["root"], tree["buckets"]) == ("spine2", 16)


def counters(*decisions: tuple[str | None, str, int, int]) -> Mapping[str, Any]:
    rows = [dict(zip(("job", "reason", "packets", "bytes"), row, strict=True)) for row in decisions]
    cells = [(1, 16, 2, 200), (1, 16, 1, 100), (0, 240, 5, 500)]
    keys = ("layer", "magnitude", "packets", "bytes")
    return {"decisions": rows, "drop_map": [dict(zip(keys, row, strict=True)) for row in cells]}


def test_what_is_known_is_told_and_the_rest_is_not_there() -> None:
    plan = plan_of(job_text("demo", 1, hosts=(1, 3)))
    paths = Paths(plan, frozenset())
    said = snapshot(plan, status(switch(), jobs=(job_row("demo"),)), links(link()), hosts(), None, paths, [])
    assert set(said) == {"at", "controller", "switches", "links", "hosts", "jobs", "alarms"}
    assert said["switches"] == [{"name": "leaf1", "state": "ready", "problem": "", "entries": 7, "mended": 0}]
    assert said["links"][0]["load"] == [[1e6] * 8, None]
    assert {it["name"]: it["load"] for it in said["hosts"]} == {
        "h1": [1.0] * 8,
        "h2": [2.0] * 8,
        "h3": [3.0] * 8,
        "h4": None,
    }
    assert set(said["jobs"][0]) == {"name", "id", "workers", "servers", "sums", "trees", "path_links"}
    assert said["at"].endswith("Z")

    counted = counters(("demo", "dropped_red", 1, 10), ("demo", "dropped_red", 2, 20), (None, "forwarded", 9, 90))
    said = snapshot(plan, status(switch(), jobs=(job_row("demo"),)), links(), hosts(), counted, paths, [])
    assert said["jobs"][0]["decisions"] == {"dropped_red": {"packets": 3, "bytes": 30}}
    assert said["drop_map"] == said["jobs"][0]["drop_map"] == [[0, 240, 5, 500], [1, 16, 3, 300]]
    two = plan_of(job_text("demo", 1, hosts=(1, 3)), job_text("other", 2, hosts=(2, 4), base=4096))
    rows = (job_row("demo"), job_row("other"))
    said = snapshot(two, status(switch(), jobs=rows), links(), hosts(), counted, Paths(two, frozenset()), [])
    assert said["jobs"][1]["decisions"] == {}
    assert all("drop_map" not in it for it in said["jobs"])  # switches do not tell whose these were


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({}, "ready"),
        ({"ready": False}, "converging"),
        ({"ready": False, "primary": False}, "standby"),
        ({"ready": False, "connected": False, "primary": False}, "away"),
        ({"drained": True}, "drained"),
    ],
)
def test_a_switch_has_one_state(row: dict[str, Any], state: str) -> None:
    plan = plan_of()
    said = snapshot(plan, status(switch(**row)), links(), hosts(), None, Paths(plan, frozenset()), [])
    assert said["switches"][0]["state"] == state


def violation(host: str | None = "h3", age: float = 0.0, **other: Any) -> dict[str, Any]:
    at = (datetime.now(timezone.utc) - timedelta(seconds=age)).isoformat()
    row = {"switch": "leaf2", "port": 1, "host": host, "source": "10.0.1.2", "job": "demo", "job_id": 1, "times": 1}
    return row | {"last": at} | other


def test_nothing_wrong_is_no_alarm() -> None:
    assert Alarms().look(status(switch(), jobs=(job_row("demo"),)), links(link()), [violation(age=301)]) == []


@pytest.mark.parametrize(
    ("what", "key", "severity", "subject", "culprit", "remedy"),
    [
        ({"links": [link(up=False)]}, "link:leaf1:5-spine1:1", "critical", "leaf1:5 - spine1:1", "nothing arrives at "
         "spine1:1", "cable"),
        ({"switches": [switch(connected=False, ready=False, primary=False, problem="can't be reached")]},
         "switch:leaf1", "critical", "leaf1", "leaf1: can't be reached", "127.0.0.1:9559"),
        ({"switches": [switch(ready=False, problem="is being converged")]}, "switch:leaf1", "warning", "leaf1",
         "leaf1 is being converged", "log"),
        ({"violating": ["h3"]}, "guard:leaf2:1", "warning", "leaf2:1", "leaf2:1 (host h3)", "host h3"),
        ({"violating": [None]}, "guard:leaf2:1", "warning", "leaf2:1", "no known host", "forges"),
        ({"jobs": [job_row("demo", {"reason": "no tree"})]}, "sums:demo", "info", "demo", "no tree", "mend"),
    ],
)  # fmt: skip
def test_an_alarm_names_the_culprit_and_the_remedy(
    what: dict[str, Any], key: str, severity: str, subject: str, culprit: str, remedy: str
) -> None:
    given = status(*what.get("switches", ()), jobs=tuple(what.get("jobs", ())))
    violations = [violation(host) for host in what.get("violating", ())]  # recent ones when the test runs
    (found,) = Alarms().look(given, links(*what.get("links", ())), violations)
    assert (found["id"], found["severity"], found["subject"]) == (key, severity, subject)
    assert culprit in found["text"]
    assert remedy in found["remedy"]


def test_an_alarm_lasts_since_it_was_first_seen_and_the_worst_comes_first() -> None:
    it = Alarms()
    wrong = status(switch(ready=False, problem="is being converged"))
    (first,) = it.look(wrong, links(), [])
    both = it.look(wrong, links(link(up=False)), [])
    assert [each["severity"] for each in both] == ["critical", "warning"]
    assert both[1] == first
    assert datetime.fromisoformat(both[0]["since"]) == NOW.replace(microsecond=NOW.microsecond // 1000 * 1000)
    assert it.look(status(switch()), links(), []) == []


def test_drift_is_an_alarm_when_it_repeats_and_not_for_what_was_before() -> None:
    it = Alarms()

    def look(times: int) -> list[dict[str, Any]]:
        return it.look(status(switch(mended={"times": times, "entities": 9})), links(), [])

    assert look(5) == []
    assert look(6) == []
    (found,) = look(7)
    assert (found["id"], found["severity"]) == ("drift:leaf1", "warning")
    assert "2 times" in found["text"]
    assert "127.0.0.1:9559" in found["remedy"]
    assert look(0) == []  # the controller's count has begun anew
