# SPDX-License-Identifier: Apache-2.0
"""The job file: what a good one means, and that every mistake is named with its key and its remedy."""

import dataclasses
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
from gradlane._core import lib

from gradlane import job, wire
from gradlane.job import JobError, Member
from gradlane.job.loss import Adaptive, LossClass
from gradlane.job.policy import DropPrecedence, QueueClass
from gradlane.job.sync import Sync
from tests.gradlane.job.texts import MINIMAL, ranks

GOOD = """
[job]
name = "demo"
id = 1
key = "00112233445566ff00112233445566ff"

[[worker]]
rank = 0
host = "h1"
address = "10.0.1.2"

[[worker]]
rank = 1
host = "h2"
address = "10.0.2.2"

[[server]]
rank = 2
host = "h3"
address = "10.0.3.2"

[transport]
rate = "100mbit"
slice_bytes = 1432
wire = "float16"
multicast = "239.1.0.1"

[loss]
push = 0.03
pull = 0.0

[policy]
priority = true
queue_classes = [ { layers = [0, 3], class = 6 }, { layers = [4, 65535], class = 5 } ]
drop_precedences = [
    { magnitudes = [0, 63], drop_precedence = 3 },
    { magnitudes = [64, 127], drop_precedence = 2, layers = [0, 10] },
]
yellow = 2
red = 1

[slots]
base = 4096
mask = 4095
"""


def test_every_field_is_read() -> None:
    it = job.parse(GOOD, "j.toml")
    assert (it.name, it.id, it.key) == ("demo", 1, bytes.fromhex("00112233445566ff" * 2))
    assert it.workers == (Member(0, "h1", IPv4Address("10.0.1.2")), Member(1, "h2", IPv4Address("10.0.2.2")))
    assert it.servers == (Member(2, "h3", IPv4Address("10.0.3.2")),)
    assert it.members == it.workers + it.servers
    assert it.aggregators == it.servers
    assert it.member(2).host == "h3"
    assert (it.transport.rate, it.transport.slice_bytes, it.transport.wire) == (100_000_000, 1432, "float16")
    assert it.multicast_address(0) == IPv4Address("239.1.0.1")
    assert it.multicast_address(1) == IPv4Address("239.1.0.2")
    assert (it.loss.push, it.loss.pull) == (0.03, 0.0)
    assert it.policy.queue_classes == (QueueClass((0, 3), 6), QueueClass((4, 65535), 5))
    assert it.policy.drop_precedences == (
        DropPrecedence((0, 65535), (0, 63), 3),
        DropPrecedence((0, 10), (64, 127), 2),
    )
    assert (it.policy.priority, it.policy.yellow, it.policy.red) == (True, 2, 1)
    assert (it.policy.weight, it.policy.on_congestion, it.policy.spray) == (1, "drop", True)
    assert (it.slots.base, it.slots.mask, it.slots.last) == (4096, 4095, 8191)


def test_defaults_lose_nothing_and_aggregate_in_shards() -> None:
    it = job.parse(MINIMAL, "j.toml")
    assert (it.loss.push, it.loss.pull) == (0.0, 0.0)
    assert it.aggregators == it.workers
    assert it.multicast_address(0) is None
    assert (it.transport.slice_bytes, it.transport.collective, it.processes, it.family) == (None, "auto", 1, 4)
    assert (it.loss.error_feedback, it.loss.classes, it.loss.adaptive, it.loss.late) == (True, (), None, None)
    assert it.sync is None
    assert it.policy.priority
    assert it.policy.queue_classes == ()
    assert it.policy.drop_precedences == ()
    assert (it.slots.base, it.slots.mask) == (0, 4095)


