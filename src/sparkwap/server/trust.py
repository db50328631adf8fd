"""Makes Java trust the certificates that Python trusts.

A Java runtime from a wheel has its own certificate authorities. Behind a company's proxy that signs
all connections, pip works, because the machine's authorities include the proxy; Java does not.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import struct
from pathlib import Path

PASSWORD = "changeit"  # Java's default; the file has no secrets

_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE")
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/ssl/cert.pem",  # macOS, BSD
)
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def bundle() -> Path | None:
    """Return the file of PEM certificates for Python programs on this machine, if any."""
    named = [os.environ.get(variable) for variable in _VARIABLES]
    for candidate in (*named, ssl.get_default_verify_paths().cafile, *_SYSTEM_BUNDLES):
        if candidate and Path(candidate).is_file():
            return Path(candidate)
    return None


def java_options(bundle: Path, store: Path) -> list[str]:
    """Write the bundle's certificates to ``store`` and return Java's options for this store."""
    certificates = [ssl.PEM_cert_to_DER_cert(pem) for pem in _PEM.findall(bundle.read_text())]
    store.write_bytes(key_store(certificates))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def key_store(certificates: list[bytes]) -> bytes:
    """Return a Java key store (format JKS, version 2) of trusted certificates in DER format."""
    body = struct.pack(">III", 0xFEEDFEED, 2, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", 2) + _text(f"ca-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    salted = PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    return body + hashlib.sha1(salted).digest()


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
