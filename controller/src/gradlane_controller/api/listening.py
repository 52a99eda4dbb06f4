# SPDX-License-Identifier: Apache-2.0
"""Where and how the API listens: never in clear where others could listen in, unless that is said."""

import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from gradlane import GradlaneError, pem


class ListeningError(GradlaneError):
    """It can't or may not listen so; the message names the flag."""


@dataclass(frozen=True)
class TlsFiles:
    """In PEM. `client_ca`: whom clients' certificates must come from, None: they show none."""

    certificate: Path
    key: Path
    client_ca: Path | None


def check_address(host: str, *, tls: bool, insecure: bool) -> None:
    """Raises ListeningError for an address that others reach, without TLS."""
    if tls or insecure:
        return
    try:
        found = {it[4][0] for it in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except OSError as problem:
        raise ListeningError(f"--http: {host!r} is no address of this machine: {problem.strerror}") from None
    if not all(ip_address(str(it).partition("%")[0]).is_loopback for it in found):
        raise ListeningError(
            f"--http: whoever reads the network at {host} would read tokens there; add --tls-cert and --tls-key, or "
            "--insecure if nobody can"
        )


def context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.3. Raises ListeningError."""
    it = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    it.minimum_version = ssl.TLSVersion.TLSv1_3
    load(it, files)
    return it


def load(it: ssl.SSLContext, files: TlsFiles) -> None:
    """Reads the files, also again: handshakes from then on are with what they hold now. Raises ListeningError."""
    try:
        pem.load_certificate(it, files.certificate, files.key)
        if files.client_ca is not None:
            pem.load_authorities(it, files.client_ca)
            it.verify_mode = ssl.CERT_REQUIRED
    except pem.PemError as problem:
        flag = "--client-ca" if problem.key == "ca" else "--tls-cert"
        raise ListeningError(f"{flag}: {problem.reason}") from None
