# SPDX-License-Identifier: Apache-2.0
"""The pages that nobody writes: by section of the site their titles, where they would lie, and their text."""

from collections.abc import Callable
from functools import partial

from docs.site import api, commands, keys, metrics

_FOLDER = "docs/reference"
_API = {module: (f"{_FOLDER}/{module}.md", partial(api.page, module)) for module in api.MODULES}
_COMMANDS = {
    program: (f"{_FOLDER}/{program}-command.md", partial(commands.page, program)) for program in commands.PROGRAMS
}
_KEYS = {f"Keys of a {kind} file": (f"{_FOLDER}/{kind}-keys.md", partial(keys.page, kind)) for kind in keys.FILES}
_METRICS = {"Metrics": (f"{_FOLDER}/metrics.md", metrics.page)}

GROUPS: dict[str, dict[str, tuple[str, Callable[[], str]]]] = {
    "Commands": _COMMANDS,
    "Files and metrics": _KEYS | _METRICS,
    "Python": _API,
}
"""They follow the written pages of the section Reference."""
