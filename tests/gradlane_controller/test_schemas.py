# SPDX-License-Identifier: Apache-2.0
"""Schemas and readers of fabric and job files agree: what a reader takes, the schema takes; and it says no to most of
what the reader refuses for one key alone."""

import copy
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs
import pytest
import tomli_w

from gradlane import job, pem
from gradlane.job.schema import job_schema
from gradlane.toml_file import FileError
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric_schema import fabric_schema
from tests.gradlane_controller.texts import job_text, leafspine_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FABRIC = (
    (
        leafspine_text()
        .replace(
            'name = "leaf1"',
            'name = "leaf1"\nindex = 9\ndevice_id = 5\ntarget = "bmv2"\npipes = 2\naggregation = false',
        )
        .replace('name = "leaf2"', 'name = "leaf2"\naggregation = true\ntls = { ca = "/ca", server_name = "x" }')
        .replace('host = "h1"', 'host = "h1"\nalso = ["10.9.0.1", "fd09::1"]')
        .replace('host = "h2"', 'host = "h2"\nalso = "10.9.0.2"')
    )
    + """
[thresholds]
yellow = 0.25
red = 0.5
[tls]
ca = "/ca.pem"
certificate = "/c.pem"
key = "/k.pem"
[adaptive]
interval = 20
least_threshold = 0.05
most_threshold = 0.5
droppable = 0.25
tolerance = 0.5
[[dscp]]
dscp = 46
queue_class = 5
[[rewrite]]
switch = "leaf1"
port = 1
dscp = 43
to = 10
"""
)
JOB = job_text(hosts=(1, 2), servers=(3,), transport="""buffer = "64kB"
slice_bytes = 1432
wire = "float16"
collective = "direct"
multicast = "239.1.0.1"
tagging = "switch"
trace_every = 64
contention = 0.03
ownership = [1]
""", policy="yellow = 2\nred = 1\nweight = 3\nspray = true\npriority = true\non_congestion = \"trim\"\n") + """
[loss]
push = 0.03
pull = 0.01
error_feedback = true
classes = [{ layers = [0, 3], push = 0.0, pull = 0.5 }]
[loss.adaptive]
critical = 0.1
threshold = 0.5
window = 10
[sync]
scheme = "diloco"
every = 8
fragments = 2
delay = 3
alpha = 0.5
outer_rate = 0.7
outer_momentum = 0.9
"""  # fmt: skip
SUMMED = job_text(
    transport='collective = "switch"\nwire = "int16"\nmulticast = "239.1.0.1"\nsum_window = 16\nsum_slots = 64'
)
LATE = job_text(hosts=(1, 2, 3), transport='collective = "stragglar"\nstraggler = 1')
LATE += "[loss]\npush = 0\n"
SYNCS = [
    'scheme = "ds-sync"\nschedule = "pairs"\ndelay = 1', 'scheme = "local-sgd"\nevery = 4\nfragments = 2',
    'scheme = "ad-psgd"\nseed = 3', 'scheme = "ripples"\nmembers = 2\nslack = 0\ndelay = 1', 'scheme = "acco"',
    'scheme = "ringmaster"\nstaleness = 4', 'scheme = "r-fast"',
]  # fmt: skip
JOBS = [JOB, SUMMED, LATE, job_text() + "[loss.late]\nafter = 0.05\nsteps = 4\nwindow = 100\n"]
JOBS += [f"{job_text()}[sync]\n{it}\n" for it in SYNCS]

