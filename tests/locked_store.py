"""A store whose library raises errors of its own, as those of object stores do for missing credentials."""

from __future__ import annotations

import fsspec
from fsspec.spec import AbstractFileSystem


class NoCredentialsError(Exception):
    """What a foreign library raises: it is no OSError."""


class LockedFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no annotations
    """Refuses every call; `closed://` refuses to be opened at all."""

    protocol = ("locked", "closed")

    def __init__(self, *, is_closed: bool = False) -> None:
        super().__init__()
        if is_closed:
            raise _refusal()

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, bool]:
        return {"is_closed": path.startswith("closed")}

    def _refuse(self, *_given: object, **_options: object) -> None:
        raise _refusal()

    exists = isdir = info = ls = makedirs = open = put_file = rm = size = cat_file = pipe_file = _refuse


def _refusal() -> NoCredentialsError:
    return NoCredentialsError("unable to locate credentials")


for _protocol in LockedFileSystem.protocol:
    fsspec.register_implementation(_protocol, LockedFileSystem, clobber=True)
