# SPDX-License-Identifier: Apache-2.0
"""`backup` and `restore`: the store as a file, and back."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gradlane_controller.commands import flags, run

if TYPE_CHECKING:
    from gradlane_controller.store.backup import Done


def add(command: flags.Add) -> None:
    """Their flags."""
    backup = command("backup", _backup, "write all that a store has into a file, while controllers run")
    restore = command("restore", _restore, "put back what `backup` wrote, all or nothing, while no controller runs")
    for parser, text in ((backup, "a new file; only its owner may read it"), (restore, "what `backup` wrote")):
        parser.add_argument("file", type=Path, metavar="FILE", help=text)
        which = parser.add_mutually_exclusive_group(required=True)
        which.add_argument("--store", metavar="URL", help="the store, as `run` takes it")
        which.add_argument("--config", type=Path, metavar="FILE", help="that of a controller with this configuration")
    restore.add_argument("--replace", action="store_true", help="also if the store is not empty: what it has is lost")


def _backup(options: argparse.Namespace) -> int:
    from gradlane_controller.store.backup import backup

    print(f"{options.file}: {_described(backup(_url(options), options.file))}")
    return 0


def _restore(options: argparse.Namespace) -> int:
    from gradlane_controller.store.backup import restore

    done = restore(_url(options), options.file, replace=options.replace)
    print(f"restored: {_described(done)}")
    print(f"tokens are as they were at {done.at:%Y-%m-%d %H:%M:%S} UTC: revoke again those that were revoked since")
    return 0


def _url(options: argparse.Namespace) -> str:
    return options.store or run.store_url(run.configured(options.config))


def _described(done: "Done") -> str:
    rows = ", ".join(f"{count} {name}" for name, count in done.rows.items())
    return f"{rows or 'nothing'}; of revision {done.revision}"
