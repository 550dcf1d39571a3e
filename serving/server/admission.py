"""The bytes of requests that the server holds, and which request makes room when it is full.

A peer is an address: all clients behind one proxy, or on this machine, are one peer.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator

from serving.errors import ServingError

#: A request of at most so many bytes is never refused, and a body must bring so many more in time.
SMALL = 1 << 14
REQUEST_TIMEOUT = 408  # HTTP status of a body that is too slow
_STALLED_SECONDS = 1.0  # without progress, after which a body makes room for another


class Lease:
    """The bytes that one request holds of a `ByteBudget`."""

    def __init__(self, budget: ByteBudget, peer: str, timeout: asyncio.Timeout) -> None:
        self._budget, self.peer, self.timeout = budget, peer, timeout
        self.size, self.is_complete = 0, False
        self._next_progress = SMALL
        self.progress_at = asyncio.get_running_loop().time()
        self.error: ServingError | None = None

    def grow(self, count: int) -> None:
        """Count more received bytes.

        Raises:
            ServingError: If the budget has no room for them.
        """
        if self.error is not None:  # evicted, and the request does not know yet
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
        """End the time limit: the whole request is here."""
        self.is_complete = True
        self.timeout.reschedule(None)

    @property
    def has_stalled(self) -> bool:
        """Whether the request is incomplete and made no progress of late."""
        idle = asyncio.get_running_loop().time() - self.progress_at
        return not self.is_complete and idle > _STALLED_SECONDS


class ByteBudget:
    """Bytes that all requests together may hold.

    When they hold more, a stalled body is ended; if there is none, the newest request of the peer
    that holds the most. A peer that holds the most itself is refused.

    Args:
        limit: The number of bytes.
        patience: Seconds in which a body must bring `SMALL` more bytes; None for any time.
        code: Canonical code of a refusal.
    """

    def __init__(
        self, limit: int, patience: float | None = None, code: str = "UNAVAILABLE"
    ) -> None:
        self._limit, self.patience, self._code = limit, patience, code
        self.held = 0
        self._leases: dict[Lease, None] = {}  # oldest first

    @contextlib.asynccontextmanager
    async def lease(self, peer: str) -> AsyncIterator[Lease]:
        """Give a request a `Lease`, which the budget may end before the block does.

        Raises:
            ServingError: If the budget ended it, or the body is too slow.
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
        """End requests of others, or raise ServingError, until the limit holds."""
        while self.held > self._limit:
            full = ServingError(
                self._code,
                f"too many large requests are waiting: together they may hold {self._limit} bytes",
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
            f"the body is too slow: less than {SMALL} bytes in {self.patience or 0:g} seconds",
            REQUEST_TIMEOUT,
        )

    def _victim(self, wanting):
        """Return the lease that makes room for another, None if there is none."""
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
