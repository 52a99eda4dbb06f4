# SPDX-License-Identifier: Apache-2.0
"""`tuning`: how jobs are tuned by what is seen of them, and taking that back."""

import argparse
import json
from typing import Any

from gradlane import toml_file
from gradlane_controller import client
from gradlane_controller.commands import flags
from gradlane_controller.commands.flags import UsageError
from gradlane_controller.commands.tables import format_table

_JOB = {"name", "text", "state", "undoable", "reason"}


def add(command: flags.Add) -> None:
    """Its flags."""
    parser = command("tuning", _tuning, "show how jobs are tuned by what is seen of them, or take a change back")
    parser.add_argument(
        "action", nargs="?", choices=("undo", "resume"), help="take the latest change back and hold, or go on"
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help="of which job")
    parser.add_argument("--json", action="store_true", help="as JSON")
    client.add_flags(parser)


def _tuning(options: argparse.Namespace) -> int:
    asked = client.of_flags(options)
    if options.action is None:
        answer = asked.get("/v1/adaptive", {"bounds", "jobs"})
        print(json.dumps(answer, indent=2) if options.json else _shown(answer))
        return 0
    if options.job is None or not toml_file.is_name(options.job):
        raise UsageError(f"tuning: {options.action} needs the name of a job, as `gradlane-controller status` shows it")
    it = asked.post(f"/v1/adaptive/{options.job}/{options.action}", None, _JOB)
    print(json.dumps(it, indent=2) if options.json else f"{it['name']}: {it['text']}, {it['state']}")
    return 0


def _shown(answer: dict[str, Any]) -> str:
    if answer["bounds"] is None:
        return "no job is tuned: the fabric file has no [adaptive]"
    rows = [(it["name"], it["text"], it["state"], it["undoable"], it["reason"] or "-") for it in answer["jobs"]]
    return format_table("tuning", ("job", "treated", "state", "to undo", "latest change"), rows)
