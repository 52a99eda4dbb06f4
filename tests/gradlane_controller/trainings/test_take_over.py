# SPDX-License-Identifier: Apache-2.0
"""Jobs without a job file outlive the controller that made them, and ranks that wait outlive the one they asked."""

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gradlane.client import training
from gradlane.client.training import Controllers
from gradlane.controller_client import Client
from tests.gradlane_controller.controller_process import PATIENCE, Running
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text
from tests.support.agents import until

GRACE = 5.0


def answers(it: Running) -> bool:
    try:
        return it.ask("GET", "/status")[0] == 200
    except OSError:
        return False


def test_ranks_find_the_next_leader_and_their_job_is_still_theirs(
    fake_switch: FakeSwitch, run_controller: Callable[..., Running], tmp_path: Path
) -> None:
    more = ("--store", f"sqlite:///{tmp_path / 'shared.db'}", "--token-file", str(tmp_path / "fabric.db.token"))
    more += ("--job-grace", str(GRACE))
    first = run_controller(fabric_text(fake_switch.address), more=more)
    first.wait_for("ready:")
    second = run_controller(fabric_text(fake_switch.address), more=more)
    token = (tmp_path / "fabric.db.token").read_text().strip()
    until(lambda: answers(second))
    controllers = Controllers(tuple(Client(it.http, token) for it in (first, second)))

    def join(rank: int, name: str) -> Any:
        wanted = {"name": name, "rank": rank, "workers": 2, "processes": 1, "address": f"10.0.{rank + 1}.2"}
        return training.ask(controllers, wanted)

    with ThreadPoolExecutor(4) as pool:
        made = [it.result(PATIENCE) for it in [pool.submit(join, rank, "before") for rank in (0, 1)]]
        assert made[0].text == made[1].text
        waits = pool.submit(join, 0, "across")
        time.sleep(1.0)  # until it has asked the first one, most likely; the test holds in any case
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(PATIENCE)
        across = [pool.submit(join, 1, "across").result(PATIENCE), waits.result(PATIENCE)]
        assert across[0].text == across[1].text
        assert join(1, "before").text == made[1].text  # of a rank that has been restarted
    jobs = {it["name"]: it for it in second.ask("GET", "/jobs")[1]["items"]}
    assert set(jobs) == {"before", "across"}
    # No agent has ever reported them: they are collected by the one that leads now, and nothing is left.
    until(lambda: not second.ask("GET", "/jobs")[1]["items"])
    assert second.end() == 0


def test_who_stands_by_says_so_and_removes_nothing(
    fake_switch: FakeSwitch, run_controller: Callable[..., Running], tmp_path: Path
) -> None:
    more = ("--store", f"sqlite:///{tmp_path / 'shared.db'}", "--token-file", str(tmp_path / "fabric.db.token"))
    first = run_controller(fabric_text(fake_switch.address), more=more)
    first.wait_for("ready:")
    second = run_controller(fabric_text(fake_switch.address), more=(*more, "--job-grace", "0"))
    until(lambda: answers(second))
    token = (tmp_path / "fabric.db.token").read_text().strip()
    wanted = {"name": "j", "rank": 0, "workers": 1, "processes": 1, "address": "10.0.1.2"}
    assert training.ask(Controllers((Client(first.http, token),)), wanted).name == "j"
    for path, method in (("/trainings", "POST"), ("/agents/h1", "PUT")):
        body = '{"name": "n", "version": "1", "addresses": [], "jobs": []}'
        if method == "POST":
            body = '{"name": "x", "rank": 0, "workers": 1, "address": "10.0.1.2"}'
        status, answer = second.ask(method, path, body, Content_Type="application/json")
        assert (status, "stands by" in answer["error"]) == (503, True)
    time.sleep(3.0)
    assert [it["name"] for it in first.ask("GET", "/jobs")[1]["items"]] == ["j"]
    assert not [line for line in second.said if "removed" in line]  # nor has it tried
