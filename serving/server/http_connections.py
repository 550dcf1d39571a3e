"""What a client may do to a connection: how slow it may be, and how many there are."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

_log = logging.getLogger("serving")
_IDLE_SECONDS = 600.0
_LARGE_REPLY = 1 << 16
# Bytes that are read at a time, seconds that each may cost, and by how many more a body does until
# its connection has to pause: chunks of one byte cost hundreds of times as much as one piece.
_PIECE, _FAIR, _LONG, _PAUSE = 1 << 14, 5e-8, 0.002, 4.0
_FULL = json.dumps({"error": "too many connections"}).encode()
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class Connections(web.Server):
    """An `aiohttp.web.Server` that is patient within limits.

    Args:
        handler: Answers a request.
        most: Connections at once. For one more, the one that has been idle for longest is closed;
            where none is, it is told so and closed itself.
        patience: Seconds in which a request's headers must be there, and in which a client must
            take its answer.
    """

    def __init__(
        self, handler: Callable[..., Awaitable[web.StreamResponse]], most: int, patience: float
    ) -> None:
        super().__init__(handler, access_log=None, auto_decompress=False)
        self.most, self.patience = most, patience
        self.refused = 0

    def make_room(self) -> bool:
        """Returns whether there is room for one more connection, after closing an idle one."""
        if len(self._connections) < self.most:
            return True
        everyone: Iterable[Any] = self._connections
        idle = [connection for connection in everyone if connection.idle_since is not None]
        if idle:
            min(idle, key=lambda connection: connection.idle_since).force_close()
        return bool(idle)

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
        self._resting: asyncio.TimerHandle | None = None
        self._newest_body: Any = None
        self._excess = 0.0
        self._said_all = False

    @property
    def _busy(self):
        """Whether a request is there that is not answered."""
        return bool(self._messages) or self._waiter is None

    @property
    def idle_since(self) -> float | None:
        """A time that is the earlier the longer no request is there, None if one is."""
        unavailable = self._busy or self._force_close
        return None if unavailable else self._next_keepalive_close_time

    def connection_made(self, transport):
        if not self._limits.make_room():
            self._limits.refused += 1
            _log.warning("more than %d REST connections: one is refused", self._limits.most)
            transport.write(_REFUSAL)
            transport.close()
            return
        super().connection_made(transport)
        transport.max_size = _PIECE
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
        before, begun = self._request_count, time.thread_time()
        super().data_received(data)
        self._charge(time.thread_time() - begun - _FAIR * len(data))
        if self._request_count > before:
            self._newest_body, self._excess = self._messages[-1][1], 0.0
            if self._slow is not None:
                self._slow.cancel()
                self._slow = None
        elif self._slow is None and not self._request_in_progress:
            self._expect_headers()  # of a further request, of which a part is there

    def _charge(self, seconds):
        """Lets a connection pause that takes up too much of the loop's time."""
        self._excess = max(0.0, self._excess + seconds)
        if self._excess > _LONG and self._resting is None:
            self._pause_transport_reading()
            self._resting = self._loop.call_later(_PAUSE * self._excess, self._go_on)
            self._excess = 0.0

    def _resume_transport_reading(self):
        if self._resting is None:
            super()._resume_transport_reading()

    def _go_on(self):
        self._resting = None
        if not self._reading_paused and not self._buffer_paused:
            self._resume_transport_reading()

    def eof_received(self):
        """A client that has said all it had to may still be waiting for its answer."""
        if not self._busy or self._newest_body is None or not self._newest_body.is_eof():
            return False
        self._said_all = True
        self._close_after_the_last()
        return True

    def _close_after_the_last(self):
        if self._said_all and not self._messages:
            self.close()

    def connection_lost(self, exc):
        if self._slow is not None:
            self._slow.cancel()
        if self._resting is not None:
            self._resting.cancel()
        super().connection_lost(exc)

    async def finish_response(self, request, resp, start_time):
        self._close_after_the_last()
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