FABRIC_SCHEMA, JOB_SCHEMA = (jsonschema_rs.Draft202012Validator(it()) for it in (fabric_schema, job_schema))
Kind = tuple[Callable[[str, str], object], Any]
FABRICS: Kind = (fabric_file.parse, FABRIC_SCHEMA)
JOB_FILES: Kind = (job.parse, JOB_SCHEMA)
CASES = [(FABRICS, FABRIC), *((JOB_FILES, it) for it in JOBS)]
POOL = [
    0, 1, -1, 2, 7, 8, 63, 64, 255, 256, 510, 511, 4095,
    4096, 65535, 65536, 2**40, 2**63 - 1, 0.0, 0.5, 1.0, -0.1, 10.0, 0.1,
    True, False, "", "x", "auto", "a b", "leaf1", "h1", "spine1:9", "leaf1:255", "10.0.0.1", "fd00::7", "239.1.0.9",
    "02:00:00:00:09:01", "01:00:00:00:09:01", "1gbit", " 2.5 gbit", "64KiB", "64", "/x", [], [1], [0, 5], [5, 0],
    ["leaf1:9", "leaf2:9"], ["10.0.0.9"], [{}], {}, {"layers": [0, 1]}, "int16", "host", "grid", "ripples",
]  # fmt: skip


@pytest.fixture(autouse=True)
def any_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pem, "check", lambda *_: None)


def takes(kind: Kind, document: Any) -> tuple[bool, bool]:
    """Whether the reader takes a document, and whether the schema does."""
    reader, schema = kind
    try:
        reader(tomli_w.dumps(document), "f.toml")
    except FileError:
        return False, schema.is_valid(document)
    return True, schema.is_valid(document)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Of all values in a document."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(inner, (*path, key))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_good_files_pass(kind: Kind, text: str) -> None:
    assert takes(kind, tomllib.loads(text)) == (True, True)


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_what_the_reader_takes_the_schema_takes(kind: Kind, text: str) -> None:
    chance, taken = random.Random(text), 0
    for _ in range(250):
        document = tomllib.loads(text)
        for _ in range(chance.randint(1, 2)):
            *around, key = chance.choice(list(places(document)))
            inner = at(document, tuple(around))
            if chance.random() < 0.3:
                del inner[key]
            elif chance.random() < 0.1 and isinstance(inner, dict):
                inner["more"] = chance.choice(POOL)
            else:
                alike = [it for it in POOL if type(it) is type(inner[key])]
                inner[key] = copy.deepcopy(chance.choice(alike or POOL if chance.random() < 0.6 else POOL))
        try:
            reader, schema = takes(kind, document)
        except TypeError:
            continue  # TOML can't say it
        taken += reader
        assert schema or not reader, document
    assert taken > 10


@pytest.mark.parametrize(("kind", "text"), CASES)
def test_wrong_kinds_unknown_keys_and_missing_ones_are_seen(kind: Kind, text: str) -> None:
    good = tomllib.loads(text)
    for *around, key in list(places(good)):
        kinds = (bool, int, float, str, list, dict)
        was = type(at(good, (*around, key)))
        for value in (True, 3, 0.25, "?", [[]], {"?": 1}):
            near = {was, type(value)} <= {int, float} or {was, type(value)} <= {str, list}
            if type(value) is was or near or key in ("slice_bytes", "index", "ownership"):
                continue
            document = copy.deepcopy(good)
            at(document, tuple(around))[key] = value
            assert takes(kind, document) == (False, False), (around, key, value)
        assert was in kinds
        inner = at(good, (*around, key))
        if isinstance(inner, dict):
            document = copy.deepcopy(good)
            at(document, (*around, key))["unknown"] = 1
            assert takes(kind, document) == (False, False), (around, key)
        if around and isinstance(at(good, tuple(around)), dict):
            document = copy.deepcopy(good)
            del at(document, tuple(around))[key]
            if not takes(kind, document)[0] and key in REQUIRED:
                assert not takes(kind, document)[1], (around, key)