@pytest.mark.parametrize(
    ("lines", "scheme", "options"),
    [
        ('scheme = "ds-sync"', "ds-sync", {"schedule": "grid", "delay": 0}),
        ('scheme = "ds-sync"\nschedule = "pairs"\ndelay = 1', "ds-sync", {"schedule": "pairs", "delay": 1}),
        ('scheme = "ad-psgd"', "ad-psgd", {"seed": 0}),
        ('scheme = "ringmaster"', "ringmaster", {"staleness": 16}),
        ('scheme = "ringmaster"\nstaleness = 3', "ringmaster", {"staleness": 3}),
        ('scheme = "r-fast"', "r-fast", {}),
        ('scheme = "ripples"\nslack = 0', "ripples", {"members": 3, "slack": 0, "delay": 0}),
        ('scheme = "local-sgd"', "local-sgd", {"every": 8, "fragments": 1, "delay": 0, "alpha": 0.0}),
        (
            'scheme = "diloco"\nevery = 7\nfragments = 3\ndelay = 6\nalpha = 0.5',
            "diloco",
            {"every": 7, "fragments": 3, "delay": 6, "alpha": 0.5, "outer_rate": 0.7, "outer_momentum": 0.9},
        ),
    ],
)
def test_a_scheme_has_all_its_options(lines: str, scheme: str, options: dict[str, Any]) -> None:
    it = job.parse(f"{MINIMAL}[sync]\n{lines}\n", "j.toml")
    assert it.sync == Sync(scheme, options)
    assert it.digest != job.parse(MINIMAL, "j.toml").digest, "the agents would not notice that files differ"


IPV6 = (
    MINIMAL.replace("10.0.1.2", "fd00:1::2")
    + """slice_bytes = "auto"
[[worker]]
rank = 1
host = "b"
address = "fd00:1::3"
"""
)


def test_members_may_have_ipv6_addresses() -> None:
    it = job.parse(IPV6, "j.toml")
    assert (it.family, it.members[1].address) == (6, IPv6Address("fd00:1::3"))
    assert (job.headers(6), job.largest_slice(1500, 6), job.largest_slice(65535, 6)) == (84, 1416, 8912)
    assert (job.headers(4), job.largest_slice(1500, 4), job.largest_slice(65535, 4)) == (64, 1432, 8936)
    with pytest.raises(JobError) as caught:
        job.parse(IPV6.replace('slice_bytes = "auto"', "slice_bytes = 8936"), "j.toml")
    assert caught.value.key == "transport.slice_bytes"


@pytest.mark.parametrize(
    ("address", "good"),
    [
        ("ff18::ffff", True),
        ("ff03::", True),
        ("ff02::1", False),  # of a link
        ("ff31::1", False),
        ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", False),  # behind it there is none for the next aggregator
        ("fd00::1", False),
        ("ff18::1%lo", False),
        ("239.1.0.1", False),
        ("239.1.0", False),
    ],
)
def test_multicast_over_ipv6_is_of_a_scope_that_routers_forward(address: str, good: bool) -> None:
    text = IPV6.replace('slice_bytes = "auto"', f'multicast = "{address}"')
    if good:
        assert job.parse(text, "j.toml").multicast_address(1) == IPv6Address(address) + 1
        return
    with pytest.raises(JobError) as caught:
        job.parse(text, "j.toml")
    line = text[: text.index("multicast =")].count("\n") + 1
    assert str(caught.value) == (
        f"j.toml:{line}: transport.multicast: is '{address}'; the 2 multicast addresses from it on must lie in "
        "ff00::/8, with a scope of 3 or more, e.g. 'ff18::1'"
    )


def test_loss_by_layers_and_by_phase() -> None:
    more = """
classes = [{ layers = [8, 9], pull = 0.5 }, { layers = [0, 3], push = 0 }]
[loss.adaptive]
window = 5
"""
    it = job.parse(GOOD.replace("pull = 0.0", more), "j.toml").loss
    assert it.classes == (LossClass((0, 3), 0.0, 0.0), LossClass((8, 9), 0.03, 0.5))
    assert it.adaptive == Adaptive(0.1, 0.5, 5)


def test_a_template_gets_its_workers_where_it_is_started() -> None:
    template = MINIMAL.replace('[[worker]]\nrank = 0\nhost = "a"\naddress = "10.0.1.2"\n', "")
    assert job.is_template(template, "j")
    assert not job.is_template(MINIMAL, "j")
    filled = job.fill(template, [("a", "10.0.1.2", 4), ("b", "10.0.1.3", 4)])
    it = job.parse(filled, "j")
    assert it.workers == (Member(0, "a", IPv4Address("10.0.1.2"), 4), Member(1, "b", IPv4Address("10.0.1.3"), 4))
    assert (it.processes, it.text) == (4, filled)


