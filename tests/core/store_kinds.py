"""One store of each kind, for tests that hold all kinds to the same contract."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tensorbus import distributed as dist


def redis_server(folder: Path, port: int | None = None) -> tuple[subprocess.Popen[bytes], str]:
    """Start a Redis server; return it and its URL."""
    pytest.importorskip("tensorbus_redis", reason="tensorbus-redis is not installed")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed: apt install redis-server")
    port = free_port() if port is None else port
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", "a secret"]
    server = subprocess.Popen([program, *options, "--dir", str(folder)], stdout=subprocess.DEVNULL)
    return server, f"redis://:a%20secret@127.0.0.1:{port}/0"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


KINDS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda folder: dist.MemoryStore(),
    "file": lambda folder: dist.open_store((folder / "ranks").as_uri()),
    "prefix": lambda folder: dist.PrefixStore("run7/", dist.MemoryStore()),
    "tcp": lambda folder: dist.open_store("tcp://127.0.0.1:0", serve=True),
}


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[tuple[Any, str]]:
    """Give a store of a kind, and the URL at which other processes open it, "" where none can."""
    if kind == "redis":
        server, url = redis_server(folder)
        url += "?prefix=it's+[a-z]*"
        try:
            with closing(dist.open_store(url, timeout=30)) as store:
                yield store, url
        finally:
            server.kill()
            server.wait()
        return
    store = KINDS[kind](folder)
    yield store, (folder / "ranks").as_uri() if kind == "file" else getattr(store, "url", "")
    if kind == "tcp":
        store.close()
