# SPDX-License-Identifier: Apache-2.0
"""Who is answered: not what a browser sends for another site's page, and only who has a token that is good for it.

A browser on a machine that reaches the controller must not ask it for the pages that it shows: what another site's page
sends has that site as Origin, and after DNS rebinding its name as Host.
"""

import logging
import re
import socket
import time
from ipaddress import IPv6Address, IPv6Network, ip_address

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers

from gradlane_controller.api.errors import Refusal
from gradlane_controller.api.rates import Buckets, Rate
from gradlane_controller.api.tokens import Scope, Token, TokenError, Tokens

REQUESTS = Rate(200.0, 400)  # of each token
FAILURES = Rate(1.0, 20)  # of each address: requests with a token that nobody has
QUIET_SECONDS = 60.0  # between two lines of the log about such

_PORT = re.compile(r":\d*\Z")
_LOG = logging.getLogger(__name__)


class Doorkeeper:
    """Decides about requests by their headers."""

    def __init__(self, tokens: Tokens, host: str) -> None:
        """`host`: where it listens; beside addresses, "localhost" and this machine's name the only one by which it
        answers."""
        self._tokens = tokens
        self._names = {host, "localhost", socket.gethostname()}
        self._requests, self._failures = Buckets(REQUESTS), Buckets(FAILURES)
        self._unsaid = 0
        self._said_at = -QUIET_SECONDS

    def refuse_other_sites(self, scheme: str, path: str, headers: Headers) -> None:
        """Raises Refusal for what a browser sends for a page that is not the controller's own."""
        host = headers.get("Host", "localhost")  # browsers always send one
        name = _PORT.sub("", host)
        if name not in self._names and not _is_address(name.strip("[]")):
            raise Refusal(403, f"the request is for {name[:100]!r}; use this machine's address or name", reason="site")
        site, origin = headers.get("Sec-Fetch-Site", "none"), headers.get("Origin", f"{scheme}://{host}")
        if path == "/" and headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest") == "document":
            return  # somebody follows a link to the page
        if site not in ("none", "same-origin") or origin != f"{scheme}://{host}":
            raise Refusal(403, "pages of web sites may not use the controller", reason="site")

    def admit(self, address: str, headers: Headers) -> Token:
        """Who asks. Raises Refusal."""
        found = headers.getlist("Authorization")
        kind, _, text = found[0].partition(" ") if len(found) == 1 else ("", "", "")
        if kind.lower() != "bearer":
            text = "send a token, once: Authorization: Bearer TOKEN"
            raise Refusal(401, text, {"WWW-Authenticate": "Bearer"}, reason="no_token")
        try:
            token = self._tokens.check(text.strip())
        except TokenError as problem:
            self._note_failure(address)
            if wait := self._failures.take(_network(address)):
                text = f"too many requests of {address} with tokens that nobody has"
                raise _later(text, wait) from None
            headers_of_answer = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
            raise Refusal(401, str(problem), headers_of_answer, reason="token") from None
        if wait := self._requests.take(token.id):
            text = f"too many requests with this token; {REQUESTS.per_second:g} in a second are possible"
            raise _later(text, wait)
        return token

    def _note_failure(self, address: str) -> None:
        self._unsaid += 1
        if (now := time.monotonic()) >= self._said_at + QUIET_SECONDS:
            _LOG.warning("refused %d requests with a token that nobody has, the last from %s", self._unsaid, address)
            self._said_at, self._unsaid = now, 0


def token_of(request: Request) -> Token:
    """That with which something below /v1 is asked."""
    return request.scope["state"]["token"]


def needs(scope: Scope) -> Depends:  # type: ignore[valid-type]
    """For a route: the token must be good for that."""

    def check(request: Request) -> None:
        token = token_of(request)
        if token.scope < scope:
            text = f"this needs a token of scope {scope.text}; {token.name!r} has {token.scope.text}"
            needed = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{scope.text}"'}
            raise Refusal(403, text, needed, reason="scope")

    return Depends(check)


def _for_agents(request: Request) -> None:
    token: Token = request.scope["state"]["token"]
    if token.scope not in (Scope.AGENTS, Scope.ADMIN):
        text = f"this needs a token of scope agents; {token.name!r} has {token.scope.text}"
        raise Refusal(403, text, reason="scope")


for_agents = Depends(_for_agents)
"""For a route: the token must be good for the reports of agents."""

bearer = Depends(HTTPBearer(auto_error=False, description="A token of `gradlane-controller token create`"))
"""Says in the OpenAPI document what `Doorkeeper.admit` asks of everything below /v1."""


def _later(text: str, wait: float) -> Refusal:
    seconds = int(wait) + 1
    return Refusal(429, f"{text}; come again in {seconds} s", {"Retry-After": str(seconds)}, reason="rate")


def _network(address: str) -> str:
    """IPv6 clients have as many addresses as they like within one network."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if isinstance(found, IPv6Address):
        return str(found.ipv4_mapped or IPv6Network((found, 64), strict=False))
    return address


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
