# SPDX-License-Identifier: Apache-2.0
"""Certificates and keys in PEM files: whether they can be used. A handshake that fails would say less."""

import ssl
from pathlib import Path

from gradlane.errors import GradlaneError


class PemError(GradlaneError):
    """A file that can't be used. `key` is "ca" or "certificate", `reason` what was wrong and what would be right."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


def check(ca: Path, certificate: Path | None, key: Path | None) -> None:
    """Checks that authorities, and a certificate with its key if they are given, can be loaded. Raises PemError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    load_authorities(context, ca)
    if certificate is not None and key is not None:
        load_certificate(context, certificate, key)


def check_pair(certificate: Path, key: Path) -> None:
    """Checks that they can be shown to the other side. Raises PemError."""
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)


def load_authorities(context: ssl.SSLContext, ca: Path) -> None:
    """From whom the other side's certificate may come. Raises PemError."""
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as problem:
        raise PemError("ca", f"{ca} can't be used: {_why(problem)}; it must be certificates in PEM") from None


def load_certificate(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """What to show to the other side. Raises PemError."""
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")  # it never asks on a terminal
    except (OSError, ssl.SSLError) as problem:
        raise PemError(
            "certificate",
            f"{certificate} with the key {key} can't be used: {_why(problem)}; both must be in PEM, belong together, "
            "be readable by this user, and the key have no passphrase",
        ) from None


def _why(problem: OSError) -> str:
    if isinstance(problem, ssl.SSLError):
        return (problem.reason or "not in PEM").replace("_", " ").lower()
    return problem.strerror or str(problem)
