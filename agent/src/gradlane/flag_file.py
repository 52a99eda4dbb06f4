# SPDX-License-Identifier: Apache-2.0
"""Flags that may also stand in a TOML file: `--tls-cert FILE` on the command line is `tls_cert = "FILE"` there.

The keys are made from the parser's flags, so that there is one truth: what takes a flag takes its key.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from gradlane import toml_file
from gradlane.toml_file import FileError, Table


class ConfigError(FileError):
    """A configuration file that can't be used."""


class FlagFile:
    """The flags of a parser and the file that `--config` names. Flags win over the file, all of a repeatable one over
    all that the file has of it."""

    def __init__(self, parser: argparse.ArgumentParser, example: str) -> None:
        """Adds `--config` to a parser that has all other flags; `example`: where the file usually is. What the parser
        gives is not complete until `resolve`, and it requires none of its flags any more."""
        self._parser = parser
        self._flags = {_key(it): it for it in _optionals(parser)}
        self._required = [key for key, it in self._flags.items() if it.required]
        self._defaults: dict[str, Any] = {it.dest: it.default for it in self._flags.values()}
        for it in self._flags.values():
            it.default, it.required = argparse.SUPPRESS, False  # only what is given is in the namespace
        text = f"take flags from this TOML file, e.g. {example}; those given here win (default: none)"
        parser.add_argument("--config", type=Path, metavar="FILE", help=text)

    def resolve(self, given: argparse.Namespace) -> argparse.Namespace:
        """All options, of what the parser made of the command line and of the file, which is read. Raises ConfigError;
        ends the program as the parser does if a flag is in neither."""
        of_file = {} if given.config is None else self._read(given.config)
        found = argparse.Namespace(**{**self._defaults, **of_file, **vars(given)})
        for key in self._required:
            if getattr(found, self._flags[key].dest) is None:
                flag = self._flags[key].option_strings[-1]
                if given.config is not None:
                    raise ConfigError(str(given.config), key, f"is missing; write it here, or give {flag}")
                self._parser.error(f"the following arguments are required: {flag} (or --config, with {key!r})")
        return found

    def changed(self, old: argparse.Namespace, new: argparse.Namespace) -> list[str]:
        """The keys in which two of what `resolve` gave differ."""
        return [key for key, it in self._flags.items() if getattr(old, it.dest) != getattr(new, it.dest)]

    def _read(self, path: Path) -> dict[str, Any]:
        root = toml_file.parse(ConfigError, toml_file.read(ConfigError, path), str(path))
        found = {
            it.dest: _value(root, key, it, repeatable=isinstance(self._defaults[it.dest], list))
            for key, it in self._flags.items()
            if root.has(key)
        }
        root.finish()
        return found


def _optionals(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    actions = parser._actions  # pyright: ignore[reportPrivateUsage]  # argparse has no other way to ask
    return [it for it in actions if it.option_strings and it.dest not in ("help", "version")]


def _key(flag: argparse.Action) -> str:
    return flag.option_strings[-1].lstrip("-").replace("-", "_")


def _value(table: Table, key: str, flag: argparse.Action, *, repeatable: bool) -> Any:
    if flag.nargs == 0:
        return table.boolean(key)
    if repeatable:
        return [_converted(table, key, flag, text) for text in table.strings(key)]
    if flag.choices is not None:
        return table.choice(key, list(flag.choices))
    return _converted(table, key, flag, table.scalar(key))


def _converted(table: Table, key: str, flag: argparse.Action, text: str) -> Any:
    """What the flag makes of a text. A path is absolute: a service has no folder that it is in."""
    if flag.type is Path:
        return table.absolute(key, text)
    convert = cast(Callable[[str], Any], flag.type or str)
    try:
        return convert(text)
    except argparse.ArgumentTypeError as problem:
        raise table.error(key, str(problem)) from None
    except ValueError:
        raise table.error(key, f"is {text!r}; it must be {flag.metavar or flag.dest.upper()}: {flag.help}") from None
