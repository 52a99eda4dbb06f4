# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job agree on the numbers of tensors and groups: the agent that leads assigns them, by name.

So names may come up in any order, at any rank, and no two of them share a number.
"""

from collections.abc import Mapping
from typing import Any

from gradlane._core import lib

LIMITS = {"tensor": int(lib.GL_MAX_TENSORS), "group": int(lib.GL_MAX_GROUPS)}


class Names:
    """What has been named in a job, at the rank that leads."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[int, Any, str]] = {}
        self._counts = dict.fromkeys(LIMITS, 0)

    def assign(self, who: str, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a rank's question: {"id": number}, or {"error": text} if `who` disagrees with another rank.

        A question has `kind` (of LIMITS), `name`, and `shape`: what must be the same at all ranks, whatever
        it is.
        """
        kind, name, shape = str(question["kind"]), str(question["name"]), question["shape"]
        if kind not in LIMITS:
            return {"error": f"{who} asks for the number of a {kind}: there are {', '.join(LIMITS)}"}
        known = self._known.get((kind, name))
        if known is None:
            number = self._counts[kind]
            if number == LIMITS[kind]:
                return {"error": f"a job has at most {number} {kind}s; {name!r} would be one more"}
            self._counts[kind] += 1
            self._known[kind, name] = (number, shape, who)
            return {"id": number}
        number, first, by = known
        if first != shape:
            return {
                "error": f"{who} and {by} disagree about {kind} {name!r}: {_describe(shape)} against "
                f"{_describe(first)}; do they train the same model with the same bucket size?"
            }
        return {"id": number}

    def restore(self, who: str, question: Mapping[str, Any], number: int) -> None:
        """At another rank, which goes on in the place of the first: `who` was answered so."""
        kind, name = str(question["kind"]), str(question["name"])
        if not 0 <= number < LIMITS[kind]:
            raise ValueError(f"{who} has {number} as the number of {kind} {name[:60]!r}")
        self._known[kind, name] = number, question["shape"], who
        self._counts[kind] = max(self._counts[kind], number + 1)


def _describe(shape: Any) -> str:
    if not isinstance(shape, Mapping):
        return str(shape)
    return ", ".join(f"{key} {value}" for key, value in shape.items())
