# SPDX-License-Identifier: Apache-2.0
"""What shows the state of a running controller: `status`, `counters`, `links`, `violations`."""

import argparse
import json
from typing import Any

from gradlane_controller import client
from gradlane_controller.commands import flags
from gradlane_controller.commands.tables import format_counters, format_table
from gradlane_controller.data_plane import BUCKETS, CLASSES


def add(command: flags.Add) -> None:
    """Their flags."""
    for name, function, text in (
        ("status", _status, "show which switches are up to date, and the jobs"),
        ("counters", _counters, "show the switches' counters, with names"),
        ("links", _links, "show which links work, since when, and what traffic they have, by queue class"),
        ("violations", _violations, "show gradients that the guard refused: from where, of which job, how often"),
    ):
        parser = command(name, function, f"{text} (asks a running controller)")
        client.add_flags(parser)
        parser.add_argument("--json", action="store_true", help="as JSON")


def _counters(options: argparse.Namespace) -> int:
    answer = client.of_flags(options).get("/v1/counters", {"decisions", "drop_map", "senders", "sums"})
    print(json.dumps(answer, indent=2) if options.json else format_counters(answer))
    return 0


def _links(options: argparse.Namespace) -> int:
    answer = client.of_flags(options).get("/v1/links", {"checked", "links"})
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    rows = [
        (
            " - ".join(it["ends"]),
            "works" if it["up"] else f"nothing arrives at {' and '.join(it['deaf'])}",
            it["since"],
            " - ".join("?" if load is None else f"{load / 1e6:.1f}" for load in it["load"]),
        )
        for it in answer["links"]
    ]
    head = ("ends", "state", "since", "others send, Mbit/s")
    print(format_table("links" if answer["checked"] else "links (not checked)", head, rows), end="\n\n")
    print(format_table("sent, Mbit/s", ("end", "all", "trees", *map(str, range(CLASSES))), _sent_rows(answer["links"])))
    return 0


def _sent_rows(links: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    """By end: all that it sends, what of it follows trees, and all by queue class."""
    rows: list[tuple[str, ...]] = []
    for it in links:
        for end, classes, trees in zip(it["ends"], it["sent"], it["trees"], strict=True):
            known = [] if classes is None else [sum(classes), trees, *classes]
            shown = [f"{bits / 1e6:.1f}" for bits in known] or ["?"] * (2 + CLASSES)
            rows.append((end, *shown))
    return rows


def _violations(options: argparse.Namespace) -> int:
    answer = client.of_flags(options).get("/v1/violations", {"violations"})
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    rows = [
        (it["switch"], it["port"], it["host"] or "?", it["source"], it["job"] or it["job_id"], it["times"])
        for it in answer["violations"]
    ]
    print(format_table("refused gradients", ("switch", "port", "host", "source", "job", "reports"), rows))
    return 0


def _status(options: argparse.Namespace) -> int:
    answer = client.of_flags(options).get("/v1/status", {"ready", "switches", "jobs"})
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    switches = [
        (
            it["name"],
            it["address"],
            it["target"],
            sum(it["entries"].values()),
            ("drained, " if it["drained"] else "") + ("ready" if it["ready"] and not it["refused"] else it["problem"]),
        )
        for it in answer["switches"]
    ]
    print(format_table("switches", ("name", "address", "target", "entries", "state"), switches))
    jobs = [
        (
            it["name"],
            it["id"],
            it["index"],
            " ".join(it["workers"]),
            " ".join(it["servers"]) or "-",
            _describe_sums(it["sums"]),
        )
        for it in answer["jobs"]
    ]
    print(format_table("jobs", ("name", "id", "index", "workers", "servers", "summed in"), jobs))
    return 0


def _describe_sums(sums: dict[str, Any] | None) -> str:
    if sums is None:
        return "-"
    if sums["reason"]:
        return f"its hosts: {sums['reason']}"
    roots = [f"{root} ({buckets} of {BUCKETS})" for root, buckets in sums["roots"].items()]
    others = [name for name in sums["switches"] if name not in sums["roots"]]
    where = f"{', '.join(others)} below {', '.join(roots)}" if others else ", ".join(sums["switches"])
    return f"{where}, slots {sums['slots'][0]} to {sums['slots'][1]}"
