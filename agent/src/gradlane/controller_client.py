# SPDX-License-Identifier: Apache-2.0
"""How to ask a running controller: where it is, with which token, over TLS or not.

Over http.client and not urllib.request, which would hand the token to proxies and to wherever an answer redirects.
"""

import http.client
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradlane import pem
from gradlane.errors import GradlaneError

DEFAULT_ADDRESS = "127.0.0.1:9560"
JOB_TYPE = "application/toml"
JSON_TYPE = "application/json"
MAX_ANSWER = 256 << 20  # bytes
SECONDS = 15.0
TOKEN_VARIABLE = "GRADLANE_TOKEN"

_ADDRESS = re.compile(
    r"((?P<scheme>https?)://)?(\[(?P<bracketed>[0-9a-fA-F:.%]+)\]|(?P<host>[\w.-]+)):(?P<port>[0-9]{1,5})/?", re.ASCII
)


class RequestError(GradlaneError):
    """A request was refused, with `status`, or not answered (None); the message names the controller.

    `again`: after how many seconds it may be tried again, if that was said.
    """

    def __init__(self, message: str, status: int | None = None, again: float | None = None) -> None:
        super().__init__(message)
        self.status, self.again = status, again


class AddressError(GradlaneError):
    """Of an address, token or certificate that can't be one: `key` says which ("address", "token", "ca",
    "certificate"), `reason` what was wrong and what would be right."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key, self.reason = key, reason


@dataclass(frozen=True)
class Answer:
    """JSON, its status, and headers by their names in lower case."""

    content: Any
    headers: Mapping[str, str]
    status: int = 200


class Client:
    """A running controller."""

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        token: str = "",
        *,
        ca: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        seconds: float = SECONDS,
        most: int = MAX_ANSWER,
    ) -> None:
        """`address`: HOST:PORT, or https://HOST:PORT; with `ca`, authorities in PEM, it is https in any case.

        `certificate` and `key`: what to show where the controller asks for it. `seconds`: for each step of a request;
        `most`: bytes of an answer. Raises AddressError.
        """
        scheme, self._host, self._port = _parse(address)
        if ca is not None or certificate is not None:
            scheme = "https"
        self.url = f"{scheme}://{address.rpartition('//')[2]}"
        self._context = _context(ca, certificate, key) if scheme == "https" else None
        if not all("!" <= letter <= "~" for letter in token):
            raise AddressError("token", "has characters that no token has; name the file that has it")
        self._token, self._seconds, self._most = token, seconds, most

    def ask(
        self,
        method: str,
        path: str,
        body: str | None = None,
        media_type: str = JOB_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """What is answered. Raises RequestError."""
        given = {"Accept": "application/json", **(headers or {})}
        if body is not None:
            given["Content-Type"] = media_type
        if self._token:
            given["Authorization"] = f"Bearer {self._token}"
        connection = self._connect()
        try:
            connection.request(method, path, None if body is None else body.encode(), given)
            answer = connection.getresponse()
            content = answer.read(self._most)
            said = {name.lower(): value for name, value in answer.getheaders()}
            found = Answer(json.loads(content) if content else None, said, answer.status)
        except ssl.SSLError as problem:
            raise RequestError(f"{self}: {_tls_problem(problem)}") from None
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as problem:
            reason = getattr(problem, "strerror", None) or problem or type(problem).__name__
            raise RequestError(f"{self}: {reason}; is `gradlane-controller run` there?") from None
        finally:
            connection.close()
        if answer.status >= 300:
            reason = found.content.get("error") if isinstance(found.content, dict) else None
            again = said.get("retry-after", "")
            raise RequestError(
                f"{self}: {reason or f'answers {answer.status}'}",
                answer.status,
                float(again) if again.isdecimal() and len(again) < 5 else None,
            )
        return found

    def get(self, path: str, expected: set[str]) -> dict[str, Any]:
        """A JSON object with these keys. Raises RequestError."""
        return self._object(self.ask("GET", path), expected)

    def post(self, path: str, body: str | None, expected: set[str], media_type: str = JOB_TYPE) -> dict[str, Any]:
        """The same, of a POST. Raises RequestError."""
        return self._object(self.ask("POST", path, body, media_type), expected)

    def __str__(self) -> str:
        return f"controller at {self.url}"

    def _object(self, answer: Answer, expected: set[str]) -> dict[str, Any]:
        if not isinstance(answer.content, dict) or not expected <= set(answer.content):
            raise RequestError(f"{self}: something else answers there; is this the controller's address?")
        return answer.content

    def _connect(self) -> http.client.HTTPConnection:
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._seconds)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._seconds, context=self._context)


def read_token(file: Path) -> str:
    """The token of a file. Raises AddressError."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeError) as problem:
        raise AddressError("token", f"{file}: can't be read: {getattr(problem, 'strerror', problem)}") from None


def _parse(address: str) -> tuple[str, str, int]:
    found = _ADDRESS.fullmatch(address)
    if found is None or not 0 < int(found["port"]) < 65536:
        raise AddressError("address", f"{address!r} must be HOST:PORT, e.g. {DEFAULT_ADDRESS!r}, or https://HOST:PORT")
    return found["scheme"] or "http", (found["bracketed"] or found["host"]), int(found["port"])


def _context(ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if ca is None:
            context.load_default_certs()
        else:
            pem.load_authorities(context, ca)
        if certificate is not None:
            pem.load_certificate(context, certificate, key or certificate)
    except pem.PemError as problem:
        raise AddressError(problem.key, problem.reason) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _tls_problem(problem: ssl.SSLError) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"its certificate is not right: {problem.verify_message}; name its authority with --ca, or ca"
    return f"TLS failed: {(problem.reason or str(problem)).replace('_', ' ').lower()}"