REQUIRED = {"name", "id", "rank", "host", "number", "mac", "host_mac", "rate", "ends", "yellow", "queue_class", "to"}


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        (("job", "id"), (1, 65535), (0, 65536)),
        (("job", "patience"), (10, 86_400), (9, 86_401)),
        (("policy", "weight"), (1, 100), (0, 101)),
        (("policy", "red"), (1, 2), (0, 8)),
        (("policy", "queue_classes", 0, "class"), (0, 6), (-1, 7)),
        (("policy", "drop_precedences", 0, "drop_precedence"), (1, 7), (0, 8)),
        (("policy", "queue_classes", 1, "layers"), ([4, 65535],), ([4, 65536], [4], [-1, 7])),
        (("slots", "mask"), (4095, 65535), (4094, 65536)),
        (("loss", "push"), (0, 0.99), (1, -0.01)),
        (("loss", "adaptive", "threshold"), (0.1, 1000), (0, 1000.1)),
        (("sync", "outer_rate"), (0.1, 10), (0, 10.1)),
        (("sync", "delay"), (0, 7), (-1,)),
        (("transport", "slice_bytes"), (64, 8936, "auto"), (63, 9000, "all")),
        (("transport", "trace_every"), (0, 1_000_000), (-1, 1_000_001)),
        (("job", "key"), ("aB" * 16, "12" * 64), ("aB" * 15, "12" * 65, "123" * 11, "zz" * 16)),
        (("job", "name"), ("a", "a.b-c_9"), ("", "-a", "a b", "a" * 64)),
    ],
)
def test_limits_of_jobs(path: tuple[Any, ...], good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    check_limits(JOB_FILES, JOB, path, good, bad)


@pytest.mark.parametrize(
    ("path", "good", "bad"),
    [
        (("switch", 0, "index"), (1, 65534, "auto"), (0, 65535, "x")),
        (("switch", 0, "pipes"), (1, 8), (0, 9)),
        (("switch", 0, "address"), ("h:1", "[::1]:65535"), ("h", "h:", ":1", "h:123456", "[x]:1")),
        (("port", 0, "number"), (1, 254, 256, 510), (0, 255, 511)),
        (("port", 0, "host_mac"), ("02:aa:00:00:00:FF",), ("01:00:00:00:00:01", "02:00:00:00:00", "0200.0000.0001")),
        (("port", 0, "rate"), ("1bit", " 2.5 gbit "), ("1", "1 Gbit", "-1bit", 5)),
        (("dscp", 0, "queue_class"), (0, 6), (-1, 7)),
        (("dscp", 0, "dscp"), (0, 63), (-1, 64)),
        (
            ("link", 0, "ends"),
            (["leaf1:7", "spine1:7"],),
            (["leaf1:7"], ["leaf1:7", "spine1"], ["leaf1:7", "spine1:1111"]),
        ),
        (("thresholds", "red"), (0.99, 0.25), (1, -1)),
        (("adaptive", "interval"), (1.1, 3600), (1, 3601, "30s")),
        (("adaptive", "least_threshold"), (0.01, 0.1), (-0.1, 1, "a tenth")),
        (("adaptive", "droppable"), (0, 0.99), (-0.1, 1)),
        (("adaptive", "tolerance"), (0.1, 0.99), (-0.1, 1)),
    ],
)
def test_limits_of_fabrics(path: tuple[Any, ...], good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    without_rewrite = FABRIC[: FABRIC.index("[[rewrite]]")]
    check_limits(FABRICS, without_rewrite, path, good, bad)


def check_limits(kind: Kind, text: str, path: tuple[Any, ...], good: tuple[Any, ...], bad: tuple[Any, ...]) -> None:
    for values, expected in ((good, True), (bad, False)):
        for value in values:
            document = tomllib.loads(text)
            at(document, path[:-1])[path[-1]] = value
            assert takes(kind, document) == (expected, expected), value


@pytest.mark.parametrize("schema", [fabric_schema(), job_schema()])
def test_they_are_schemas_and_every_key_says_what_it_is(schema: dict[str, Any]) -> None:
    jsonschema_rs.meta.validate(schema)
    for table in tables(schema):
        assert table["additionalProperties"] is False
        assert set(table["required"]) <= set(table["properties"])


def tables(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            yield schema
        for inner in schema.values():
            yield from tables(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from tables(inner)
