# SPDX-License-Identifier: Apache-2.0
"""The job folder: jobs that came over HTTP, so that they survive a restart."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from gradlane import GradlaneError


class StorageError(GradlaneError):
    """A job can't be kept in the job folder, or removed from it; the message names the file."""


@contextmanager
def kept(folder: Path, name: str, text: str) -> Generator[None, None, None]:
    """Keeps a job's file if the body succeeds; in one step, so that nobody reads half of it. Raises StorageError.

    The folder is made if it is not there. All that can fail for want of space or rights comes before the body.
    """
    draft = folder / f"{name}.draft"
    with _named(draft):
        folder.mkdir(exist_ok=True)
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    try:
        yield
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    with _named(draft):
        draft.replace(folder / f"{name}.toml")
        _sync(folder)


@contextmanager
def removed(folder: Path, name: str) -> Generator[None, None, None]:
    """Removes a job's file, if there is one, and puts it back if the body fails. Raises StorageError."""
    file, draft = folder / f"{name}.toml", folder / f"{name}.draft"
    if not file.exists():
        yield
        return
    with _named(file):
        file.replace(draft)
        _sync(folder)
    try:
        yield
    except BaseException:
        draft.replace(file)
        raise
    with _named(draft):
        draft.unlink()


@contextmanager
def _named(file: Path) -> Generator[None, None, None]:
    try:
        yield
    except OSError as problem:
        raise StorageError(f"{file}: can't be written: {problem.strerror}") from None


def _sync(folder: Path) -> None:
    """What was renamed in it stays so when the machine loses its power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
