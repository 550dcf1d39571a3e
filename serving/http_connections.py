"""What a client may do to a connection: how slow it may be, and how many there are."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

_log = logging.getLogger("serving")
_IDLE_SECONDS = 600.0
_LARGE_REPLY = 1 << 16
_FULL = json.dumps({"error": "too many connections"}).encode()
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class Connections(web.Server):
    """An `aiohttp.web.Server` that is patient within limits.

    Args:
        handler: Answers a request.
        most: Connections at once; more are told so and closed.
        patience: Seconds in which a request's headers must be there, and in which a client must
            take its answer.
    """

    def __init__(
        self, handler: Callable[..., Awaitable[web.StreamResponse]], most: int, patience: float
    ) -> None:
        super().__init__(handler, access_log=None, auto_decompress=False)
        self.most, self.patience = most, patience
        self.refused = 0

    @property
    def full(self) -> bool:
        """Whether there are as many connections as may be."""
        return len(self._connections) >= self.most

    def __call__(self) -> RequestHandler:
        return _Connection(
            self,
            loop=self._loop,
            keepalive_timeout=_IDLE_SECONDS,
            access_log=None,
            auto_decompress=False,
        )


class _Connection(RequestHandler):
    def __init__(self, manager: Connections, **options: Any) -> None:
        super().__init__(manager, **options)
        self._limits = manager
        self._slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport):
        if self._limits.full:
            self._limits.refused += 1
            _log.warning("more than %d REST connections: one is refused", self._limits.most)
            transport.write(_REFUSAL)
            transport.close()
            return
        super().connection_made(transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # what the kernel holds counts as taken here
            milliseconds = int(1000 * self._limits.patience)
            connection = transport.get_extra_info("socket")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        self._expect_headers()

    def _expect_headers(self):
        self._slow = self._loop.call_later(self._limits.patience, self._give_up)

    def _give_up(self):
        self._slow = None
        if not self._request_in_progress:
            self.force_close()

    def data_received(self, data):
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None
        elif self._slow is None and not self._request_in_progress:
            self._expect_headers()  # of a further request, of which a part is there

    def connection_lost(self, exc):
        if self._slow is not None:
            self._slow.cancel()
        super().connection_lost(exc)

    async def finish_response(self, request, resp, start_time):
        if not isinstance(resp, web.Response) or (resp.content_length or 0) < _LARGE_REPLY:
            return await super().finish_response(request, resp, start_time)
        try:
            async with asyncio.timeout(self._limits.patience):
                outcome = await super().finish_response(request, resp, start_time)
                await self._drain_helper()  # aiohttp itself goes on without
                return outcome
        except ConnectionError:
            return resp, True
        except TimeoutError:
            if self.transport is not None:
                self.transport.abort()  # close() would wait until it has been read
            return resp, True

    def handle_error(self, request, status=500, exc=None, message=None):
        """What is no HTTP is answered in JSON as well."""
        if request.writer.output_size > 0:
            raise ConnectionError("a reply has begun")
        if status >= 500:
            _log.error("cannot answer: %s", exc or message)
        response = web.json_response({"error": message or "Bad Request"}, status=status)
        response.force_close()
        return response
