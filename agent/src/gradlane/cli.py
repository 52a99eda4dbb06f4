# SPDX-License-Identifier: Apache-2.0
"""The command `gradlane`. Exit codes: 0, 1 (the agent, a job or a check), 2 (a flag or a file), 130 (interrupted), 141
(nobody reads what it prints)."""

import argparse
import importlib
import sys
from importlib.metadata import version

from gradlane import hangup, output, systemd
from gradlane.commands import completion
from gradlane.doctor.host import instructions
from gradlane.errors import GradlaneError
from gradlane.toml_file import FileError

EXAMPLES = """examples:
  gradlane agent --address 10.0.1.2                     the daemon; one per training host
  gradlane config check /etc/gradlane/agent.toml        is this configuration valid?
  gradlane doctor --job job.toml                        is this host ready for the job, and what to fix
  gradlane top                                          watch the agent live
  gradlane status --json                                its status once, for scripts
  gradlane serve --job job.toml --rank 4                aggregate for a job (parameter-server mode)
"""
COMMANDS = {
    "agent": "run the daemon that serves this host's training processes",
    "config": "check the daemon's configuration file",
    "status": "show what the agent is doing, once",
    "top": "watch the agent live: rates, loss, repairs, budgets and round trips by peer and layer class",
    "doctor": "check this host, its agent and the path to a job's peers, and say how to fix what is wrong",
    "serve": "serve as one server of a job, until its workers have left",
}


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="gradlane",
        description="Gradient-aware transport for distributed training: the host agent.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gradlane {version('gradlane')}: {instructions()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        importlib.import_module(f"gradlane.commands.{name}").add(
            commands.add_parser(name, help=text, description=f"{text.capitalize()}.")
        )
    text = "print a script with which a shell completes commands, flags and files"
    completion.add(commands.add_parser("completion", help=text, description=f"{text.capitalize()}."), parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Entry point. Returns the exit code; an error is one line on stderr."""
    given = sys.argv[1:] if arguments is None else arguments
    with hangup.kept(serving=given[:1] == ["agent"]):
        return output.whole(lambda: _run(given))


def _run(arguments: list[str]) -> int:
    options = make_parser().parse_args(arguments)
    try:
        return options.command(options)
    except KeyboardInterrupt:
        return 130
    except GradlaneError as error:
        level = "<3>" if systemd.journal_reads_stderr() else ""
        print(f"{level}gradlane: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, FileError) else 1


if __name__ == "__main__":
    sys.exit(main())
