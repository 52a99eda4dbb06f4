# SPDX-License-Identifier: Apache-2.0
"""What looks at files alone: `validate`, `check`, `schema`."""

import argparse
import json
import sys
from pathlib import Path

from gradlane import job, toml_file
from gradlane.job import Job
from gradlane.job.schema import job_schema
from gradlane.toml_file import FileError
from gradlane_controller.api import listening
from gradlane_controller.commands import flags, reloading, run
from gradlane_controller.commands.flags import UsageError
from gradlane_controller.commands.tables import format_table
from gradlane_controller.desired.describing import describe
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.desired.plan import load_jobs, make_plan
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import Fabric
from gradlane_controller.network.fabric_file import FabricError
from gradlane_controller.network.fabric_schema import fabric_schema
from gradlane_controller.trainings.templates import Templates


def add(command: flags.Add) -> None:
    """Their flags."""
    validate = command(
        "validate", _validate, "check fabric and job files, alone and together; tells all mistakes it finds"
    )
    validate.add_argument("files", type=Path, nargs="*", metavar="FILE", help="a fabric file, job files, or both")
    validate.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="check the configuration of a controller, and all files that it names",
    )
    flags.programs(validate)
    check = command("check", _check, "check the files and show what would be written; needs no switch")
    flags.files(check)
    flags.programs(check)
    check.add_argument("--json", action="store_true", help="as JSON")
    schema = command("schema", _schema, "print the JSON schema of a kind of file, for editors (docs/files.md)")
    schema.add_argument("kind", choices=tuple(_SCHEMAS), help="the kind of file")


def _validate(options: argparse.Namespace) -> int:
    """Exit code 2 after all mistakes: of each file, and if each is good by itself, of them together."""
    files, p4_dir = list[Path](options.files), options.p4_dir
    problems: list[FileError] = []
    if options.config is not None:
        configured = _configured(options.config)
        files += [configured.fabric, *configured.job]
        p4_dir = configured.p4_dir
        try:
            Templates(configured.template)
        except FileError as problem:
            problems.append(problem)
    elif not files:
        raise UsageError("validate: name files to check, or a controller's configuration with --config")
    fabrics: list[Fabric] = []
    jobs: list[Job] = []
    for file in files:
        try:
            text = toml_file.read(FabricError, file)
            if fabric_file.is_fabric(text, str(file)):
                fabrics.append(fabric_file.parse(text, str(file)))
            else:
                jobs.append(job.parse(text, str(file)))
        except FileError as problem:
            problems += [problem, *problem.others]
    if len(fabrics) > 1:
        problems.append(FabricError(fabrics[1].file, "", f"is a second fabric file beside {fabrics[0].file}; name one"))
    if not problems and fabrics:
        try:
            make_plan(Programs(p4_dir), fabrics[0], load_jobs([Path(it.file) for it in jobs]))
        except FileError as problem:
            problems.append(problem)
    for problem in problems:
        print(f"gradlane-controller: error: {problem}", file=sys.stderr)
    if problems:
        return 2
    together = "" if fabrics or len(jobs) < 2 else ", each by itself: whether they fit together depends on the fabric"
    checked = [*([options.config] if options.config else []), *files]
    print(f"good: {', '.join(map(str, checked))}{together}")
    return 0


def _configured(config: Path) -> argparse.Namespace:
    """What a controller would run with. Raises ConfigError, UsageError or ListeningError."""
    found = run.configured(config)
    tls = reloading.tls_files(found)
    host, _ = flags.parse_endpoint(found.http)
    listening.check_address(host, tls=tls is not None, insecure=found.insecure)
    if tls is not None:
        listening.context(tls)
    return found


def _check(options: argparse.Namespace) -> int:
    fabric = fabric_file.load(options.fabric)
    jobs = load_jobs(options.job)
    plan = make_plan(Programs(options.p4_dir), fabric, jobs)
    rows = {name: [describe(entity) for entity in entities] for name, entities in plan.entities.items()}
    if options.json:
        keys = ("switch", "table", "key", "action")
        found = [dict(zip(keys, (name, *row), strict=True)) for name, some in rows.items() for row in some]
        print(json.dumps(found, indent=2))
        return 0
    for switch in fabric.switches:
        title = f"switch {switch.name} at {switch.address} would hold"
        print(format_table(title, ("table", "key", "action"), sorted(rows[switch.name])), end="\n\n")
        counts = plan.counts[switch.name]
        print(f"{switch.name}: {', '.join(f'{count} {name}' for name, count in counts.items())}", end="\n\n")
    for name, reason in plan.not_summed().items():
        print(f"job {name!r} is reduced by its hosts, not by a switch: {reason}")
    print(f"switches: {len(fabric.switches)}; jobs: {len(jobs)}")
    return 0


_SCHEMAS = {"fabric": fabric_schema, "job": job_schema}


def _schema(options: argparse.Namespace) -> int:
    print(json.dumps(_SCHEMAS[options.kind](), indent=2))
    return 0
