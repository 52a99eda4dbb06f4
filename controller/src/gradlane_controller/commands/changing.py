# SPDX-License-Identifier: Apache-2.0
"""What changes what a running controller wants: `plan`, `apply`, `drain`, `undrain`, `export`."""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from gradlane import GradlaneError, job, toml_file
from gradlane_controller import client
from gradlane_controller.commands import flags
from gradlane_controller.commands.flags import UsageError
from gradlane_controller.commands.tables import format_table

_JSON = "application/json"
_SECONDS = 60.0  # a drain waits for every switch
_PLAN = {"live", "switches", "not_summed"}


def add(command: flags.Add) -> None:
    """Their flags."""
    plan = command(
        "plan", _plan, "show what would change if the files were read again, or a job was put; changes nothing"
    )
    plan.add_argument("--job", type=Path, metavar="FILE", help="a job file to put, instead of reading the files again")
    plan.add_argument("--live", action="store_true", help="compare with what the switches do hold: it is read")
    plan.add_argument("--json", action="store_true", help="as JSON")
    apply = command(
        "apply", _apply, "put jobs into a running controller, after showing what would change: all or nothing"
    )
    apply.add_argument("--job", type=Path, action="append", default=[], metavar="FILE", help="a job file; repeatable")
    apply.add_argument("--fabric", action="store_true", help="have it read its fabric file and job files again, too")
    apply.add_argument("--yes", action="store_true", help="do not ask first; needed where there is no terminal")
    drain = command("drain", _drain, "lead traffic around a switch, so that it may go, until `undrain`")
    undrain = command("undrain", _undrain, "use a drained switch again")
    for parser in (drain, undrain):
        parser.add_argument("switch", metavar="SWITCH", help="its name in the fabric file")
        parser.add_argument("--json", action="store_true", help="as JSON")
    export = command(
        "export", _export, "write what the controller wants as files that `run` takes: fabric.toml, and a JOB.toml each"
    )
    export.add_argument("folder", type=Path, metavar="FOLDER", help="a new folder, or an empty one")
    for parser in (plan, apply, drain, undrain, export):
        client.add_flags(parser)


def _plan(options: argparse.Namespace) -> int:
    asked, path = _controller(options), f"/v1/plan?live={str(options.live).lower()}"
    if options.job is None:
        answer = asked.get(path, _PLAN)
    else:
        answer = asked.post(path, toml_file.read(job.JobError, options.job), _PLAN)
    if options.json:
        print(json.dumps(answer, indent=2))
    else:
        _show(answer)
    return 0


def _show(answer: dict[str, Any]) -> None:
    """What a plan says, for people."""
    for it in answer["switches"]:
        if it["problem"]:
            print(f"switch {it['name']} was not compared: {it['problem']}", end="\n\n")
        elif it["changes"]:
            rows = [(each["change"], each["table"], each["key"], _from_to(each)) for each in it["changes"]]
            print(format_table(f"switch {it['name']}", ("change", "table", "key", "action"), rows), end="\n\n")
    for name, reason in answer["not_summed"].items():
        print(f"job {name!r} would be reduced by its hosts, not by a switch: {reason}")
    for it in answer["switches"]:
        counts = Counter(each["change"] for each in it["changes"])
        print(f"{it['name']}: {', '.join(f'{counts[kind]} to {kind}' for kind in ('insert', 'modify', 'delete'))}")


def _from_to(change: dict[str, str]) -> str:
    if change["change"] == "modify":
        return f"{change['before'] or '-'} -> {change['after']}"
    return change["after"] or change["before"]


def _apply(options: argparse.Namespace) -> int:
    texts = [toml_file.read(job.JobError, file) for file in options.job]
    for text, file in zip(texts, options.job, strict=True):
        job.parse(text, str(file))  # errors name the file that is here
    if not texts and not options.fabric:
        raise UsageError("apply: nothing to apply; name job files with --job, or --fabric to have the files read again")
    asked, body = _controller(options), json.dumps({"jobs": texts, "files": options.fabric})
    answer = asked.post("/v1/plan", body, _PLAN, _JSON)
    _show(answer)
    if not options.yes and not _agreed():
        print("nothing was changed")
        return 1
    done = asked.post("/v1/apply", body, {"jobs"}, _JSON)
    print(f"applied: {', '.join([*done['jobs'], *(['the files, read again'] if options.fabric else [])])}")
    return 0


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("apply: there is no terminal to ask at; pass --yes to change it without a question")
    try:
        return input("change it? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _drain(options: argparse.Namespace) -> int:
    """Its exit code is 0 if the switch may go."""
    keys = {"switch", "may_go", "waits_for", "hosts", "jobs", "not_summed"}
    it = _controller(options).post(f"/v1/switches/{_name(options)}/drain", None, keys)
    if options.json:
        print(json.dumps(it, indent=2))
        return 0 if it["may_go"] else 1
    name = it["switch"]
    for problem in it["waits_for"]:
        print(f"may still send through {name}: {problem}; repeat this when it is back")
    if it["hosts"]:
        affected = f"these jobs stop when it goes: {', '.join(it['jobs'])}" if it["jobs"] else "no job is on them"
        print(f"{name} has hosts, which can't move: {', '.join(it['hosts'])}; {affected}")
    for name_of_job, reason in it["not_summed"].items():
        print(f"job {name_of_job!r} is reduced by its hosts, not by a switch: {reason}")
    print(f"{name} is drained" + (": it may go now" if it["may_go"] else ", as far as that is possible"))
    return 0 if it["may_go"] else 1


def _undrain(options: argparse.Namespace) -> int:
    it = _controller(options).post(f"/v1/switches/{_name(options)}/undrain", None, {"switch", "waits_for"})
    if options.json:
        print(json.dumps(it, indent=2))
        return 0
    for problem in it["waits_for"]:
        print(f"does not use {it['switch']} yet: {problem}")
    print(f"{it['switch']} is used again")
    return 0


def _controller(options: argparse.Namespace) -> client.Client:
    return client.of_flags(options, seconds=_SECONDS)


def _name(options: argparse.Namespace) -> str:
    """As a part of a path: a name of the fabric file has no other letters."""
    if not toml_file.is_name(options.switch):
        raise UsageError(f"SWITCH: {options.switch!r} can be no switch's name")
    return options.switch


def _export(options: argparse.Namespace) -> int:
    answer = _controller(options).get("/v1/export", {"fabric", "jobs", "drained"})
    files = {"fabric.toml": answer["fabric"], **{f"job-{name}.toml": text for name, text in answer["jobs"].items()}}
    folder: Path = options.folder
    try:
        folder.mkdir(exist_ok=True)
        if any(folder.iterdir()):
            raise UsageError(f"export: {folder} is not empty; name a new folder")
        for name, text in files.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                (folder / name).chmod(0o600)  # job files have keys
                file.write(text)
    except OSError as problem:
        raise GradlaneError(f"{problem.filename}: can't be written: {problem.strerror}") from None
    jobs = "".join(f" --job {folder / name}" for name in list(files)[1:])
    print(f"gradlane-controller run --fabric {folder / 'fabric.toml'}{jobs}")
    if answer["drained"]:
        print(f"drained, which files do not say: {', '.join(answer['drained'])}", file=sys.stderr)
    return 0
