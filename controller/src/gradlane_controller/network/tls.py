# SPDX-License-Identifier: Apache-2.0
"""TLS towards switches: the tables [tls] of a fabric file and [switch.tls], whose keys replace those of the former."""

from dataclasses import dataclass
from pathlib import Path

from gradlane import pem
from gradlane.toml_file import Table


@dataclass(frozen=True)
class Tls:
    """PEM files: whom switches' certificates must come from; what the controller shows, None: nothing.

    `server_name` is the name in the switch's certificate, "": the host of its address.
    """

    ca: Path
    certificate: Path | None
    key: Path | None
    server_name: str


def take_tls(table: Table, fallback: Tls | None = None) -> Tls | None:
    """The table `tls` of a table, with what it lacks from the fallback; checked. Raises the table's error."""
    if not table.has("tls"):
        return fallback
    own = table.table("tls")

    def path(key: str, default: Path | None) -> Path | None:
        return own.path(key) if own.has(key) else default

    ca = fallback.ca if fallback and not own.has("ca") else own.path("ca")
    certificate = path("certificate", fallback and fallback.certificate)
    key = path("key", fallback and fallback.key)
    server_name = own.text("server_name") if own.has("server_name") else fallback.server_name if fallback else ""
    own.finish()
    if (certificate is None) != (key is None):
        raise own.error("key" if key is None else "certificate", "is missing: a certificate and its key go together")
    try:
        pem.check(ca, certificate, key)
    except pem.PemError as problem:
        raise own.error(problem.key, problem.reason) from None
    return Tls(ca, certificate, key, server_name)
