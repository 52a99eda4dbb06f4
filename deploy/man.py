# SPDX-License-Identifier: Apache-2.0
"""`make man`: the manual pages of the commands, man(7), made of their parsers by argparse-manpage.

python deploy/man.py FOLDER
"""

import importlib
import subprocess
import sys
from pathlib import Path

PROGRAMS = {
    "gradlane": "gradlane.cli",
    "gradlane-controller": "gradlane_controller.cli",
    "gradlane-switch": "gradlane_switch.cli",
}


def main(folder: Path) -> None:
    """Writes PROGRAM.1 of each program. Dates are of SOURCE_DATE_EPOCH, if that is set."""
    folder.mkdir(parents=True, exist_ok=True)
    for program, module in PROGRAMS.items():
        page = folder / f"{program}.1"
        about = importlib.import_module(module).make_parser().description
        parser = ["--description", about, "--module", module, "--function", "make_parser", "--prog", program]
        title = ["--project-name", "Gradlane", "--manual-title", "Gradlane"]
        subprocess.run(
            [
                sys.executable,
                "-c",
                "from argparse_manpage.cli import main; main()",
                *parser,
                *title,
                "--output",
                str(page),
            ],
            check=True,
        )
        print(page)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
