# SPDX-License-Identifier: Apache-2.0
"""`[sync]` of a job file: which scheme of `gradlane.sync` the workers follow, and its options."""

from dataclasses import dataclass

from gradlane.toml_file import Table

SCHEMES = ("ds-sync", "local-sgd", "diloco", "ad-psgd", "ripples", "acco", "ringmaster", "r-fast")
SURVIVING = ("ripples",)  # which can go on without a worker that is dead
MAX_EVERY = 1_000_000
MAX_MEMBERS = 256
MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class Sync:
    """`options`: of the scheme, all of them, by the names that `gradlane.sync` has for them."""

    scheme: str
    options: dict[str, str | int | float]


def parse(table: Table) -> Sync:
    """Takes the table apart. Raises the table's error."""
    scheme = table.choice("scheme", SCHEMES)
    options: dict[str, str | int | float] = {}
    if scheme == "ds-sync":
        options["schedule"] = table.choice("schedule", ("grid", "pairs"), "grid")
    elif scheme == "ad-psgd":
        options["seed"] = table.integer("seed", 0, MAX_SEED, 0)
    elif scheme == "ripples":
        options["members"] = table.integer("members", 2, MAX_MEMBERS, 3)
        options["slack"] = table.integer("slack", 0, MAX_EVERY, 2)
    elif scheme == "ringmaster":
        options["staleness"] = table.integer("staleness", 1, MAX_EVERY, 16)
    if scheme in ("ds-sync", "ripples"):
        options["delay"] = table.integer("delay", 0, 1, 0)
    if scheme in ("local-sgd", "diloco"):
        options["every"] = every = table.integer("every", 1, MAX_EVERY, 8 if scheme == "local-sgd" else 500)
        options["fragments"] = table.integer("fragments", 1, every, 1)
        options["delay"] = table.integer("delay", 0, every - 1, 0)
        options["alpha"] = table.fraction("alpha", 0.0)
    if scheme == "diloco":
        options["outer_rate"] = table.number("outer_rate", 0.0, 10.0, 0.7)
        options["outer_momentum"] = table.fraction("outer_momentum", 0.9)
    table.finish()
    return Sync(scheme, options)
