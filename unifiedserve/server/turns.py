"""Spread requests that come at once over turns of the event loop.

A few begin in each, so that streams go on in between.
"""

import asyncio
from collections import deque

from starlette.types import ASGIApp, Receive, Scope, Send


class Turns:
    """Let so many begin in each turn of the loop. They keep the order in which they came."""

    def __init__(self, a_turn: int) -> None:
        self._a_turn = a_turn
        self._left = a_turn
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._counting = False

    async def take(self) -> None:
        """Return at once, or in a later turn if enough have begun in this one."""
        loop = asyncio.get_running_loop()
        if not self._counting:
            self._counting = True
            loop.call_soon(self._next)
        if self._left and not self._waiting:
            self._left -= 1
            return
        turn = loop.create_future()
        self._waiting.append(turn)
        await turn

    def giving(self, app: ASGIApp) -> ASGIApp:
        """Return the app, whose requests begin when it is their turn."""

        async def begin(scope: Scope, receive: Receive, send: Send) -> None:
            await self.take()
            await app(scope, receive, send)

        return begin

    def _next(self) -> None:
        self._left = self._a_turn
        while self._left and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its client is still there
                turn.set_result(None)
                self._left -= 1
        self._counting = bool(self._waiting)
        if self._counting:
            asyncio.get_running_loop().call_soon(self._next)
