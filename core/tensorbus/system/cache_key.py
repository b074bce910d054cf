"""The key by which a user's cache entries are known for the user's own.

It lies in the user's own folder, not in the cache, which may be restored from elsewhere or mounted from a
volume that others write to: whoever can write there cannot make an entry that is taken.
"""

from __future__ import annotations

import os
import stat
import warnings
from hashlib import blake2b
from pathlib import Path
from typing import Final

from .env import cache_dir, state_dir
from .private_folders import PrivateFolder, read_all, user

NAME: Final = "cache-key"
_BYTES: Final = 32
_known: Final[dict[Path, bytes]] = {}


def cache_key() -> bytes | None:
    """Return the key, made where there is none; None where there is no place for it.

    Its place is the user's folder for state; for a user without one (in a container, say) the cache itself.
    """
    for find in (state_dir, cache_dir):
        place = find()
        key = _known.get(place) if place is not None else None
        if key is None and place is not None:
            key = _key(place)
            if key is not None:
                _known[place] = key
        if key is not None:
            return key
    return None


def key_path() -> Path | None:
    """Return where the key lies; None where there is none. For people: nothing is made."""
    paths = [place / NAME for place in (state_dir(), cache_dir()) if place is not None]
    return next((path for path in paths if path.exists()), None)


def digest(key: bytes, name: str, data: bytes) -> bytes:
    """Return the 32 bytes that only who has the key can make for an entry (RFC 7693, keyed).

    The name takes part, as one entry may lie where another belongs.
    """
    return blake2b(name.encode() + b"\0" + data, key=key, digest_size=32).digest()


def identity(key: bytes) -> bytes:
    """Return 8 bytes that tell one key from another, and say nothing else about it."""
    return blake2b(b"tensorbus cache key", key=key, digest_size=8).digest()


def _key(place: Path) -> bytes | None:
    try:
        with PrivateFolder(place, make=True, readable=True) as folder:
            return _read(folder) or _new_key(folder)
    except OSError:
        return None


def _new_key(folder: PrivateFolder) -> bytes | None:
    """Write a new key; return it, or that of a process that was faster."""
    try:
        folder.write_whole(NAME, os.urandom(_BYTES), anew=True)
    except FileExistsError:
        pass
    except OSError:  # a file system without links, where the last process's key stays
        folder.write_whole(NAME, os.urandom(_BYTES))
    return _read(folder)


def _read(folder: PrivateFolder) -> bytes | None:
    """Return the key that lies in a folder; None where there is none. One that is not secret is removed."""
    try:
        file = folder.open(NAME)
    except FileNotFoundError:
        return None
    mode, data = os.fstat(file).st_mode, read_all(file, _BYTES)
    if len(data) == _BYTES and (user() is None or not stat.S_IMODE(mode) & 0o077):
        return data
    wrong = "is damaged" if len(data) != _BYTES else "could be read by other users"
    folder.remove(NAME)
    warnings.warn(
        f"{folder.path / NAME} {wrong}: a new key is made, and compiled code is compiled again.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None
