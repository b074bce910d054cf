"""The environment variables that tensorbus reads. No other module reads the environment.

A value that makes no sense is warned of, once, and counts as if the variable were not set.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


MAX_THREADS: Final = 1 << 16
_ON: Final = ("1", "true", "on", "yes")
_OFF: Final = ("0", "false", "off", "no")
_warned: Final[set[tuple[str, str]]] = set()


def _refuse(variable: str, got: str, needed: str) -> None:
    """Warn, once, of a value that makes no sense."""
    import warnings

    if (variable, got) not in _warned:
        _warned.add((variable, got))
        warnings.warn(f"{variable}={got!r} is ignored: it must be {needed}.", RuntimeWarning, stacklevel=4)


def _switch(variable: str, default: bool) -> bool:
    text = os.environ.get(variable, "").strip()
    if text.lower() in (_OFF if default else _ON):
        return not default
    if text and text.lower() not in (*_ON, *_OFF):
        _refuse(variable, text, "1 (on) or 0 (off)")
    return default


def _names(variable: str) -> frozenset[str] | None:
    text = os.environ.get(variable)
    if text is None or not text.strip():
        return None
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def autoload() -> bool:
    """``TENSORBUS_AUTOLOAD=0`` turns the discovery of installed plugins off."""
    return _switch("TENSORBUS_AUTOLOAD", True)


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
    names = _names("TENSORBUS_LOG") or frozenset()
    if names - {"dispatch"}:
        _refuse("TENSORBUS_LOG", ",".join(sorted(names - {"dispatch"})), "dispatch")
    return names & {"dispatch"}


def _seconds(variable: str, default: float) -> float:
    text = os.environ.get(variable, "").strip()
    try:
        seconds = float(text or default)
    except ValueError:
        seconds = 0.0
    if 0 < seconds < float("inf"):
        return seconds
    _refuse(variable, text, "a number of seconds above 0")
    return default


def probe_timeout() -> float:
    """``TENSORBUS_PROBE_TIMEOUT``: how many seconds importing a plugin, or a probe, may take (20)."""
    return _seconds("TENSORBUS_PROBE_TIMEOUT", 20.0)


def compiler_timeout() -> float:
    """``TENSORBUS_COMPILER_TIMEOUT``: how many seconds one run of a C compiler may take (default 300)."""
    return _seconds("TENSORBUS_COMPILER_TIMEOUT", 300.0)


def cache_dir() -> Path | None:
    """``TENSORBUS_CACHE_DIR``: where compiled code is kept (default: the user's cache folder).

    None: nowhere, as for a user without a home (in a container, say).
    """
    from pathlib import Path  # imports a tenth of what all of tensorbus does

    setting = os.environ.get("TENSORBUS_CACHE_DIR")
    if setting:
        return Path(setting)
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "tensorbus"
    except RuntimeError:
        return None


def state_dir() -> Path | None:
    """``XDG_STATE_HOME``: the user's folder for what is not to be deleted as a cache is. None: no home."""
    try:
        return _state_dir(os.environ.get("XDG_STATE_HOME"), os.environ.get("HOME"))
    except RuntimeError:
        return None


@lru_cache(8)  # it is asked for with each entry of the cache
def _state_dir(base: str | None, home: str | None) -> Path:
    from pathlib import Path

    return (Path(base) if base else Path.home() / ".local" / "state") / "tensorbus"


def threads() -> int | None:
    """``TENSORBUS_NUM_THREADS``: how many threads a device on the host computes with. None: one a core."""
    text = os.environ.get("TENSORBUS_NUM_THREADS", "").strip()
    if not text:
        return None
    if text.isdecimal() and len(text) < 10 and 0 < int(text) <= MAX_THREADS:
        return int(text)
    _refuse("TENSORBUS_NUM_THREADS", text, f"a whole number from 1 to {MAX_THREADS}")
    return None


def c_compiler() -> str | None:
    """``CC``: the C compiler, with options if need be, as builds know it. None: the one that is found."""
    return os.environ.get("CC", "").strip() or None


def verifying() -> bool:
    """``TENSORBUS_VERIFY=1``: check graphs and loop IR after each pass of the compiler."""
    return _switch("TENSORBUS_VERIFY", False)


def comparing_eager() -> bool:
    """``TENSORBUS_COMPARE_EAGER=0``: compiled functions are never measured beside Python."""
    return _switch("TENSORBUS_COMPARE_EAGER", True)


def unroll_limit() -> int:
    """``TENSORBUS_UNROLL_LIMIT=n``: how many ops of a loop one capture may record (1000). 0: any number."""
    text = os.environ.get("TENSORBUS_UNROLL_LIMIT", "").strip()
    if text.isdecimal() and len(text) < 10:
        return int(text)
    if text:
        _refuse("TENSORBUS_UNROLL_LIMIT", text, "a whole number from 0")
    return 1000


def debugging() -> bool:
    """``TENSORBUS_DEBUG=1``: compare the operands of each kernel before and after it runs. Slow."""
    return _switch("TENSORBUS_DEBUG", False)


def dump_dir() -> Path | None:
    """``TENSORBUS_DUMP=dir``: where every stage of each compiled program is written. None: nowhere."""
    from pathlib import Path

    setting = os.environ.get("TENSORBUS_DUMP", "").strip()
    return Path(setting) if setting else None


def metal_host() -> bool:
    """``TENSORBUS_METAL_HOST=1``: the metal device computes on the host, for tests without Metal."""
    return _switch("TENSORBUS_METAL_HOST", False)


def terminal() -> str:
    """Return the kind of terminal that there is, by ``TERM``."""
    return os.environ.get("TERM", "")
