"""A store whose addresses name a host and whose paths do not, as those of SFTP, SMB and HDFS over HTTP."""

from __future__ import annotations

from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.memory import MemoryFileSystem


class HostedFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no annotations
    """Holds its files in memory, and cannot be opened without a host."""

    protocol = "hosted"
    store: dict[str, object] = {}  # noqa: RUF012 - one for all, as its parent has it

    def __init__(self, host: str) -> None:
        super().__init__()
        self.host = host

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(MemoryFileSystem._strip_protocol(urlsplit(path).path))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        host = urlsplit(path).netloc
        return {"host": host} if host else {}


fsspec.register_implementation(HostedFileSystem.protocol, HostedFileSystem, clobber=True)
