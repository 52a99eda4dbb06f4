# SPDX-License-Identifier: Apache-2.0
"""The API over TLS: who is let in, how much handshakes may take, and when it must be TLS."""

import asyncio
import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradlane_controller.api import connections, listening
from gradlane_controller.api.connections import MAX_CONNECTIONS
from gradlane_controller.api.listening import ListeningError, TlsFiles
from gradlane_controller.client import AddressError, Client, RequestError
from tests.gradlane.control.certificates import Authority
from tests.gradlane_controller.api.server import PATIENCE, Server, read
from tests.support.agents import until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Certificates of the server, an operator, and a stranger; the authorities' too."""
    it = tmp_path_factory.mktemp("certificates")
    authority, other = Authority(it, "ca"), Authority(it, "other")
    authority.issue("server", address="127.0.0.1")
    authority.issue("renewed", address="127.0.0.1")
    authority.issue("operator", host="operator")
    other.issue("stranger", host="stranger")
    return it


def files(folder: Path, name: str = "server", client_ca: str | None = None) -> TlsFiles:
    return TlsFiles(folder / f"{name}.crt", folder / f"{name}.key", None if client_ca is None else folder / client_ca)


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    it = Server(tmp_path_factory.mktemp("server"), listening.context(files(folder)))
    yield it
    it.close()


@pytest.fixture(scope="module")
def mutual(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    it = Server(tmp_path_factory.mktemp("mutual"), listening.context(files(folder, client_ca="ca.pem")))
    yield it
    it.close()


def client(server: Server, folder: Path, ca: str = "ca.pem", name: str = "") -> Client:
    pair = (folder / f"{name}.crt", folder / f"{name}.key") if name else (None, None)
    address = f"127.0.0.1:{server.port}"
    return Client(address, server.tokens["read"], ca=folder / ca, certificate=pair[0], key=pair[1], seconds=PATIENCE)


def test_it_answers_over_tls_1_3_and_not_otherwise(server: Server, folder: Path) -> None:
    assert client(server, folder).get("/v1/status", {"ready"})["ready"] is False
    with pytest.raises(RequestError, match=r"certificate is not right.*name its authority with --ca"):
        client(server, folder, ca="other.pem").get("/v1/status", {"ready"})
    assert b"200" not in server.send(server.head("GET", "/v1/status") + b"\r\n", patience=PATIENCE)
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(folder / "ca.pem")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with server.connect() as sock, pytest.raises(ssl.SSLError):
        old.wrap_socket(sock, server_hostname="127.0.0.1")


def test_where_clients_need_a_certificate_it_must_be_of_that_authority(mutual: Server, folder: Path) -> None:
    assert client(mutual, folder, name="operator").get("/v1/status", {"ready"})["ready"] is False
    for name in ("", "stranger"):
        with pytest.raises(RequestError):
            client(mutual, folder, name=name).get("/v1/status", {"ready"})


def test_a_certificate_is_not_a_token(mutual: Server, folder: Path) -> None:
    it = Client(
        f"https://127.0.0.1:{mutual.port}",
        ca=folder / "ca.pem",
        certificate=folder / "operator.crt",
        key=folder / "operator.key",
    )
    with pytest.raises(RequestError, match="send a token") as refused:
        it.get("/v1/status", {"ready"})
    assert refused.value.status == 401


def test_who_does_not_finish_a_handshake_makes_room_and_is_dropped(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [server.connect() for _ in range(3 * MAX_CONNECTIONS)]
    for each in silent[::2]:
        with contextlib.suppress(OSError):
            each.sendall(b"\x16\x03\x01\x02\x00\x01")
    for _ in range(3):
        assert client(server, folder).get("/v1/status", {"ready"})
    assert len(server.places.opened) <= MAX_CONNECTIONS
    for each in silent:
        each.close()
    monkeypatch.setattr(connections, "CLIENT_SECONDS", 0.2)
    with server.connect() as sock:
        assert read(sock) == b""
    monkeypatch.undo()
    assert client(server, folder).get("/v1/status", {"ready"})


def test_what_is_no_tls_fills_no_log(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0" * 4000,
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff" * 100,
    ):
        server.send(garbage, patience=PATIENCE)
    with server.connect() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    assert [it for it in caplog.records if it.levelno >= logging.INFO] == []


def test_a_client_that_is_quick_has_its_request_read_although_it_comes_with_the_handshake(
    server: Server, folder: Path
) -> None:
    context = ssl.create_default_context(cafile=folder / "ca.pem")
    for _ in range(30):
        with server.connect() as sock, context.wrap_socket(sock, server_hostname="127.0.0.1") as within:
            within.sendall(server.head("GET", "/v1/status") + b"\r\n")
            assert within.recv(12) == b"HTTP/1.1 200"


def test_files_that_are_read_again_are_used_from_then_on(folder: Path, tmp_path: Path) -> None:
    context = listening.context(files(folder))
    it = Server(tmp_path, context)

    def shown() -> bytes:
        trusting = ssl.create_default_context(cafile=folder / "ca.pem")
        with it.connect() as sock, trusting.wrap_socket(sock, server_hostname="127.0.0.1") as within:
            return within.getpeercert(True) or b""

    first = shown()
    assert shown() == first
    listening.load(context, files(folder, "renewed"))
    assert shown() != first
    it.close()


def test_a_server_that_ends_lets_nobody_wait(folder: Path, tmp_path: Path) -> None:
    it = Server(tmp_path, listening.context(files(folder)))
    with it.connect() as silent, it.connect() as stream:
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        within = context.wrap_socket(stream, server_hostname="127.0.0.1")
        within.sendall(it.head("GET", "/v1/stream") + b"\r\n")
        assert within.recv(12) == b"HTTP/1.1 200"
        began = time.monotonic()
        it.close()
        assert time.monotonic() - began < connections.CLIENT_SECONDS
        assert read(silent) == b""
        with contextlib.suppress(OSError):  # no proper end of TLS
            while within.recv(1 << 16):
                pass
        within.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.9.9.9"])
def test_loopback_addresses_need_no_tls(host: str) -> None:
    listening.check_address(host, tls=False, insecure=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "169.254.1.1", "fe80::1%lo"])
def test_other_addresses_need_tls_unless_it_is_said_that_they_do_not(host: str) -> None:
    with pytest.raises(ListeningError, match="add --tls-cert and --tls-key, or --insecure if nobody can"):
        listening.check_address(host, tls=False, insecure=False)
    listening.check_address(host, tls=True, insecure=False)
    listening.check_address(host, tls=False, insecure=True)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (("server.crt", "operator.key", None), "--tls-cert: .*server.crt with the key .*operator.key can't be used"),
        (("none.crt", "server.key", None), "--tls-cert: .*none.crt.*No such file"),
        (("server.crt", "server.key", "server.key"), "--client-ca: .*server.key can't be used"),
    ],
)
def test_files_that_can_not_be_used_are_named(folder: Path, wrong: tuple[str, str, str | None], reason: str) -> None:
    certificate, key, ca = wrong
    with pytest.raises(ListeningError, match=reason):
        listening.context(TlsFiles(folder / certificate, folder / key, folder / ca if ca else None))


