"""The origin of code: tensorbus itself, the standard library (and which of it only computes), the user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_OWN: Final = os.path.join(Path(__file__).parents[2], "")
_STANDARD: Final = os.path.dirname(os.__file__)
_PURE: Final = frozenset(
    """abc bisect calendar cmath collections collections.abc contextlib copy copyreg dataclasses enum
    fractions functools heapq inspect itertools keyword linecache math numbers operator re reprlib
    statistics string textwrap types typing weakref _collections_abc _weakrefset builtins __future__
    sre_compile sre_parse re._compiler re._parser graphlib typing_extensions""".split()
)
"""Modules whose functions compute and do nothing else."""


def own_path(*parts: str) -> str:
    """Return the path of a file or a folder of tensorbus, as code objects have it."""
    return os.path.join(_OWN, *parts)


def is_own(file: str) -> bool:
    """Return whether a file belongs to tensorbus."""
    return file.startswith(_OWN)


def is_standard(file: str) -> bool:
    """Return whether a file belongs to Python's standard library."""
    return (file.startswith(_STANDARD) and "site-packages" not in file) or file.startswith("<frozen")


def is_pure(module: str) -> bool:
    """Return whether a module of the standard library only computes."""
    return module in _PURE or module.partition(".")[0] in _PURE or module.lstrip("_") in _PURE
