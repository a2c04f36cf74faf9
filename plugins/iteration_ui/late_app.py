"""How is a web application mounted without importing it? It is made by the first request that reaches it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

# ASGI's own types: messages are mappings of whatever the protocol says.
_Message = MutableMapping[str, Any]
_Application = Callable[[_Message, Callable[[], Awaitable[_Message]], Callable[[_Message], Awaitable[None]]], Any]


class LateApp:
    """An ASGI application that becomes the real one when it is first called."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: _Application | None = None

    async def __call__(
        self,
        scope: _Message,
        receive: Callable[[], Awaitable[_Message]],
        send: Callable[[_Message], Awaitable[None]],
    ) -> None:
        """Hand the request to the application."""
        await self._application()(scope, receive, send)

    def _application(self) -> _Application:
        with self._lock:
            if self._made is None:
                from iteration_ui.app import make_app  # noqa: PLC0415  (late is the point)

                self._made = make_app()
            return self._made
