# SPDX-License-Identifier: Apache-2.0
"""`gradlane-controller token`: who may ask a controller for what."""

import argparse
import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from gradlane_controller import client
from gradlane_controller.commands import flags
from gradlane_controller.commands.tables import format_table

if TYPE_CHECKING:
    from gradlane_controller.api.tokens import Tokens


def add(command: flags.Add) -> None:
    """Its flags."""
    text = "make, list and revoke the tokens with which a controller is asked (asks a running one, or its store)"
    commands = command("token", _list, text).add_subparsers(required=True, metavar="COMMAND")
    for name, function, text in (
        ("create", _create, "make a token, and print it: it can't be printed again"),
        ("list", _list, "show which tokens there are, for what, until when, and when they were last used"),
        ("revoke", _revoke, "make a token worth nothing, within a second"),
    ):
        parser = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        parser.set_defaults(command=function)
        client.add_flags(parser)
        parser.add_argument("--json", action="store_true", help="as JSON")
        parser.add_argument(
            "--store", metavar="URL", help="change this store, instead of asking a controller: where no token is left"
        )
    create = commands.choices["create"]
    create.add_argument("name", help="what it is for")
    create.add_argument("--scope", choices=["agents", "read", "jobs", "admin"], default="read", help="default: read")
    create.add_argument("--host", metavar="NAME", help="of scope agents: the only host whose agent may report with it")
    create.add_argument("--days", type=float, metavar="N", help="after which it expires (default: never)")
    commands.choices["revoke"].add_argument("id", help="the token's id, which `token list` says")


def _create(options: argparse.Namespace) -> int:
    if options.store:
        from gradlane_controller.api.tokens import Scope, describe

        lifetime = None if options.days is None else timedelta(days=options.days)
        scope = Scope[options.scope.upper()]
        token, text = _at_store(options, lambda it: it.create(options.name, scope, lifetime, options.host))
        made = {**describe(token), "token": text}
    else:
        wanted = {"name": options.name, "scope": options.scope, "days": options.days, "host": options.host}
        made = client.of_flags(options).ask("POST", "/v1/tokens", json.dumps(wanted), "application/json").content
    print(json.dumps(made, indent=2) if options.json else made["token"])
    return 0


def _list(options: argparse.Namespace) -> int:
    rows = _rows_of_store(options) if options.store else _rows(client.of_flags(options))
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    head = ("id", "name", "scope", "created", "expires", "used")
    print(format_table("tokens", head, [tuple(row[key] or "never" for key in head) for row in rows]))
    return 0


def _revoke(options: argparse.Namespace) -> int:
    if options.store:
        _at_store(options, lambda it: it.revoke(options.id))
    else:
        client.of_flags(options).ask("DELETE", f"/v1/tokens/{quote(options.id, safe='')}")
    print(json.dumps({"deleted": options.id}, indent=2) if options.json else f"token {options.id} is worth nothing now")
    return 0


def _rows(asked: client.Client) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    cursor: str | None = ""
    while cursor is not None:
        page = asked.get(f"/v1/tokens?limit=1000&cursor={quote(cursor)}", {"items", "next"})
        rows += page["items"]
        cursor = page["next"]
    return rows


def _rows_of_store(options: argparse.Namespace) -> list[dict[str, Any]]:
    from gradlane_controller.api.tokens import describe

    async def read(it: "Tokens") -> list[dict[str, Any]]:
        await it.load()
        return [describe(token) for token in it.all()]

    return _at_store(options, read)


def _at_store(options: argparse.Namespace, act: "Callable[[Tokens], Any]") -> Any:
    from gradlane_controller.api.tokens import Tokens
    from gradlane_controller.store import Store

    store = Store.open(options.store)
    try:

        async def run() -> Any:
            return await act(Tokens(store))

        return asyncio.run(run())
    finally:
        store.close()
