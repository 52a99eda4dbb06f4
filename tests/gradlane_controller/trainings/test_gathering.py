# SPDX-License-Identifier: Apache-2.0
"""Ranks that wait for one another, in any order, with any mistakes, and with crashes: against a model."""

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlane import GradlaneError, job
from gradlane_controller.trainings import gathering
from gradlane_controller.trainings.gathering import Ask, ConflictError, CrowdedError, Gatherings, OwnerError
from gradlane_controller.trainings.templates import Template
from tests.gradlane_controller.texts import job_text

MADE = job.parse(job_text(), "made")


def ask(name: str = "j", rank: int = 0, host: int = 1, workers: int = 2, owner: str = "t", text: str = "") -> Ask:
    return Ask(name, rank, workers, 1, ip_address(f"10.0.{host}.2"), Template("the request", text), owner)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def join(it: Gatherings, asked: Ask, **more: Any) -> gathering.Gathering:
    return it.join(asked, **{"patience": 60, "had": 0, "admin": False} | more)


_ASKS = st.builds(
    ask,
    name=st.sampled_from(["a", "b"]),
    rank=st.integers(0, 2),
    host=st.integers(1, 4),
    workers=st.sampled_from([2, 3, 3, 3]),
    owner=st.sampled_from(["t", "t", "t", "u"]),
    text=st.sampled_from(["", "", "", "x = 1"]),
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(_ASKS, st.sampled_from(["5 s", "15 s", "make", "fail"])), max_size=40))
def test_whoever_asks_in_whatever_order_all_who_wait_fit_together_and_none_is_kept(steps: list[Any]) -> None:
    clock = Clock()
    it = Gatherings(clock)
    # By name: what the first one said, then by rank where it is and when it asked.
    model: dict[str, tuple[tuple[Any, ...], dict[int, tuple[Any, float]]]] = {}
    for step in steps:
        if isinstance(step, str) and step.endswith(" s"):
            clock.now += float(step.split()[0])
        elif isinstance(step, str):
            for name, (_, members) in list(model.items()):
                found = it.find(name)
                if found is not None and found.whole:
                    assert len(members) == found.first.workers
                    if step == "make":
                        found.end(MADE, clock.now)
                        it.remove(name)
                    else:
                        it.remove(name)  # as after the time in which all are told
                    del model[name]
        else:
            for name, (_, members) in list(model.items()):
                for rank in [rank for rank, (_, at) in members.items() if clock.now >= at + 20.0]:
                    del members[rank]
                if not members:
                    del model[name]
            said = step.workers, step.owner, step.template.text
            first, members = model.get(step.name, (said, {}))
            at = members.get(step.rank, (step.address,))[0]
            others = [address for rank, (address, _) in members.items() if rank != step.rank]
            if step.rank >= step.workers:
                continue  # the API refuses these
            good = said == first and at == step.address and step.address not in others
            try:
                found = join(it, step)
            except (ConflictError, OwnerError):
                assert not good
            else:
                assert good
                model.setdefault(step.name, (said, members))[1][step.rank] = step.address, clock.now
                assert {rank: address for rank, (address, _) in found.members.items()} == {
                    rank: address for rank, (address, _) in members.items()
                }
                assert found.whole == (len(members) == step.workers)
    clock.now += 20.0
    assert it.find("a") is None
    assert it.find("b") is None
    assert it._by_name == {}


def test_who_waits_is_bounded_and_who_waits_already_may_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "MAX_WAITING", 3)
    monkeypatch.setattr(gathering, "MAX_OF_TOKEN", 2)
    it = Gatherings(Clock())
    join(it, ask("a", 0, 1))
    join(it, ask("b", 0, 1, workers=3))
    with pytest.raises(CrowdedError, match="this token has 2 jobs"):
        join(it, ask("c", 0, 1))
    with pytest.raises(CrowdedError, match="this token has 2 jobs"):
        join(Gatherings(Clock()), ask("c", 0, 1), had=2)
    join(it, ask("b", 1, 2, workers=3))
    for asked, more in ((ask("a", 1, 2), {}), (ask("c", 0, 1, owner="u"), {}), (ask("c", 0, 1), {"admin": True})):
        with pytest.raises(CrowdedError, match="3 ranks wait"):
            join(it, asked, **more)
    assert len(join(it, ask("b", 1, 2, workers=3)).members) == 2


def test_all_are_told_why_there_is_no_job_and_then_it_is_forgotten() -> None:
    clock = Clock()
    it = Gatherings(clock)
    for rank in (0, 1):
        found = join(it, ask(rank=rank, host=rank + 1))
    found.making = True
    clock.now = 100.0  # while it is made nobody is forgotten
    assert it.find("j") is found
    found.end(GradlaneError("the switch is away"), clock.now)
    for rank in (0, 1):
        with pytest.raises(GradlaneError, match="the switch is away"):
            join(it, ask(rank=rank, host=rank + 1))
    clock.now += 5.0
    assert join(it, ask()).members == {0: (ip_address("10.0.1.2"), clock.now)}
