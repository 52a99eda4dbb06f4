# SPDX-License-Identifier: Apache-2.0
"""How workers whose gradients a switch sums find out together whether it still does, and go on alike if not.

1. A worker that misses a sum for too long tells the leader, which asks all to halt: from then on a worker contributes
   nothing, takes no sums, and begins no step by the switch.
2. Each says how far it has come in the *stream* of each tensor. From the answers of all the leader decides:
3. all go on as they were, if a worker has not come to a step that others wait in, which is no fault of the switch, and
   also the first time that it seems to be: they send once more what somebody may miss, as a busy machine may have had
   no time for the switch, or a switch has lost what it had. Or all go on by hosts. A step that all have begun and some
   have not completed is run again then, from the integers that each has kept; one that somebody has not begun is taken
   back by those who have, as nobody can have completed it.

So a step that anybody has completed is completed by all, with the same bits. Messages of the leader come in the order
in which it sent them (TCP), and one halt is open at a time.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gradlane import json_object

Message = dict[str, Any]
Rerun = tuple[int, int]  # a tensor's number, and its step

# Streams of a worker: each has two windows of at least 4 of a switch's 4096 slots (job/transport.py).
MOST_STREAMS = 512
_MOST_STEP = (1 << 32) - 1
_MOST_SECONDS = 1e6
MOST_REASON = 300  # characters, of which JSON may take 12 bytes for each

_ANSWER = {"halted": int, "waits": (int, float), "streams": [[int]]}
_RESUME = {"resume": int, "generation": int, "switch": bool, "reruns": [[int]], "reason": str}


@dataclass(frozen=True)
class Stream:
    """How far a worker has come in the steps of a tensor: the last one that it has begun, and the last one for which it
    needs nothing of the switch any more, which is the same or the one before."""

    completed: int
    begun: int


@dataclass(frozen=True)
class State:
    """Of a worker that has halted. `waits`: seconds that its agent has run for while some stream waited for a sum, and
    got none, 0 if no sum is missing; `streams`: by the tensor's number."""

    waits: float
    streams: Mapping[int, Stream]

    def packed(self) -> Message:
        """As JSON takes it."""
        streams = [[tensor, it.completed, it.begun] for tensor, it in sorted(self.streams.items())]
        return {"waits": round(self.waits, 3), "streams": streams}


def unpacked(content: Mapping[str, Any]) -> State:
    """What `packed` gave. Raises ValueError if no worker can be in that state."""
    json_object.check(content, _ANSWER)
    waits, rows = content["waits"], content["streams"]
    if not 0 <= waits <= _MOST_SECONDS or len(rows) > MOST_STREAMS:
        raise ValueError(f"it waits for {waits!r:.40} s, in {len(rows)} streams of at most {MOST_STREAMS}")
    streams: dict[int, Stream] = {}
    for row in rows:
        tensor, completed, begun = row if len(row) == 3 else (-1, 0, 0)
        sound = 0 <= tensor < MOST_STREAMS and tensor not in streams
        if not sound or not max(0, begun - 1) <= completed <= begun <= _MOST_STEP:
            raise ValueError(f"it says {str(row)[:80]} of a stream: that is no tensor, completed step and begun step")
        streams[tensor] = Stream(completed, begun)
    return State(float(waits), streams)


@dataclass(frozen=True)
class Decision:
    """What the states of all workers come to. `reruns`: steps that all have begun, and some have not completed.
    `stuck`: those of them of which the switch has given somebody no sum for long, and since the halt before this one,
    too; if there are any, all goes on by hosts, and `reruns` are run again.

    `late`: steps that some have begun, and which ranks have not.
    """

    stuck: tuple[Rerun, ...] = ()
    reruns: tuple[Rerun, ...] = ()
    late: tuple[tuple[Rerun, tuple[int, ...]], ...] = ()


def decide(states: Mapping[int, State], before: Mapping[int, State], least: float) -> Decision:
    """By rank, of all workers; `before`: at the last halt, {} if there was none. `least`: seconds since the last halt
    after which a sum is missing for good that all had contributed to then.

    Raises ValueError naming ranks whose states contradict each other.
    """
    stuck: list[Rerun] = []
    reruns: list[Rerun] = []
    late: list[tuple[Rerun, tuple[int, ...]]] = []
    for tensor in sorted({tensor for state in states.values() for tensor in state.streams}):
        known = {rank: state.streams[tensor] for rank, state in states.items() if tensor in state.streams}
        step = min(it.completed for it in known.values()) + 1
        waiting = [rank for rank, it in known.items() if it.completed < step <= it.begun]
        missing = tuple(rank for rank in sorted(states) if rank not in known or known[rank].begun < step)
        if not waiting:
            continue
        done = [rank for rank, it in known.items() if it.completed >= step]
        if missing and done:
            raise ValueError(
                f"rank {done[0]} has completed step {step} of tensor {tensor}, and rank {missing[0]} has not begun it"
            )
        if missing:
            late.append(((tensor, step), missing))
            continue
        reruns.append((tensor, step))
        had_begun = [tensor in it.streams and it.streams[tensor].begun >= step for it in before.values()]
        again = bool(before) and all(had_begun)
        if again and all(states[rank].waits - before[rank].waits >= least for rank in waiting):
            stuck.append((tensor, step))
    return Decision(tuple(stuck), tuple(reruns), tuple(late))


