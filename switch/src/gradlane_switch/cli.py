# SPDX-License-Identifier: Apache-2.0
"""The command `gradlane-switch`."""

from __future__ import annotations

import argparse
import signal
import sys
from importlib.metadata import version

from gradlane import hangup, output
from gradlane.errors import GradlaneError
from gradlane_switch.errors import PortError, ProgramError, SwitchError, UsageError

_COMMANDS = {
    "port": "list and change the ports of a running switch",
    "trace": "show what happens to packets, and why: parser states, keys, entries, actions, queues, drops",
    "completion": "print a script with which a shell completes commands, flags and files",
}


def main() -> int:
    """Runs the command that the arguments name, or the switch itself if they name none.

    The exit status is 2 for bad arguments, files or ports, 1 for anything else that went wrong.
    """
    with hangup.kept(serving=sys.argv[1:2] not in [[name] for name in _COMMANDS]):
        return output.whole(_run)


def _run() -> int:
    from gradlane.toml_file import FileError

    options = make_parser().parse_args()
    try:
        return options.command(options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (ProgramError, PortError, UsageError, FileError) as error:
        print(f"gradlane-switch: error: {error}", file=sys.stderr)
        return 2
    except (SwitchError, GradlaneError) as error:
        print(f"gradlane-switch: error: {error}", file=sys.stderr)
        return 1


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    from gradlane.commands import completion
    from gradlane_switch.commands import port, run, trace

    parser = argparse.ArgumentParser(
        prog="gradlane-switch",
        usage="%(prog)s [FLAG ...]\n       %(prog)s COMMAND ...",
        description="A software switch that runs the BMv2 JSON of a v1model P4 program and speaks P4Runtime.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('gradlane-switch')}")
    run.add(parser)
    commands = parser.add_subparsers(metavar="COMMAND", prog="gradlane-switch", help="instead of running a switch:")
    for name, subject in (("port", port), ("trace", trace)):
        text = _COMMANDS[name]
        subject.add(
            commands.add_parser(
                name,
                help=text,
                description=f"{text[0].upper()}{text[1:]}.",
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
        )
    text = _COMMANDS["completion"]
    completion.add(commands.add_parser("completion", help=text, description=f"{text.capitalize()}."), parser)
    return parser