@pytest.mark.parametrize(
    "address",
    ["9560", "host", "host:0", "host:99999", "ftp://h:1", "http://h:1/x", "u@h:1", "h:1\r\nx: y", ":1", "[::1]"],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(AddressError, match="must be HOST:PORT"):
        Client(address)


def test_a_token_goes_to_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to a proxy of the environment, nor to where an answer redirects."""
    heard: list[bytes] = []

    async def run() -> None:
        async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await reader.read(10_000))
            writer.close()

        other = await asyncio.start_server(elsewhere, "127.0.0.1", 0)
        port = other.sockets[0].getsockname()[1]

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{port}/\r\n\r\n".encode())
            writer.close()

        asked = await asyncio.start_server(redirect, "127.0.0.1", 0)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
        it = Client(f"127.0.0.1:{asked.sockets[0].getsockname()[1]}", "secret")
        with pytest.raises(RequestError, match="answers 302"):
            await asyncio.to_thread(it.get, "/v1/status", {"ready"})
        other.close()
        asked.close()

    asyncio.run(run())
    assert heard == []
    with pytest.raises(AddressError, match="characters that no token has") as refused:
        Client("127.0.0.1:1", "se cret\r\nX: y")
    assert "cret" not in str(refused.value)


def test_a_handshake_that_fails_is_counted(server: Server) -> None:
    def refused() -> float:
        (metric,) = server.context.traffic.collectors[2].collect()
        return next(it.value for it in metric.samples if it.labels == {"reason": "handshake"})

    before = refused()
    with server.connect() as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        read(sock)
    until(lambda: refused() == before + 1)  # the client may see the end first
