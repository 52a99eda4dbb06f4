# SPDX-License-Identifier: Apache-2.0
"""The job folder: jobs that came over HTTP, so that they survive a restart."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from gradlane import GradlaneError


class StorageError(GradlaneError):
    """A job can't be kept in the job folder; the message names the file."""


@contextmanager
def kept(folder: Path | None, name: str, text: str) -> Generator[None, None, None]:
    """Keeps a job's file if the body succeeds; in one step, so that nobody reads half of it. Raises StorageError."""
    if folder is None:
        yield
        return
    draft = folder / f"{name}.draft"
    try:
        draft.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise StorageError(f"{draft}: can't be written: {problem.strerror}") from None
    try:
        yield
    except BaseException:
        draft.unlink()
        raise
    draft.replace(folder / f"{name}.toml")
