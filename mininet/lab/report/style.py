# SPDX-License-Identifier: Apache-2.0
"""How all plots look."""

from typing import Any

INK = "#1c2733"
MUTED = "#66727f"
GRID = "#e3e8ed"
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["Liberation Sans", "Arial", "Helvetica", "DejaVu Sans"],
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "legend.frameon": False,
    "svg.fonttype": "path",  # the same in every browser, whatever fonts it has
    "svg.hashsalt": "gradlane",
}
