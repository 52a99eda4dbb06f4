# SPDX-License-Identifier: Apache-2.0
"""An authority for tests, and the certificates that it signs."""

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


class Authority:
    """Writes its certificate to `ca`; `issue` writes an agent's, and the agent's configuration that names all three."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.ca = folder / f"{name}.pem"
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self._subject, self._key).add_extension(constraints, critical=True)
        self.ca.write_bytes(certificate.sign(self._key, hashes.SHA256()).public_bytes(PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int = 1) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.timezone.utc)
        day = datetime.timedelta(days=1)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._subject)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - 2 * day).not_valid_after(now + days * day)

    def issue(
        self, name: str, address: str = "", host: str = "", trust: "Authority | None" = None, days: int = 1
    ) -> Path:
        """A configuration file for the agent of that address or host name, which trusts `trust`, too.

        The certificate is valid for as many days from now.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.IPAddress(ip_address(address))] if address else [x509.DNSName(host)]
        builder = self._builder(subject, key, days).add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate, private = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(PEM))
        plain = serialization.NoEncryption()
        private.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain))
        config, trusted = self._folder / f"{name}.toml", self._folder / f"{name}-trusts.pem"
        trusted.write_bytes(self.ca.read_bytes() + (trust.ca.read_bytes() if trust else b""))
        config.write_text(f'[tls]\nca = "{trusted}"\ncertificate = "{certificate}"\nkey = "{private}"\n')
        return config