def test_the_key_is_not_shown() -> None:
    assert "00112233445566ff" not in repr(job.parse(GOOD, "j"))
    assert job.parse(GOOD.replace("key =", "#"), "j").key == b""


def test_who_tags_and_how_often_ways_are_traced() -> None:
    assert (job.parse(GOOD, "j").transport.tagging, job.parse(GOOD, "j").transport.trace_every) == ("switch", 64)
    changed = MINIMAL.replace("[transport]", '[transport]\ntagging = "host"\ntrace_every = 0')
    assert (job.parse(changed, "j").transport.tagging, job.parse(changed, "j").transport.trace_every) == ("host", 0)
    for line, reason in (('tagging = "nobody"', "'switch', 'host'"), ("trace_every = -1", "from 0 to 1000000")):
        with pytest.raises(JobError, match=reason):
            job.parse(MINIMAL.replace("[transport]", f"[transport]\n{line}"), "j")


def test_load_names_a_file_that_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(JobError, match=r"none\.toml: can't be read: No such file"):
        job.load(path)
    path.write_text(GOOD)
    assert job.load(path).name == "demo"


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('name = "demo"', "name = 3", "job.name", "non-empty string"),
        ('name = "demo"', 'name = "a b/c"', "job.name", "1 to 63 letters"),
        ('name = "demo"\n', "", "job.name", "is missing"),
        ("id = 1\n", "id = 0\n", "job.id", "from 1 to 65535"),
        ("id = 1\n", "id = 65536\n", "job.id", "from 1 to 65535"),
        ("id = 1\n", "id = true\n", "job.id", "integer"),
        ("[slots]", "[sync]\n[slots]", "sync.scheme", "is missing"),
        (
            "[slots]",
            '[sync]\nscheme = "gossip"\n[slots]',
            "sync.scheme",
            "one of 'ds-sync', 'local-sgd', 'diloco', 'ad-psgd', 'ripples', 'acco', 'ringmaster', 'r-fast'",
        ),
        ("[slots]", '[sync]\nscheme = "ds-sync"\nschedule = "ring"\n[slots]', "sync.schedule", "'grid', 'pairs'"),
        ("[slots]", '[sync]\nscheme = "ds-sync"\nevery = 3\n[slots]', "sync.every", "known: delay, schedule, scheme"),
        ("[slots]", '[sync]\nscheme = "ds-sync"\ndelay = 2\n[slots]', "sync.delay", "from 0 to 1"),
        ("[slots]", '[sync]\nscheme = "ad-psgd"\nseed = -1\n[slots]', "sync.seed", "from 0 to"),
        ("[slots]", '[sync]\nscheme = "ringmaster"\nstaleness = 0\n[slots]', "sync.staleness", "from 1 to"),
        ("[slots]", '[sync]\nscheme = "ripples"\nmembers = 1\n[slots]', "sync.members", "from 2 to 256"),
        ("[slots]", '[sync]\nscheme = "ripples"\nslack = -1\n[slots]', "sync.slack", "from 0 to"),
        ("[slots]", '[sync]\nscheme = "local-sgd"\nevery = 0\n[slots]', "sync.every", "from 1 to 1000000"),
        ("[slots]", '[sync]\nscheme = "diloco"\nouter_momentum = 1\n[slots]', "sync.outer_momentum", "below 1"),
        ("[slots]", '[sync]\nscheme = "diloco"\nouter_rate = 0\n[slots]', "sync.outer_rate", "above 0"),
        ("id = 1\n", "id = 1\npatience = 9\n", "job.patience", "from 10 to 86400"),
        ("id = 1\n", "id = 1\npatience = 90000\n", "job.patience", "from 10 to 86400"),
        ("id = 1\n", 'id = 1\npatience = "2 min"\n', "job.patience", "must be an integer"),
        ('"00112233445566ff00112233445566ff"', '"00000000000000000000000000000000"', "job.key", "not all zero"),
        ('"00112233445566ff00112233445566ff"', '"00112233445566ff"', "job.key", "32 to 128 hexadecimal digits"),
        ('"00112233445566ff00112233445566ff"', '"0x112233445566ff00112233445566ff"', "job.key", "hexadecimal digits"),
        (
            'name = "demo"',
            'name = "demo"\naggregation = "sum"',
            "job.aggregation",
            "known: deaths, id, key, name, patience",
        ),
        ("rank = 1", "rank = 5", "worker[1].rank", "must be 1: the workers' ranks count from 0"),
        ("rank = 2", "rank = 0", "server[0].rank", "must be 2: the servers' ranks count from 2, after the workers'"),
        ('"10.0.1.2"', '"10.0.1"', "worker[0].address", "dotted form"),
        ('"10.0.1.2"', '"239.0.0.1"', "worker[0].address", "unicast"),
        ('"10.0.1.2"', '"0.0.0.0"', "worker[0].address", "unicast"),
        ('"10.0.1.2"', '"10.0.2.2"', "", "ranks 0 and 1 both have address 10.0.2.2"),
        ('host = "h3"', 'host = "h1"', "", "ranks 0 and 2 are both on host 'h1'"),
        ('host = "h3"', 'hots = "h3"', "server[0].host", "is missing"),
        ('rate = "100mbit"', 'rate = "fast"', "transport.rate", "'fast'"),
        ('rate = "100mbit"', "rate = 100", "transport.rate", "string with a unit"),
        ('rate = "100mbit"\n', "", "transport.rate", "is missing"),
        ("slice_bytes = 1432", "slice_bytes = 1436", "transport.slice_bytes", "multiple of 8"),
        ("slice_bytes = 1432", "slice_bytes = 9000", "transport.slice_bytes", "from 64 to 8936"),
        ('"float16"', '"float64"', "transport.wire", "'float32', 'float16', 'bfloat16'"),
        ('"239.1.0.1"', '"10.1.0.1"', "transport.multicast", "224.0.1.0 to 239.255.255.255"),
        ('"239.1.0.1"', '"224.0.0.9"', "transport.multicast", "224.0.1.0 to 239.255.255.255"),
        ("slice_bytes = 1432", 'slice_bytes = "large"', "transport.slice_bytes", "must be 'auto' or an integer"),
        ("slice_bytes = 1432", 'ownership = "odd"', "transport.ownership", "'even'"),
        ("slice_bytes = 1432", "ownership = [1, 1]", "transport.ownership", "a list of 1 number(s) from 0 to 10000"),
        ("slice_bytes = 1432", "ownership = [0]", "transport.ownership", "not all 0"),
        ("slice_bytes = 1432", "ownership = [10001]", "transport.ownership", "from 0 to 10000"),
        ("slice_bytes = 1432", "ownership = [true]", "transport.ownership", "number(s)"),
        ("slice_bytes = 1432", "contention = 1.0", "transport.contention", "below 1"),
        ("slice_bytes = 1432", 'collective = "tree"', "transport.collective", "'grid', 'stragglar', 'switch'"),
        ("slice_bytes = 1432", 'collective = "ring"', "transport.collective", "has servers"),
        ("slice_bytes = 1432", 'collective = "stragglar"', "transport.collective", "has servers"),
        ("slice_bytes = 1432", "straggler = 1", "transport.straggler", "goes with collective = 'stragglar'"),
        ('host = "h2"', 'host = "h2"\nprocesses = 0', "worker[1].processes", "from 1 to 64"),
        ('host = "h2"', 'host = "h2"\nprocesses = 2', "", "ranks 0 and 1 have 1 and 2 processes"),
        ('host = "h3"', 'host = "h3"\nprocesses = 2', "server[0].processes", "is not known here"),
        ('"10.0.2.2"', '"fd00::2"', "", "the IPv6 address fd00::2; all must be of one family"),
        ('"10.0.2.2"', '"fe80::2"', "worker[1].address", "IPv6 unicast"),
        ("pull = 0.0", "error_feedback = 1", "loss.error_feedback", "true or false"),
        (
            "pull = 0.0",
            "classes = [{ layers = [0, 3] }, { layers = [2, 5] }]",
            "loss.classes[1].layers",
            "overlaps [0, 3]",
        ),
        ("pull = 0.0", "classes = [{ layers = [0, 3], push = 1 }]", "loss.classes[0].push", "below 1"),
        ("pull = 0.0", "late = { steps = 2 }", "loss.late.after", "is missing"),
        ("pull = 0.0", "late = { after = 0.1, steps = 0 }", "loss.late.steps", "from 1 to 64"),
        ("pull = 0.0", "late = { after = 0.1, steps = 9, window = 9 }", "loss.late.steps", "from 1 to 8"),
        ("pull = 0.0", "late = { after = 9, steps = 2 }", "loss.late.after", "at most 5"),
        ("pull = 0.0", "pull = 0.1\nlate = { after = 0.1, steps = 2 }", "loss.late", "needs pull = 0"),
        ("pull = 0.0", "error_feedback = false\nlate = { after = 0.1, steps = 2 }", "loss.late", "error_feedback"),
        ("pull = 0.0", "adaptive = { threshold = 0 }", "loss.adaptive.threshold", "above 0"),
        ("pull = 0.0", "adaptive = { critical = 1 }", "loss.adaptive.critical", "below 1"),
        ("pull = 0.0", "adaptive = { windows = 1 }", "loss.adaptive.windows", "known: critical, threshold, window"),
        ("push = 0.03", "push = 1.0", "loss.push", "at least 0 and below 1"),
        ("push = 0.03", "push = -0.1", "loss.push", "at least 0 and below 1"),
        ("push = 0.03", "push = nan", "loss.push", "at least 0 and below 1"),
        ("pull = 0.0", 'pull = "none"', "loss.pull", "number"),
        ("priority = true", "priority = 1", "policy.priority", "true or false"),
        ("layers = [0, 3]", "layers = [3, 0]", "policy.queue_classes[0].layers", "0 <= first <= last <= 65535"),
        ("layers = [0, 3]", "layers = [0]", "policy.queue_classes[0].layers", "[first, last]"),
        ("layers = [0, 3]", "layers = [0, 4]", "policy.queue_classes[1].layers", "[4, 65535] overlaps [0, 4]"),
        ("class = 6", "class = 7", "policy.queue_classes[0].class", "from 0 to 6"),
        ("[64, 127]", "[64, 256]", "policy.drop_precedences[1].magnitudes", "<= 255"),
        ("[64, 127]", "[63, 127]", "policy.drop_precedences[1].magnitudes", "overlaps [0, 63]"),
        ("drop_precedence = 3", "drop_precedence = 0", "policy.drop_precedences[0].drop_precedence", "from 1 to 7"),
        ("yellow = 2", "yellow = 8", "policy.yellow", "from 1 to 7"),
        ("yellow = 2", "yellow = 2\nweight = 0", "policy.weight", "from 1 to 100"),
        ("yellow = 2", 'yellow = 2\non_congestion = "cut"', "policy.on_congestion", "one of 'drop', 'trim'"),
        ("yellow = 2", "yellow = 2\nspray = 1", "policy.spray", "true or false"),
        ("red = 1", "red = 3", "policy.yellow", "yellow >= red"),
        ("mask = 4095", "mask = 4094", "slots.mask", "2^n - 1"),
        ("base = 4096", "base = 61441", "slots.base", "below 65536, and is 65536"),
        ("[slots]", "[slot]", "slot", "is not known here"),
        ("[job]", "[job", "", "not valid TOML"),
    ],
)
def test_mistakes_are_named(old: str, new: str, key: str, reason: str) -> None:
    assert old in GOOD
    with pytest.raises(JobError) as caught:
        job.parse(GOOD.replace(old, new, 1), "j.toml")
    assert caught.value.file == "j.toml"
    assert caught.value.key == key
    assert reason in caught.value.reason
    *tables, last = key.split(".")
    line = caught.value.line
    if line is None:
        assert str(caught.value).startswith(f"j.toml: {key}" if key else "j.toml: ")
        assert not tables  # of the whole file, or of a table that is not there
        return
    assert str(caught.value).startswith(f"j.toml:{line}: {key}" if key else f"j.toml:{line}: ")
    if key:  # the key's own line, or, where it is missing, the beginning of its table
        named = GOOD.replace(old, new, 1).splitlines()[line - 1]
        assert (
            last.partition("[")[0] in named
            or f"{tables[-1]} = " in named
            or named.startswith((f"[{tables[0]}]", f"[[{tables[0].partition('[')[0]}]]"))
        )