@dataclass(frozen=True)
class Resumed:
    """How all go on after a halt: by the switch in the same generation, with all that anybody has of `reruns` sent once
    more, or in a new one by hosts, with these run again."""

    generation: int
    by_switch: bool
    reruns: tuple[Rerun, ...]
    reason: str


class Member:
    """A worker's part. `halt` stops its streams and says how far they are; `resume` goes on, False if it can't.

    `halts`: how many there were; `halted`: whether one is open.
    """

    def __init__(self, halt: Callable[[], State], resume: Callable[[Resumed], bool]) -> None:
        self._halt, self._resume = halt, resume
        self.halts = 0
        self.halted = False

    def hear(self, message: Message) -> Message | None:
        """A message of the leader; what it is answered. Raises ValueError if it can't be followed."""
        if "halt" in message:
            json_object.check(message, {"halt": int})
            if self.halted or message["halt"] != self.halts + 1:
                raise ValueError(f"the leader asks to halt for the {message['halt']}th time, after {self.halts}")
            self.halts, self.halted = self.halts + 1, True
            return {"halted": self.halts, **self._halt().packed()}
        json_object.check(message, _RESUME)
        reruns = tuple(steps(message["reruns"], "the leader"))
        if not self.halted or message["resume"] != self.halts:
            raise ValueError(f"the leader ends halt {message['resume']}, after {self.halts}")
        if not 0 < message["generation"] <= _MOST_STEP:
            raise ValueError(f"the leader says that this is generation {message['generation']}")
        how = Resumed(message["generation"], message["switch"], reruns, message["reason"][:MOST_REASON])
        self.halted = False
        if not self._resume(how):
            raise ValueError(f"the leader has steps run again that can't be here: {str(message['reruns'])[:200]}")
        return None


def steps(rows: Sequence[Sequence[int]], who: str) -> list[Rerun]:
    """Of tensors, as `who` says. Raises ValueError if there can't be such."""
    if len(rows) > MOST_STREAMS:
        raise ValueError(f"{who} names {len(rows)} steps, of at most {MOST_STREAMS} tensors")
    for row in rows:
        if len(row) != 2 or not 0 <= row[0] < MOST_STREAMS or not 0 < row[1] <= _MOST_STEP:
            raise ValueError(f"{who} names {str(row)[:80]}, which is no tensor and step")
    return [(tensor, step) for tensor, step in rows]


class Waits:
    """The steps that workers wait in for others, at the leader: one in which half of them have waited for long goes on.
    Who has not come to it takes part with zeros (core/exchange/absence.h), as far as it may be left out."""

    def __init__(self, workers: int) -> None:
        self._least = (workers + 1) // 2
        self._waits: dict[tuple[int, int], int] = {}  # by rank and tensor: the step that it has said last
        self._count = Counter[Rerun]()  # of the workers that say so
        self._decided: dict[int, int] = {}  # by tensor

    def hear(self, rank: int, message: Message) -> list[Rerun]:
        """What a worker waits in; the steps that go on now. Raises ValueError if it makes no sense."""
        json_object.check(message, {"waiting": [[int]]})
        found = list[Rerun]()
        for tensor, step in steps(message["waiting"], f"rank {rank}"):
            self._forget((tensor, self._waits.get((rank, tensor), 0)))
            self._waits[rank, tensor] = step
            self._count[tensor, step] += 1
            if self._count[tensor, step] >= self._least and step > self._decided.get(tensor, 0):
                self._decided[tensor] = step
                found.append((tensor, step))
        return found

    def _forget(self, said: Rerun) -> None:
        if said in self._count:
            self._count[said] -= 1
            if not self._count[said]:
                del self._count[said]


class Leader:
    """The leader's part. `tell` sends a message to every worker (it is one itself); `decided` takes the states of all,
    and says how they go on; None: they don't."""

    def __init__(
        self,
        ranks: Sequence[int],
        tell: Callable[[Message], None],
        decided: Callable[[Mapping[int, State]], Resumed | None],
    ) -> None:
        self._ranks, self._tell, self._decided = ranks, tell, decided
        self._states: dict[int, State] = {}
        self._open = False
        self.halts = 0

    @property
    def missing(self) -> list[int]:
        """Who has not answered the open halt; [] if none is open."""
        return [rank for rank in self._ranks if rank not in self._states] if self._open else []

    def halt(self) -> None:
        """Asks all to halt, while none is open."""
        self.halts, self._open, self._states = self.halts + 1, True, {}
        self._tell({"halt": self.halts})

    def hear(self, rank: int, message: Message) -> None:
        """A worker's answer. Raises ValueError if it makes no sense."""
        state = unpacked(message)
        if not self._open or message["halted"] != self.halts or rank in self._states:
            raise ValueError(f"it answers halt {message['halted']}, which is not open or answered")
        self._states[rank] = state
        if self.missing:
            return
        how = self._decided(self._states)
        self._open = False
        if how is None:
            return
        reruns = [list(it) for it in how.reruns]
        self._tell({"resume": self.halts, "generation": how.generation, "switch": how.by_switch, "reruns": reruns,
                    "reason": how.reason[:MOST_REASON]})  # fmt: skip
