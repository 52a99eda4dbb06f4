# SPDX-License-Identifier: Apache-2.0
"""TLS 1.3 for the control connections, and the proofs by which agents know each other on them.

Two methods. With certificates (mutual TLS) both sides must show one that the given authority has signed for the rank's
address or host name. Without, the listener makes itself a certificate that nobody has signed, and both sides prove that
they know the job's key: an HMAC over both sides' nonces and the certificate's fingerprint (the channel binding
"tls-server-end-point", RFC 5929), so a man in the middle, with a certificate of its own, has nothing to pass on.
"""

import contextlib
import datetime
import hashlib
import hmac
import json
import os
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gradlane.control import tls
from gradlane.errors import AgentError
from gradlane.job import Job, Member

# Alerts about certificates (RFC 8446, 6.2), as OpenSSL names them.
_DISTRUST = {
    "BAD_CERTIFICATE",
    "UNSUPPORTED_CERTIFICATE",
    "CERTIFICATE_REVOKED",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "UNKNOWN_CA",
    "CERTIFICATE_REQUIRED",
}


@dataclass(frozen=True)
class Tls:
    """PEM files: the authorities that other agents' certificates must come from; this agent's certificate and key."""

    ca: Path
    certificate: Path
    key: Path


class Credentials:
    """How this agent proves who it is: `listening` and `calling` are the two sides' TLS settings."""

    def __init__(self, files: Tls | None) -> None:
        """Reads the files, or without any makes a key and a certificate. Raises AgentError if a file is bad."""
        self.certified = files is not None
        self.listening = tls.Context(ssl.PROTOCOL_TLS_SERVER)
        self.calling = tls.Context(ssl.PROTOCOL_TLS_CLIENT)
        self.calling.check_hostname = False  # `misnamed` does it, alike on both sides
        for context in (self.listening, self.calling):
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        # OPTIONAL: `misnamed` refuses a caller without one, and can say more than a TLS alert.
        self.listening.verify_mode = ssl.CERT_OPTIONAL if files else ssl.CERT_NONE
        self.calling.verify_mode = ssl.CERT_REQUIRED if files else ssl.CERT_NONE
        self.listening.num_tickets = 0  # no session is resumed: a connection lasts as long as its job
        if files is None:
            with _ephemeral() as path:
                self.listening.load_cert_chain(path)
                self.fingerprint = fingerprint(ssl.PEM_cert_to_DER_cert(_first_certificate(Path(path))))
            return
        try:
            for context in (self.listening, self.calling):
                context.load_verify_locations(files.ca)
                context.load_cert_chain(files.certificate, files.key)
            self.fingerprint = fingerprint(ssl.PEM_cert_to_DER_cert(_first_certificate(files.certificate)))
        except OSError as error:  # of which TLS's errors are a kind
            raise AgentError(f"[tls]: {files.ca}, {files.certificate} or {files.key} can't be used: {error}") from error

    def problem(self, error: ssl.SSLError) -> str:
        """What a failed handshake says of the other agent; "" if the connection just broke."""
        if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return ""
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"shows a certificate that this agent does not trust: {error.verify_message}"
        reason = error.reason or str(error)
        if reason == "WRONG_VERSION_NUMBER":
            return "does not speak TLS: an older agent, or another program"
        _, told, alert = reason.partition("ALERT_")
        if told and alert in _DISTRUST:
            if not self.certified:
                return "has [tls] in its file, but this agent has not; either all agents of a job have, or none"
            return f"does not trust this agent's certificate: {alert.replace('_', ' ').lower()}"
        return f"failed the TLS 1.3 handshake: {reason}"


def _first_certificate(path: Path) -> str:
    """The PEM text of a file's first certificate, which is the one of the agent itself."""
    text = path.read_text(encoding="ascii", errors="replace")
    begin, end = text.find(ssl.PEM_HEADER), text.find(ssl.PEM_FOOTER)
    return text[begin : end + len(ssl.PEM_FOOTER)]


@contextlib.contextmanager
def _ephemeral() -> Generator[str]:
    """The path of a new key with a certificate that it signed itself. Both are in memory alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "gradlane agent")])
    # The validity is not checked: the job's key proves who the other side is. Clocks may be wrong.
    begin = datetime.datetime(2000, 1, 1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin.replace(year=9999))
        .sign(key, hashes.SHA256())
    )
    descriptor = os.memfd_create("gradlane-certificate", os.MFD_CLOEXEC)
    try:
        encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        os.write(descriptor, key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
        os.write(descriptor, certificate.public_bytes(encoding))
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def fingerprint(certificate: bytes) -> str:
    """SHA-256 of a certificate in DER form."""
    return hashlib.sha256(certificate).hexdigest()


def misnamed(certificate: Any, member: Member) -> str:
    """What is wrong with a verified certificate (`SSLObject.getpeercert()`) for that rank, or "". None: none shown."""
    if not certificate:
        return (
            "shows no certificate, but the other agent has [tls] in its file; either all agents of a job have, or none"
        )
    names = [(kind, value) for kind, value in certificate.get("subjectAltName", ())]
    for kind, value in names:
        if kind == "DNS" and value.lower() == member.host.lower():
            return ""
        if kind == "IP Address" and ip_address(value) == member.address:
            return ""
    found = ", ".join(value for _, value in names) or "nothing"
    return f"shows a certificate for {found}; it must name {member.address} or {member.host} (subjectAltName)"


@dataclass(frozen=True)
class Binding:
    """What both sides know of a control connection, and their proofs are about."""

    certificate: str
    caller_nonce: str
    listener_nonce: str
    caller: int
    listener: int

    def proof(self, job: Job, role: str) -> str:
        """A proof of knowing the job's key. `role`: "caller" or "listener", so that none can be sent back."""
        stated = [role, self.certificate, self.caller_nonce, self.listener_nonce, job.id, self.caller, self.listener]
        return hmac.new(job.key, json.dumps(stated).encode(), hashlib.sha256).hexdigest()

    def proves(self, proof: object, job: Job, role: str) -> bool:
        """Whether the other side, in that role, knows the key."""
        return isinstance(proof, str) and hmac.compare_digest(proof.encode(), self.proof(job, role).encode())