def test_disjoint_layers_may_share_magnitudes() -> None:
    text = GOOD.replace("[0, 63], drop_precedence = 3", "[0, 127], drop_precedence = 3, layers = [11, 20]")
    assert len(job.parse(text, "j.toml").policy.drop_precedences) == 2


def test_a_job_has_workers() -> None:
    with pytest.raises(JobError, match=r"worker: is missing"):
        job.parse(MINIMAL.replace("[[worker]]", "[[server]]"), "j.toml")


def test_a_rank_that_does_not_exist_is_named() -> None:
    with pytest.raises(JobError, match=r"has no rank 3: ranks are 0 to 2"):
        job.parse(GOOD, "j.toml").member(3)


def test_a_job_has_no_more_ranks_than_the_core_takes() -> None:
    assert len(job.parse(ranks(wire.MAX_RANKS), "job.toml").workers) == wire.MAX_RANKS
    with pytest.raises(JobError, match=f"has {wire.MAX_RANKS + 1} ranks; at most {wire.MAX_RANKS}"):
        job.parse(ranks(wire.MAX_RANKS + 1), "job.toml")


def test_a_host_has_no_more_processes_than_the_core_takes() -> None:
    most = lib.GL_MAX_PROCESSES
    with_processes = GOOD.replace('host = "h1"', 'host = "h1"\nprocesses = PROCESSES')
    with_processes = with_processes.replace('host = "h2"', 'host = "h2"\nprocesses = PROCESSES')
    assert job.parse(with_processes.replace("PROCESSES", str(most)), "job.toml").processes == most
    with pytest.raises(JobError, match=f"is {most + 1}; it must be an integer from 1 to {most}"):
        job.parse(with_processes.replace("PROCESSES", str(most + 1)), "job.toml")


