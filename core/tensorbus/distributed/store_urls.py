"""Opens the store that a URL names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from ..backend_interface.communication import Store
from ..errors import ArgumentError


def _file(url: str) -> Store:
    from .file_store import FileStore

    return FileStore(urlsplit(url).path)


def _memory(url: str) -> Store:
    from .memory_store import MemoryStore

    return MemoryStore()


_SCHEMES: Final[dict[str, Callable[[str], Store]]] = {"file": _file, "memory": _memory}


def open_store(url: str) -> Store:
    """Return the store of a URL: ``file:///a/path`` for processes, ``memory://`` for threads of one.

    Raises ``ArgumentError`` for any other scheme.

    >>> open_store("memory://").add("n", 1)
    1
    """
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise ArgumentError(f"distributed: a store's URL begins with {known}; got {url!r}.")
    return _SCHEMES[scheme](url)
