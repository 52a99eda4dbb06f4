# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of job files, of the limits that the modules beside this one check."""

from gradlane import toml_schema as it
from gradlane import wire
from gradlane.job import file, policy, sync, transport
from gradlane.job.costs import CONTENTION
from gradlane.job.elements import FLOATS
from gradlane.job.loss import MAX_LATE_SECONDS, MAX_LATE_STEPS, MAX_WINDOW
from gradlane.job.racks import MOST_OVERSUBSCRIPTION
from gradlane.toml_schema import Schema


def job_schema() -> Schema:
    """Of the whole file; docs/files.md explains the keys."""
    return it.document(
        "Gradlane job file",
        {
            "job": _job(),
            "worker": it.tables(_member("A worker", processes=True), wire.MAX_RANKS),
            "server": it.tables(_member("A parameter server", processes=False), wire.MAX_RANKS),
            "transport": _transport(),
            "loss": _loss(),
            "policy": _policy(),
            "slots": _slots(),
            "sync": _sync(),
        },
        ("job", "transport"),
    )


def _job() -> Schema:
    key = it.string("Secret of the job: openssl rand -hex 16", "(?:[0-9A-Fa-f]{2}){16,64}")
    patience = "Seconds that the job waits for a late worker"
    keys = {
        "name": it.name("Its name in the fabric"),
        "id": it.integer("Its number on the wire", 1, 65535),
        "key": key,
        "deaths": it.choice("What the death of a rank does", file.DEATHS, "end"),
        "patience": it.integer(patience, file.MIN_PATIENCE, file.MAX_PATIENCE, file.DEFAULT_PATIENCE),
    }
    return it.table("The job", keys, ("name", "id"))


def _member(text: str, *, processes: bool) -> Schema:
    keys = {
        "rank": it.integer("From 0, in the order of the file; servers follow the workers", 0, 65535),
        "host": it.name("As the fabric file names it"),
        "address": it.any_address("Of the host; all of one family"),
    }
    if processes:
        keys["rack"] = it.integer("Workers of one number are near one another", 0, file.MAX_RACK)
        keys["processes"] = it.integer("Training processes of the job on this host", 1, file.MAX_PROCESSES, 1)
    return it.table(text, keys, ("rank", "host", "address"))


def _transport() -> Schema:
    weights = {"type": "array", "items": it.integer("", 0, transport.MAX_SHARE), "minItems": 1}
    largest = transport.largest_slice(transport.MAX_PACKET, 4)
    slots = transport.SUM_SLOTS
    keys = {
        "rate": it.rate("Of each host's link"),
        "buffer": it.size("Of a port of the fabric", transport.DEFAULT_BUFFER),
        "slice_bytes": it.integer_or("Payload of a datagram, a multiple of 8", "auto", 64, largest),
        "wire": it.choice("Elements on the wire; integers where a switch sums", (*FLOATS, *transport.LANES), "float32"),
        "collective": it.choice("Algorithm of all-reduces", transport.COLLECTIVES, "auto"),
        "straggler": it.integer("Of 'stragglar': the rank that is late", 0, transport.MAX_STRAGGLAR - 1),
        "multicast": it.string("Aggregator k sends its results to this address + k"),
        "tagging": it.choice("Who writes DSCP and ECN", ("switch", "host"), "switch"),
        "trace_every": it.integer(
            "Messages from one trace to the next", 0, transport.MAX_TRACE_EVERY, transport.DEFAULT_TRACE_EVERY
        ),
        "ownership": {
            "description": "Who reduces how much of a tensor",
            "anyOf": [it.choice("", ("even", "adaptive"), "even"), weights],
        },
        "contention": it.fraction("Part of a port that is lost where many senders meet", CONTENTION),
        "oversubscription": it.number(
            "How many times what a rack's links to others carry its hosts can send", 0.0, MOST_OVERSUBSCRIPTION, 1.0
        ),
        "sum_window": it.integer(
            "Slices of a tensor on their way to a switch that sums", 4, slots // 2, transport.DEFAULT_SUM_WINDOW
        ),
        "sum_slots": it.integer("Slices that it can hold for the job", 8, slots, transport.DEFAULT_SUM_SLOTS),
    }
    return it.table("How gradients travel", keys, ("rate",))


