"""The environment variables that tensorbus reads. No other module reads the environment."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def _names(variable: str) -> frozenset[str] | None:
    text = os.environ.get(variable)
    if text is None or not text.strip():
        return None
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def autoload() -> bool:
    """``TENSORBUS_AUTOLOAD=0`` turns the discovery of installed plugins off."""
    return os.environ.get("TENSORBUS_AUTOLOAD", "1").strip().lower() not in ("0", "false", "off", "no")


def allowed() -> frozenset[str] | None:
    """``TENSORBUS_PLUGINS=a,b``: the device types, plugins or distributions that may load. None: all."""
    return _names("TENSORBUS_PLUGINS")


def blocked() -> frozenset[str]:
    """``TENSORBUS_BLOCK=c``: the device types, plugins or distributions that may not load."""
    return _names("TENSORBUS_BLOCK") or frozenset()


def default_device() -> str | None:
    """``TENSORBUS_DEFAULT_DEVICE``: the device that new tensors are made on."""
    return os.environ.get("TENSORBUS_DEFAULT_DEVICE", "").strip() or None


def logged() -> frozenset[str]:
    """``TENSORBUS_LOG=dispatch``: what is told on the error stream: each new choice of a kernel."""
    return _names("TENSORBUS_LOG") or frozenset()


def probe_timeout() -> float:
    """``TENSORBUS_PROBE_TIMEOUT``: how many seconds a device may take to answer its probe (default 20)."""
    text = os.environ.get("TENSORBUS_PROBE_TIMEOUT", "")
    try:
        seconds = float(text)
    except ValueError:
        return 20.0
    return seconds if seconds > 0 else 20.0


def cache_dir() -> Path:
    """``TENSORBUS_CACHE_DIR``: where compiled code is kept (default: the user's cache folder)."""
    from pathlib import Path  # imports a tenth of what all of tensorbus does

    given = os.environ.get("TENSORBUS_CACHE_DIR")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tensorbus"


def threads() -> int | None:
    """``TENSORBUS_NUM_THREADS``: how many threads a device on the host computes with. None: one a core."""
    text = os.environ.get("TENSORBUS_NUM_THREADS", "")
    return int(text) if text.strip().isdecimal() and int(text) > 0 else None


def c_compiler() -> str | None:
    """``CC``: the C compiler, with options if need be, as builds know it. None: the one that is found."""
    return os.environ.get("CC", "").strip() or None


def verifying() -> bool:
    """``TENSORBUS_VERIFY=1``: check graphs and loop IR after each pass of the compiler."""
    return os.environ.get("TENSORBUS_VERIFY", "").strip().lower() not in ("", "0", "false", "off", "no")


def dump_dir() -> Path | None:
    """``TENSORBUS_DUMP=dir``: where every stage of each compiled program is written. None: nowhere."""
    from pathlib import Path

    given = os.environ.get("TENSORBUS_DUMP", "").strip()
    return Path(given) if given else None


def metal_host() -> bool:
    """``TENSORBUS_METAL_HOST=1``: the metal device computes on the host, for tests without Metal."""
    return os.environ.get("TENSORBUS_METAL_HOST", "").strip().lower() not in ("", "0", "false", "off", "no")