@pytest.mark.parametrize(
    "worker",
    [
        ('a"\nprocesses = 1\n[loss]\npush = 0.9\n#', "10.0.1.2", 1),
        ("a", '10.0.1.2"\n[job]\nkey = "', 1),
        ("a", "10.0.1.2", "1\n[loss]\npush = 0.9"),
        ({"a": 1}, "10.0.1.2", 1),
        ("\u007f", "10.0.1.2", 1),
    ],
)
def test_what_fills_a_template_gets_into_no_other_key(worker: Any) -> None:
    template = MINIMAL[: MINIMAL.index("[[worker]]")] + MINIMAL[MINIMAL.index("[transport]") :]
    assert job.parse(job.fill(template, [("a", "10.0.1.2", 1)]), "j.toml").loss.push == 0
    with pytest.raises(JobError, match=r"worker\[0\]|not valid TOML"):
        job.parse(job.fill(template, [worker]), "j.toml")


def test_several_jobs_are_made_of_one_template() -> None:
    template = '# id = 9\n[job]\nname = "id-7"\n  id = 5    # id = 3\nkey = "%s"\n[transport]\nrate = "1gbit"\n' % (
        "1f" * 16
    )
    members = [("a", "10.0.1.2", 1)]
    one, other = (
        job.parse(job.fill(it, members), "j.toml") for it in (template, job.renumbered(template, "j.toml", 3))
    )
    assert (one.id, other.id) == (5, 8)
    assert dataclasses.replace(other, id=5, text=one.text) == one


@pytest.mark.parametrize("line", ["", "id = 5\nid = 6", "id = 0x5", 'id = "5"'])
def test_a_template_of_several_jobs_has_one_plain_id(line: str) -> None:
    with pytest.raises(JobError, match=r"j.toml: job.id: several jobs are made of this file, so `id = NUMBER` must be"):
        job.renumbered(f"[job]\n{line}\n", "j.toml", 1)
