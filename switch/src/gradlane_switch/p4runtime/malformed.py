# SPDX-License-Identifier: Apache-2.0
"""Requests that can't be parsed: the sender gets an error, and the log no traceback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError


class _Malformed:
    """In place of a request."""


class RefuseMalformed(grpc.aio.ServerInterceptor):
    """Answers requests to a service that can't be parsed with INVALID_ARGUMENT, naming the method."""

    def __init__(self, service: str) -> None:
        self._methods = f"/{service}/"

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """The method's own handler, but for such requests."""
        handler = await continuation(handler_call_details)
        if handler is None or not handler_call_details.method.startswith(self._methods):
            return handler
        message = f"this is not the request that {handler_call_details.method} takes"

        def deserialize(text: bytes) -> Any:
            try:
                return handler.request_deserializer(text)
            except DecodeError:
                return _Malformed()

        async def unary(request: Any, context: Any) -> Any:
            if isinstance(request, _Malformed):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
            return await handler.unary_unary(request, context)

        async def answers(request: Any, context: Any) -> AsyncIterator[Any]:
            if isinstance(request, _Malformed):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
            async for answer in handler.unary_stream(request, context):
                yield answer

        async def stream(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            malformed = False

            async def well_formed() -> AsyncIterator[Any]:
                nonlocal malformed
                async for request in requests:
                    if isinstance(request, _Malformed):
                        malformed = True
                        return
                    yield request

            async for answer in handler.stream_stream(well_formed(), context):
                yield answer
            if malformed:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)

        codec = {"request_deserializer": deserialize, "response_serializer": handler.response_serializer}
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(unary, **codec)
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(answers, **codec)
        return grpc.stream_stream_rpc_method_handler(stream, **codec)
