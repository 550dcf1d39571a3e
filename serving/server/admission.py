"""Fairness among peers: whose turn it is, and who makes room where there is too much.

A peer is an address. All that stand behind one proxy, or on this machine, are one.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator

from serving.errors import ServingError, TooSlow

#: Bytes that are never refused for what others hold, and of which more must come in time.
SMALL = 1 << 14
_STALLED = 1.0  # seconds without so many bytes, after which a body makes room for another


class Turns:
    """A few places: the peers that wait get one in turn, each in the order of its asking.

    Args:
        count: How many places there are.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: collections.OrderedDict[str, collections.deque[asyncio.Future[None]]]
        self._waiting = collections.OrderedDict()

    @contextlib.asynccontextmanager
    async def place(self, peer: str) -> AsyncIterator[None]:
        """Waits for a place and keeps it for as long as the block lasts."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(peer)
        try:
            yield
        finally:
            self._give()

    async def _wait(self, peer):
        ticket = asyncio.get_running_loop().create_future()
        tickets = self._waiting.setdefault(peer, collections.deque())
        tickets.append(ticket)
        try:
            await ticket
        except asyncio.CancelledError:
            if not ticket.cancelled():
                self._give()  # it had been given just before
            raise

    def _give(self):
        while self._waiting:
            peer, tickets = self._waiting.popitem(last=False)
            while tickets and tickets[0].done():  # they do not wait any more
                tickets.popleft()
            if not tickets:
                continue
            tickets.popleft().set_result(None)
            if tickets:
                self._waiting[peer] = tickets  # behind the others
            return
        self._free += 1


class Share:
    """What one request holds of a `Budget`."""

    def __init__(self, budget: Budget, peer: str, clock: asyncio.Timeout) -> None:
        self._budget, self.peer, self.clock = budget, peer, clock
        self.size, self.coming = 0, True
        self.moved = asyncio.get_running_loop().time()
        self._next = SMALL
        self.error: ServingError = TooSlow(budget.patience or 0)

    def grow(self, count: int) -> None:
        """So many bytes more have come.

        Raises:
            ServingError: If there is no room for them, or this request has just made room: what
                comes before it is told so would be counted and never released.
        """
        if not self._budget.holds(self):
            raise self.error
        self.size += count
        self._budget.held += count
        if self.size >= self._next:
            self._next, self.moved = self.size + SMALL, asyncio.get_running_loop().time()
            if self._budget.patience is not None:
                self.clock.reschedule(self.moved + self._budget.patience)
        if self.size > SMALL:
            self._budget.make_room(self)

    def complete(self) -> None:
        """All has come: there is no hurry any more."""
        self.coming = False
        self.clock.reschedule(None)


class Budget:
    """Bytes that all requests together may hold.

    Where it is full, a body that has come to a stop makes room, or the newest request of the peer
    that holds the most; a peer that holds as much itself is refused.

    Args:
        most: How many bytes.
        patience: Seconds in which `SMALL` more bytes of a body must come, None for any time.
        code: Canonical code of a refusal.
    """

    def __init__(self, most: int, patience: float | None = None, code: str = "UNAVAILABLE") -> None:
        self._most, self.patience, self._code = most, patience, code
        self.held = 0
        self._shares: dict[Share, None] = {}  # in the order of their beginning

    @contextlib.asynccontextmanager
    async def share(self, peer: str) -> AsyncIterator[Share]:
        """Gives the `Share` of a request, which may be ended from outside meanwhile.

        Raises:
            ServingError: If it was.
        """
        clock = asyncio.timeout(self.patience)
        share = Share(self, peer, clock)
        self._shares[share] = None
        try:
            async with clock:
                yield share
        except TimeoutError:
            if clock.expired():
                raise share.error from None
            raise
        finally:
            self._release(share)

    def holds(self, share: Share) -> bool:
        """Whether the bytes of a request are still counted."""
        return share in self._shares

    def _release(self, share):
        if self.holds(share):
            del self._shares[share]
            self.held -= share.size

    def make_room(self, wanting: Share) -> None:
        """Ends requests of others, or raises ServingError, until no more is held than may be."""
        while self.held > self._most:
            least = self._least_worthy(wanting)
            full = ServingError(
                self._code,
                f"too many large requests are waiting: together they may hold {self._most} bytes",
            )
            if least is None:
                raise full
            self._release(least)
            if not (least.coming and self._has_stalled(least)):
                least.error = full
            least.clock.reschedule(asyncio.get_running_loop().time())

    def _has_stalled(self, share):
        return asyncio.get_running_loop().time() - share.moved > _STALLED

    def _least_worthy(self, wanting):
        """Returns the share that should make room for another, None if there is none."""
        sizes: collections.Counter[str] = collections.Counter()
        others = []
        for share in self._shares:
            sizes[share.peer] += share.size
            if share is not wanting and share.size > SMALL and not share.clock.expired():
                others.append(share)
        stalled = [share for share in others if share.coming and self._has_stalled(share)]
        if stalled:
            return min(stalled, key=lambda share: share.moved)
        others = [
            share for share in others if sizes[share.peer] - share.size >= sizes[wanting.peer]
        ]
        most = max((sizes[share.peer] for share in others), default=0)
        return next((s for s in reversed(others) if sizes[s.peer] == most), None)
