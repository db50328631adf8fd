"""A directory (LDAP) that knows some users and their passwords, and a certificate for TLS."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

LOOPBACK = "127.0.0.1"
BASE = "ou=people,dc=example,dc=com"
_BIND_REQUEST, _UNBIND_REQUEST = 0x60, 0x42
_SUCCESS, _INVALID_CREDENTIALS = 0, 49


@contextmanager
def running_directory(users: Mapping[str, str]) -> Iterator[int]:
    """Serve simple binds (RFC 4511, section 4.2) of ``uid=<user>,<BASE>``; returns the port."""
    passwords = {f"uid={user},{BASE}".encode(): word.encode() for user, word in users.items()}

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while message := _element(self.rfile.read):
                number, request, *_ = _elements(message[1])
                if request[0] != _BIND_REQUEST:
                    return
                _, name, password = _elements(request[1])
                right = passwords.get(name[1]) == password[1]
                code = _SUCCESS if right else _INVALID_CREDENTIALS
                answer = bytes([0x61, 7, 0x0A, 1, code, 4, 0, 4, 0])
                answer = bytes([number[0], len(number[1])]) + number[1] + answer
                self.wfile.write(bytes([0x30, len(answer)]) + answer)

    with _serving(Session) as port:
        yield port


def _element(read: object) -> tuple[int, bytes] | None:
    """Read one element of BER: its tag and its content; None at the end."""
    head = read(2)  # type: ignore[operator]
    if len(head) < 2:
        return None
    size = head[1]
    if size & 0x80:
        size = int.from_bytes(read(size & 0x7F), "big")  # type: ignore[operator]
    return head[0], read(size)  # type: ignore[operator]


def _elements(content: bytes) -> list[tuple[int, bytes]]:
    rest = memoryview(content)

    def read(size: int) -> bytes:
        nonlocal rest
        found, rest = bytes(rest[:size]), rest[size:]
        return found

    found = []
    while (one := _element(read)) is not None:
        found.append(one)
    return found


@dataclass(frozen=True)
class Certificate:
    """A certificate for ``localhost`` and its address, signed by itself.

    Attributes:
        pem: the certificate, which a client trusts.
        key: the private key.
        keystore: both for Java, with `password`.
        password: of the key store.
    """

    pem: Path
    key: Path
    keystore: Path
    password: str = "changeit"


def certificate(folder: Path, name: str = "localhost") -> Certificate:
    """Make a certificate of this common name."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.DNSName("localhost"), x509.IPAddress(IPv4Address(LOOPBACK))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder.mkdir(parents=True, exist_ok=True)
    found = Certificate(folder / "server.pem", folder / "server.key", folder / "server.p12")
    found.pem.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    found.keystore.write_bytes(
        pkcs12.serialize_key_and_certificates(
            b"server",
            key,
            made,
            None,
            serialization.BestAvailableEncryption(found.password.encode()),
        )
    )
    return found


@contextmanager
def tls_proxy(to: int, identity: Certificate) -> Iterator[int]:
    """Take TLS for a gRPC server without it, as a proxy in front of it does; returns the port."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(identity.pem, identity.key)
    context.set_alpn_protocols(["h2"])

    class Session(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with (
                suppress(OSError),
                socket.create_connection((LOOPBACK, to)) as server,
                context.wrap_socket(self.request, server_side=True) as client,
            ):
                back = threading.Thread(target=_copy, args=(server, client), daemon=True)
                back.start()
                _copy(client, server)
                back.join()

    with _serving(Session) as port:
        yield port


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@contextmanager
def _serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    with socketserver.ThreadingTCPServer((LOOPBACK, 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
