"""Opens the store that a URL names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

from ... import plugins
from ...backend_interface.communication import Store
from ...errors import ArgumentError
from ...plugins.contract import check_methods, naming
from ..process_group.world import DEFAULT_TIMEOUT


def _file(url: str) -> Store:
    from .file_store import FileStore

    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or path in ("", "/") or parts.query or parts.fragment:
        raise ArgumentError(
            f"distributed: a store's URL is file:///a/path/of/a/file, with three slashes, got {url!r};"
            f" pathlib.Path(...).absolute().as_uri() spells one."
        )
    return FileStore(path)


def _memory(url: str) -> Store:
    from .memory_store import MemoryStore

    return MemoryStore()


_METHODS: Final = ("set", "get", "add", "wait", "check", "compare_set", "delete_key")
_SCHEMES: Final[dict[str, Callable[[str], Store]]] = {"file": _file, "memory": _memory}


def open_store(url: str, *, serve: bool = False, timeout: float = DEFAULT_TIMEOUT) -> Store:
    """Return the store of a URL: ``file:///a/path`` for processes, ``memory://`` for threads of one.

    Others come with packages: ``tcp://host:port`` with tensorbus-tcp. ``serve`` is True on the one rank that
    starts a server, where there is one; ``timeout`` is how many seconds to wait for it.

    Raises ``ArgumentError`` for any other scheme, ``DistributedError`` where the store cannot be opened.

    >>> open_store("memory://").add("n", 1)
    1
    """
    check_scheme(url)
    scheme = urlsplit(url).scheme
    if scheme in _SCHEMES:
        return _SCHEMES[scheme](url)
    factory = plugins.store(scheme)
    assert factory is not None, "check_scheme has found it"
    what = f"the stores {scheme}://: open"
    with naming(what):
        store = factory.open(url, serve=serve, timeout=timeout)
    check_methods(what, store, _METHODS, "Store")
    return store


def check_scheme(url: str) -> None:
    """Raise ``ArgumentError`` where nothing opens the store of a URL; no package is imported."""
    if not isinstance(url, str):
        raise ArgumentError(f"distributed: a store's URL is a str, as 'tcp://host:port', got {url!r}.")
    schemes = [*_SCHEMES, *plugins.store_schemes()]
    scheme = urlsplit(url).scheme
    if scheme in schemes:
        return
    known = ", ".join(f"{name}://" for name in schemes)
    raise ArgumentError(
        f"distributed: a store's URL begins with {known}; got {url!r}. Others come with packages, as redis://"
        f" with pip install tensorbus[redis]."
    )


def default_store_url(environment: Mapping[str, str]) -> str:
    """Return where ranks meet that something started which a package knows, such as mpiexec; else ""."""
    for scheme in plugins.store_schemes():
        factory = plugins.store(scheme)
        url = factory.default_url(environment) if isinstance(factory, _KnowsLauncher) else ""
        if url:
            return url
    return ""


@runtime_checkable
class _KnowsLauncher(Protocol):
    def default_url(self, environment: Mapping[str, str]) -> str: ...
