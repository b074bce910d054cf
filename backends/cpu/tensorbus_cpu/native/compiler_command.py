"""The command of the C compiler that is used, and what tells it and the processor from others."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import shutil
import sys
from functools import cache
from typing import Final

from tensorbus.backend_api import c_compiler

UNIX: Final = hasattr(os, "fork")
"""Whether the system is one for which C is compiled here."""


@cache
def identity(command: tuple[str, ...]) -> str:
    """Return what tells compilers and processors apart: a cache may be shared between machines."""
    program = shutil.which(command[0])
    stamp = os.stat(program) if program else None
    try:
        with open("/proc/cpuinfo") as file:  # the first processor is as the others, of which there are many
            lines = file.read(1 << 13).splitlines()
    except OSError:
        lines = []
    own = [next((x for x in lines if x.startswith(key)), "") for key in ("model name", "flags", "Features")]
    return repr((program, stamp and (stamp.st_size, stamp.st_mtime_ns), platform.machine(), own))


def find() -> tuple[str, ...] | None:
    """Return the command of a C compiler: ``CC``, cc, gcc, clang, or that of the ziglang wheel; else None.

    None as well on systems that are not Unix: what is compiled has threads and memory of Unix.
    """
    if not UNIX:
        return None
    chosen = c_compiler()
    if chosen is not None:
        try:
            return tuple(shlex.split(chosen))
        except ValueError:  # a quote without its end: no command, which is said as of others
            return (chosen,)
    for name in ("cc", "gcc", "clang"):
        path = shutil.which(name)
        if path is not None:
            return (path,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    return None
