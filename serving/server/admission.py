"""Limit the bytes of all requests in progress, and end a request if they exceed the limit.

A peer is a client address. All clients behind one proxy, and all on this machine, are one peer.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator

from serving.errors import ServingError

#: Bytes. A request that is not larger than this is never refused. A larger one makes progress
#: whenever it has received as many bytes again.
SMALL = 1 << 14
REQUEST_TIMEOUT = 408  # HTTP status for a body that arrives too slowly
_STALLED_SECONDS = 1.0  # after this time without progress, a body may be ended to make room


class Lease:
    """The bytes of a `ByteBudget` that one request occupies."""

    def __init__(self, budget: ByteBudget, peer: str, timeout: asyncio.Timeout) -> None:
        self._budget, self.peer, self.timeout = budget, peer, timeout
        self.size, self.is_complete = 0, False
        self._next_progress = SMALL
        self.progress_at = asyncio.get_running_loop().time()
        self.error: ServingError | None = None

    def grow(self, count: int) -> None:
        """Add received bytes.

        Args:
            count: The number of bytes.

        Raises:
            ServingError: If the budget has no room for them.
        """
        if self.error is not None:  # the budget has ended this request in the meantime
            raise self.error
        self.size += count
        self._budget.held += count
        if self.size >= self._next_progress:
            self._next_progress = self.size + SMALL
            self.progress_at = asyncio.get_running_loop().time()
            if self._budget.patience is not None:
                self.timeout.reschedule(self.progress_at + self._budget.patience)
        if self.size > SMALL:
            self._budget.make_room(self)

    def complete(self) -> None:
        """Record that the whole request has arrived, which ends its time limit."""
        self.is_complete = True
        self.timeout.reschedule(None)

    @property
    def has_stalled(self) -> bool:
        """Whether the request is incomplete and has made no progress for `_STALLED_SECONDS`."""
        idle = asyncio.get_running_loop().time() - self.progress_at
        return not self.is_complete and idle > _STALLED_SECONDS


class ByteBudget:
    """A limit on the bytes that all requests in progress occupy together.

    When a new request exceeds the limit, the budget ends a stalled request, if there is one.
    Otherwise, it determines the peer that occupies the most bytes. It refuses the new request if it
    comes from this peer, and otherwise ends the newest request of this peer.

    Args:
        limit: The number of bytes.
        patience: Seconds in which a body must receive `SMALL` more bytes; `None` for no limit.
        code: The canonical code with which requests are ended or refused.
    """

    def __init__(
        self, limit: int, patience: float | None = None, code: str = "UNAVAILABLE"
    ) -> None:
        self._limit, self.patience, self._code = limit, patience, code
        self.held = 0
        self._leases: dict[Lease, None] = {}  # oldest first

    @contextlib.asynccontextmanager
    async def lease(self, peer: str) -> AsyncIterator[Lease]:
        """Yield a `Lease` for a request. The budget may end the request inside the `with` block.

        Args:
            peer: The address of the client.

        Raises:
            ServingError: If the budget ends the request, or its body arrives too slowly.
        """
        timeout = asyncio.timeout(self.patience)
        lease = Lease(self, peer, timeout)
        self._leases[lease] = None
        try:
            async with timeout:
                yield lease
        except TimeoutError:
            if timeout.expired():
                raise lease.error or self._too_slow() from None
            raise
        finally:
            self._release(lease)

    def _release(self, lease):
        if lease in self._leases:
            del self._leases[lease]
            self.held -= lease.size

    def make_room(self, wanting: Lease) -> None:
        """End other requests until the limit is met; raise ServingError to refuse `wanting`."""
        while self.held > self._limit:
            full = ServingError(
                self._code,
                "too many large requests are in progress: together they may occupy at most "
                f"{self._limit} bytes",
            )
            victim = self._victim(wanting)
            if victim is None:
                raise full
            self._release(victim)
            victim.error = self._too_slow() if victim.has_stalled else full
            victim.timeout.reschedule(asyncio.get_running_loop().time())

    def _too_slow(self):
        return ServingError(
            "DEADLINE_EXCEEDED",
            f"the body arrives too slowly: less than {SMALL} bytes in {self.patience or 0:g} "
            "seconds",
            REQUEST_TIMEOUT,
        )

    def _victim(self, wanting):
        """Return the lease to end so that `wanting` has room, or None to refuse `wanting`."""
        others = [lease for lease in self._leases if lease is not wanting and lease.size > SMALL]
        stalled = [lease for lease in others if lease.has_stalled]
        if stalled:
            return min(stalled, key=lambda lease: lease.progress_at)
        held: collections.Counter[str] = collections.Counter()
        for lease in self._leases:
            held[lease.peer] += lease.size
        largest = max(held, key=held.__getitem__)
        if held[largest] == held[wanting.peer]:
            return None
        return next((lease for lease in reversed(others) if lease.peer == largest), None)
