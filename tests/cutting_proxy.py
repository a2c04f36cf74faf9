"""A proxy before a Postgres that cuts a connection at a chosen message, as a network does."""

from __future__ import annotations

import contextlib
import enum
import socket
import tempfile
import threading
from types import TracebackType
from typing import Self

from sqlalchemy.engine import make_url

_CHUNK = 65_536


class Cut(enum.Enum):
    """Where a message is lost: on its way to the server, or its answer on the way back."""

    BEFORE_DELIVERY = "before delivery"
    AFTER_DELIVERY = "after delivery"


class CuttingProxy:
    """Listens on a socket of its own; once armed, cuts a connection at client message `message`, once."""

    def __init__(self, url: str, *, message: int, cut: Cut) -> None:
        """Prepare; nothing listens before the `with` block."""
        address = make_url(url)
        self._folder = tempfile.TemporaryDirectory()  # no test's own: a socket's path is short
        self._server = f"{address.query['host']}/.s.PGSQL.{address.query['port']}"
        self.url = address.update_query_dict({"host": self._folder.name}).render_as_string(hide_password=False)
        self._path = f"{self._folder.name}/.s.PGSQL.{address.query['port']}"
        self._message = message
        self._cut = cut
        self._lock = threading.Lock()
        self._listener = socket.socket(socket.AF_UNIX)
        self._sockets = [self._listener]
        self._is_armed = False
        self.messages = 0

    def arm(self) -> None:
        """Count messages from now on; the first is 1."""
        self._is_armed = True

    def __enter__(self) -> Self:
        """Start listening."""
        self._listener.bind(self._path)
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        for opened in self._sockets:
            _close(opened)
        self._folder.cleanup()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._server)
                self._sockets += [client, server]
                threading.Thread(target=self._to_server, args=(client, server), daemon=True).start()
                threading.Thread(target=self._to_client, args=(client, server), daemon=True).start()

    def _to_server(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := client.recv(_CHUNK):
                with self._lock:
                    self.messages += 1 if self._is_armed else 0
                    cuts = self.messages == self._message
                if cuts and self._cut is Cut.AFTER_DELIVERY:
                    _close(client)  # first, so that no answer comes through
                    server.sendall(chunk)
                    server.shutdown(socket.SHUT_WR)  # the server finishes what it was sent, then sees the end
                    return
                if cuts:
                    break
                server.sendall(chunk)
        _close(client)
        _close(server)

    def _to_client(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := server.recv(_CHUNK):
                client.sendall(chunk)
        _close(client)


def _close(opened: socket.socket) -> None:
    with contextlib.suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
    opened.close()
