# SPDX-License-Identifier: Apache-2.0
"""The figure that a benchmark leaves: a grid of panels in the style of the report."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.report.style import STYLE


@contextmanager
def panels(
    path: Path, rows: int, columns: int, size: tuple[float, float], *, share_y: bool = False
) -> Generator[Any, None, None]:
    """The axes, an array of so many rows and columns, to draw on; then they are written to `path`, by its suffix.

    `size` is that of one panel in inches. `share_y`: panels of a row have one scale.
    """
    # Imported only now: matplotlib takes a second, and neither --help nor a mistyped option is to wait for it.
    import matplotlib.pyplot as plt

    width, height = size
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(width * columns, height * rows), squeeze=False, sharey="row" if share_y else "none"
        )
        yield axes
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without date and version: the same figures make the same file.
        unstamped = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        figure.savefig(path, dpi=80, bbox_inches="tight", metadata=unstamped)
        plt.close(figure)
