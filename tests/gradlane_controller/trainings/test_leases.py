# SPDX-License-Identifier: Apache-2.0
"""When a job without a job file is over: against a model that only knows when each host was last heard."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane_controller.trainings.leases import Leases

HOSTS = ("h1", "h2")
GRACE = 10.0


def followed() -> Leases:
    it = Leases(GRACE)
    it.follow({"j": HOSTS})
    return it


def looks(it: Leases, seconds: int) -> int | None:
    """After how many looks, a second each, the job is over: the first one may come at once after a report."""
    return next((number for number in range(1, seconds + 1) if it.look(1.0) == ["j"]), None)


def test_a_job_that_nobody_reports_stays_for_the_grace_time() -> None:
    assert looks(followed(), 30) == 12
    it = followed()
    assert looks(it, 9) is None
    it.reported("h2", ["j"])
    assert looks(it, 30) == 12


def test_a_job_that_all_hosts_have_left_is_over_at_once() -> None:
    it = followed()
    for host in HOSTS:
        it.reported(host, ["j"])
    it.reported("h1", [])
    assert it.look(1.0) == []
    it.reported("h2", [])
    assert it.look(1.0) == ["j"]


def test_a_host_that_has_not_begun_has_not_left() -> None:
    it = followed()
    for host in HOSTS:
        it.reported(host, [])
    assert it.look(1.0) == []
    it.reported("h1", ["j"])
    it.reported("h1", [])
    assert it.look(1.0) == []


def test_a_rank_that_is_about_to_come_back_keeps_the_job() -> None:
    it = followed()
    for host in HOSTS:
        it.reported(host, ["j"])
        it.reported(host, [])
    it.given("j", "h1")
    assert looks(it, 30) == 12


def test_who_was_away_counts_no_time() -> None:
    it = followed()
    assert it.look(1.0) == []
    assert it.look(1e6) == []
    assert it.look(1.0) == []
    it.clear()  # another one led
    it.follow({"j": HOSTS})
    assert looks(it, 30) == 12


def test_other_hosts_and_other_jobs_say_nothing_of_it() -> None:
    it = followed()
    for _ in range(20):
        it.reported("h3", ["j"])
        it.reported("h1", ["other"])
        if it.look(1.0):
            return
    raise AssertionError("it was kept by who has no part in it")


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["report", "leave", "give", "look", "away"]), st.sampled_from(HOSTS))))
def test_it_is_over_when_all_have_left_or_none_was_heard_for_long_and_never_else(steps: list[tuple[str, str]]) -> None:
    it = followed()
    silent, state = -1.0, dict.fromkeys(HOSTS, "new")
    for what, host in steps * 3:
        if what == "report":
            it.reported(host, ["j"])
            silent, state[host] = -1.0, "here"
        elif what == "leave":
            it.reported(host, [])
            state[host] = "left" if state[host] == "here" else state[host]
        elif what == "give":
            it.given("j", host)
            silent, state[host] = -1.0, "new"
        elif what == "away":
            it.clear()
            it.follow({"j": HOSTS})
            silent, state = -1.0, dict.fromkeys(HOSTS, "new")
        else:
            silent += 1.0
            over = silent > GRACE or set(state.values()) == {"left"}
            assert it.look(1.0) == (["j"] if over else [])
