# SPDX-License-Identifier: Apache-2.0
"""Simulated workers whose gradients a switch sums decide how they go on as the agents do."""

from collections import Counter
from random import Random
from typing import Any

from gradlane.control.sums import State, Stream, decide
from tests.sim.replay import ask

LEAST = 125_000  # us


def states(random: Random, workers: int, tensors: int) -> list[State]:
    """Of workers that are at most a step apart, mostly."""
    found: list[State] = []
    steps = {tensor: random.randint(1, 4) for tensor in range(tensors)}
    for _ in range(workers):
        streams: dict[int, Stream] = {}
        for tensor, step in steps.items():
            begun = max(0, step + random.choice([0, 0, 0, 0, 0, 1, -1]))
            if random.randrange(20):
                streams[tensor] = Stream(max(0, begun - random.choice([0, 1, 1, 1])), begun)
        found.append(State(random.choice([0, 130_000, 260_000, 510_000]) / 1e6, streams))
    return found


def told(of: list[State]) -> list[Any]:
    return [[round(it.waits * 1e6), [[tensor, s.completed, s.begun] for tensor, s in it.streams.items()]] for it in of]


def as_the_agent(now: list[State], before: list[State]) -> dict[str, Any] | None:
    try:
        found = decide(dict(enumerate(now)), dict(enumerate(before)), LEAST / 1e6)
    except ValueError:
        return None
    late = [step for step, _ in found.late]
    return {
        name: [list(it) for it in rows]
        for name, rows in (("stuck", found.stuck), ("reruns", found.reruns), ("late", late))
    }


def test_random_states_end_alike() -> None:
    random = Random(1)
    questions: list[tuple[list[State], list[State]]] = []
    for _ in range(3000):
        workers, tensors = random.randint(2, 4), random.randint(1, 3)
        before = states(random, workers, tensors) if random.randrange(4) else []
        now = states(random, workers, tensors)
        if before and random.randrange(2):  # nothing has come since
            now = [State(it.waits + random.choice([0, 0.12, 0.13, 0.5]), it.streams) for it in before]
        questions.append((now, before))
    asked = [{"states": told(now), "before": told(before), "least": LEAST} for now, before in questions]
    answers = ask("decision-replay", asked)
    reached = Counter[str]()
    for question, answer in zip(questions, answers, strict=True):
        wanted = as_the_agent(*question)
        assert ("contradiction" in answer) == (wanted is None), question
        if wanted is not None:
            assert answer == wanted, question
        reached.update(name for name, value in answer.items() if value)
    assert min(reached[name] for name in ("stuck", "reruns", "late", "contradiction")) > 50
