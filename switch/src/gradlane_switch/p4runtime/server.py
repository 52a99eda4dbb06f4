# SPDX-License-Identifier: Apache-2.0
"""The gRPC server around the P4Runtime service: address, TLS, reflection and health."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from finsy.proto import p4r_grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gradlane import pem
from gradlane_switch.errors import SwitchError
from gradlane_switch.p4runtime.malformed import RefuseMalformed
from gradlane_switch.p4runtime.service import Service

DEFAULT_MAX_MESSAGE = 64 << 20
"""Bytes of a request: a pipeline, or a batch of some hundred thousand updates."""
MIN_MAX_MESSAGE = 4 << 20
"""The least that the P4Runtime specification wants a server to take."""
_MAX_CALLS = 1024
"""Calls and streams at a time; further ones get RESOURCE_EXHAUSTED."""
# A controller whose machine vanishes stops being primary after 15 s.
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
)
_P4RUNTIME = "p4.v1.P4Runtime"
# Its types do not know the servicer for asyncio.
_HEALTH: Any = health


@dataclass(frozen=True)
class Tls:
    """PEM files. `authority` signs the certificates of controllers; `mutual`: each controller needs one."""

    certificate: Path
    key: Path
    authority: Path | None = None
    mutual: bool = False


class Server:
    """Serves P4Runtime, gRPC server reflection and the gRPC health protocol. Raises SwitchError.

    The address is `HOST:PORT`, port 0 for one that the system chooses, or `unix:PATH`; `address` is the one it got.
    """

    def __init__(
        self, service: Service, address: str, tls: Tls | None = None, max_message: int = DEFAULT_MAX_MESSAGE
    ) -> None:
        self._service = service
        self._tls = tls
        self._renewed: Any = None  # certificates that were read again, until a handshake takes them
        options = [("grpc.max_receive_message_length", max_message), ("grpc.so_reuseport", 0), *_KEEPALIVE]
        self._server = grpc.aio.server(
            interceptors=[RefuseMalformed(_P4RUNTIME)], options=options, maximum_concurrent_rpcs=_MAX_CALLS
        )
        p4r_grpc.add_P4RuntimeServicer_to_server(service, self._server)
        self._health: Any = _HEALTH.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((_P4RUNTIME, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)
        try:
            if tls is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, self._credentials(tls))
        except RuntimeError:
            bound = 0
        if not bound:
            causes = "it is in use, or not an address of this machine"
            if tls is not None:
                causes += f", or {tls.certificate} and {tls.key} are not a certificate and its key"
            raise SwitchError(f"can't listen on {address}: {causes}")
        self.address = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{bound}"

    def reload(self, tls: Tls | None) -> None:
        """Reads the files again: handshakes from then on are with what they hold now. Whether there is TLS, and whether
        it is mutual, is decided at the start. Raises SwitchError, and nothing has changed."""
        if tls is None or self._tls is None:
            return
        try:
            pem.check_pair(tls.certificate, tls.key)
        except pem.PemError as problem:
            raise SwitchError(problem.reason) from None
        self._renewed = _certificates(tls)

    def _credentials(self, tls: Tls) -> grpc.ServerCredentials:
        if tls.mutual and tls.authority is None:
            raise SwitchError("client certificates can't be checked without the certificate of their authority")
        first = _certificates(tls)
        return grpc.dynamic_ssl_server_credentials(first, self._take, require_client_authentication=tls.mutual)

    def _take(self) -> Any:
        """None: nothing has changed. Called at each handshake, in a thread of gRPC."""
        renewed, self._renewed = self._renewed, None
        return renewed

    async def start(self) -> None:
        """Starts serving; health checks answer SERVING from now on."""
        for name in ("", _P4RUNTIME):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()
        self._service.notifier.start()

    async def stop(self, grace: float) -> None:
        """Stops serving. Health checks say so at once, and calls in flight have `grace` seconds to end."""
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace)
        await self._service.notifier.stop()


def _certificates(tls: Tls) -> Any:
    authority = None if tls.authority is None else _read(tls.authority)
    return grpc.ssl_server_certificate_configuration([(_read(tls.key), _read(tls.certificate))], authority)


def _read(path: Path) -> bytes:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SwitchError(f"{path}: {error.strerror}") from None
    if b"-----BEGIN " not in text:
        raise SwitchError(f"{path} is not a PEM file")
    return text
