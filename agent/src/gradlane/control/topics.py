# SPDX-License-Identifier: Apache-2.0
"""What ranks tell one another until they have agreed on a job, looked at when it comes, so that a liar is named."""

from gradlane import json_object
from gradlane.job import MAX_PACKET
from gradlane.job.agreement import MAX_SHARDS

_SECONDS = (int, float)
_RATE = (1, 1e15)  # bit/s

# Of each topic: its fields, their types, and from where to where they go.
_TOPICS: dict[str, dict[str, tuple[json_object.Shape, tuple[float, float]]]] = {
    "session": {
        "token": (int, (0, (1 << 64) - 1)),
        "message_base": (int, (0, (1 << 32) - 1)),
        "generation": (int, (1, (1 << 32) - 1)),
    },
    "paths": {
        "packet": (int, (1, MAX_PACKET)),
        "rank": (int, (0, (1 << 16) - 1)),
        "latency": (_SECONDS, (0, 1e6)),
        "rate": ((int, float, None), _RATE),
        "runners": (int, (1, MAX_SHARDS)),
    },
    "agreement": {
        "slice_bytes": (int, (1, MAX_PACKET)),
        "rate": ((int, float), _RATE),
        "latency": (_SECONDS, (0, 1e6)),
        "shards": (int, (1, MAX_SHARDS)),
        "steered": (int, (0, 1)),
    },
}


def is_one(name: object) -> bool:
    """Whether ranks tell one another about it here."""
    return isinstance(name, str) and name in _TOPICS


def check(topic: str, content: object) -> None:
    """Raises ValueError if that makes no sense."""
    fields = _TOPICS[topic]
    if not isinstance(content, dict) or content.keys() != fields.keys():
        raise ValueError(f"says {str(content)[:60]!r} about the {topic}: it must have {', '.join(fields)}")
    json_object.check(content, {name: shape for name, (shape, _) in fields.items()})
    for name, (_, (least, most)) in fields.items():
        value = content[name]
        if value is not None and not least <= value <= most:  # a number that is none is not either
            raise ValueError(f"has {value!r:.60} as {name!r}: it must be {least:g} to {most:g}")
