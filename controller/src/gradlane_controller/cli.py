# SPDX-License-Identifier: Apache-2.0
"""The command line. Exit codes: 0, 1 (the switch or the running controller), 2 (a flag or a file), 130 (interrupted),
141 (nobody reads what it prints)."""

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

from gradlane import hangup, output
from gradlane.errors import GradlaneError

# Modules of `commands`, and which each adds.
SUBJECTS = {
    "run": ("run",),
    "validating": ("validate", "check", "schema"),
    "changing": ("plan", "apply", "drain", "undrain", "export"),
    "looking": ("status", "counters", "links", "violations"),
    "top": ("top",),
    "tuning": ("tuning",),
    "token": ("token",),
    "backup": ("backup", "restore"),
}
_EXAMPLES = """examples:
  gradlane-controller validate fabric.toml job.toml
  gradlane-controller run --fabric fabric.toml --job job.toml --http 127.0.0.1:9560
  gradlane-controller apply --job other.toml
  gradlane-controller drain spine1
  gradlane-controller top
  gradlane-controller counters --json
  gradlane-controller token create prometheus --token-file fabric.db.token
  curl -H "Authorization: Bearer $(cat fabric.db.token)" -H 'Content-Type: application/toml' \\
    --data-binary @other.toml http://127.0.0.1:9560/v1/jobs
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    with hangup.kept(serving=given[:1] == ["run"]):
        return output.whole(lambda: _run(given))


def _run(arguments: Sequence[str]) -> int:
    from gradlane.toml_file import FileError
    from gradlane_controller.api.listening import ListeningError
    from gradlane_controller.client import AddressError
    from gradlane_controller.commands.flags import UsageError
    from gradlane_controller.errors import PipelineError

    options = make_parser(*arguments[:1]).parse_args(arguments)
    try:
        return options.command(options)
    except KeyboardInterrupt:
        return 130
    except FileError as problem:
        for each in (problem, *problem.others):
            print(f"gradlane-controller: error: {each}", file=sys.stderr)
        return 2
    except (PipelineError, UsageError, AddressError, ListeningError) as problem:
        print(f"gradlane-controller: error: {problem}", file=sys.stderr)
        return 2
    except GradlaneError as problem:
        print(f"gradlane-controller: error: {problem}", file=sys.stderr)
        return 1


def make_parser(asked: str = "") -> argparse.ArgumentParser:
    """The parser of the command line, or of one command alone: what others import takes longer than most of them."""
    from gradlane.commands import completion

    parser = argparse.ArgumentParser(
        prog="gradlane-controller",
        description="Fill the tables of P4Runtime switches from a fabric file and job files, and keep them so.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('gradlane-controller')}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=function)
        return command

    for subject, names in SUBJECTS.items():
        if asked in names or not any(asked in each for each in SUBJECTS.values()):
            importlib.import_module(f"gradlane_controller.commands.{subject}").add(add)
    text = "print a script with which a shell completes commands, flags and files"
    completion.add(commands.add_parser("completion", help=text, description=f"{text.capitalize()}."), parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
