# SPDX-License-Identifier: Apache-2.0
"""The command `gradlane-switch`."""

from __future__ import annotations

import os
import signal
import sys

from gradlane_switch.commands.port import port_command
from gradlane_switch.commands.run import run_command
from gradlane_switch.commands.trace import trace_command
from gradlane_switch.errors import PortError, ProgramError, SwitchError


def main() -> int:
    """Runs the command that the arguments name, or the switch itself if they name none.

    The exit status is 2 for bad arguments, files or ports, 1 for anything else that went wrong.
    """
    try:
        match sys.argv[1:]:
            case ["port", *arguments]:
                return port_command(arguments)
            case ["trace", *arguments]:
                return trace_command(arguments)
            case arguments:
                return run_command(arguments)
    except BrokenPipeError:
        # Whoever read the output, such as `head`, has enough. Python would complain once more when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (ProgramError, PortError) as error:
        print(f"gradlane-switch: error: {error}", file=sys.stderr)
        return 2
    except SwitchError as error:
        print(f"gradlane-switch: error: {error}", file=sys.stderr)
        return 1