def _loss() -> Schema:
    push, pull = it.fraction("Of a worker's contributions"), it.fraction("Of results")
    layers = it.span("First and last layer", 0, policy.MAX_LAYER)
    adaptive = {
        "critical": it.fraction("The tolerance is multiplied by this in critical phases", 0.1),
        "threshold": it.number("Relative change of the norm from a window to the next", 0.0, 1000.0, 0.5),
        "window": it.integer("Steps", 1, MAX_WINDOW, 10),
    }
    late = {
        "after": it.number("Seconds after half of the workers", 0.0005, MAX_LATE_SECONDS),
        "steps": it.integer("Of how many steps it may be left out", 1, MAX_LATE_STEPS),
        "window": it.integer("... of that many consecutive ones", 2, MAX_WINDOW, 100),
    }
    keys = {
        "push": {**push, "default": 0.0},
        "pull": {**pull, "default": 0.0},
        "error_feedback": it.boolean("What is lost is added to the next step's gradient", True),
        "classes": it.tables(
            it.table("Layers of a tolerance of their own", {"layers": layers, "push": push, "pull": pull}, ("layers",)),
            policy.MAX_RANGES,
        ),
        "adaptive": it.table("Less loss in critical phases", adaptive),
        "late": it.table("A step goes on without a worker that is late", late, ("after", "steps")),
    }
    return it.table("Which fraction of a message may be missing", keys)


def _policy() -> Schema:
    layers = it.span("First and last layer", 0, policy.MAX_LAYER)
    queue_class = {"layers": layers, "class": it.integer("Queue class", 0, policy.HIGHEST_GRADIENT_CLASS)}
    precedence = {
        "layers": {**layers, "default": [0, policy.MAX_LAYER]},
        "magnitudes": it.span("First and last magnitude", 0, policy.MAX_MAGNITUDE),
        "drop_precedence": it.integer("Higher is dropped first", 1, 7),
    }
    keys = {
        "priority": it.boolean("false: everything in best effort", True),
        "queue_classes": it.tables(it.table("", queue_class, ("layers", "class")), policy.MAX_RANGES),
        "drop_precedences": it.tables(it.table("", precedence, ("magnitudes", "drop_precedence")), policy.MAX_RANGES),
        "yellow": it.integer("Lowest drop precedence that is dropped at the first threshold", 1, 7, 2),
        "red": it.integer("... at the second", 1, 7, 1),
        "weight": it.integer("The job's share of a port that several use", 1, policy.MAX_WEIGHT, 1),
        "on_congestion": it.choice("What becomes of droppable slices", ("drop", "trim"), "drop"),
        "spray": it.boolean("false: all slices of a flow take the same path", True),
    }
    return it.table("What the network may do to the gradients", keys)


def _slots() -> Schema:
    masks = [(1 << bits) - 1 for bits in range(file.BUDGET_SLOTS.bit_length())]
    keys = {
        "base": it.integer("The first", 0, file.BUDGET_SLOTS - 1, 0),
        "mask": {"description": "How many, less one: 2^n - 1", "enum": masks, "default": 4095},
    }
    return it.table("Of the switches' budget registers; jobs must not overlap", keys)


def _sync() -> Schema:
    every, delay = sync.MAX_EVERY, it.integer("Steps after which a result is mixed in", 0, 1, 0)
    local = {
        "fragments": it.integer("Parts of the model with exchanges at different times", 1, every, 1),
        "delay": it.integer("Steps after which a result is mixed in", 0, every - 1, 0),
        "alpha": it.fraction("Share of a worker's own parameters", 0.0),
    }
    outer = {
        "outer_rate": it.number("Of the outer optimizer", 0.0, 10.0, 0.7),
        "outer_momentum": it.fraction("Of the outer optimizer", 0.9),
    }
    options: dict[str, dict[str, Schema]] = {
        "ds-sync": {"schedule": it.choice("Of groups", ("grid", "pairs"), "grid"), "delay": delay},
        "local-sgd": {"every": it.integer("Local steps of a round", 1, every, 8), **local},
        "diloco": {"every": it.integer("Local steps of a round", 1, every, 500), **local, **outer},
        "ad-psgd": {"seed": it.integer("Of the pairs", 0, sync.MAX_SEED, 0)},
        "ripples": {
            "members": it.integer("Of a group, at most", 2, sync.MAX_MEMBERS, 3),
            "slack": it.integer("Steps that a worker may be behind", 0, every, 2),
            "delay": delay,
        },
        "ringmaster": {"staleness": it.integer("Changes so far behind are left out", 1, every, 16)},
    }
    ways = [
        it.table("", {"scheme": {"const": scheme}, **options.get(scheme, {})}, ("scheme",)) for scheme in sync.SCHEMES
    ]
    return {"description": "Workers take local steps, and average now and then", "oneOf": ways}
