"""Functions that lower packages call and higher packages define, bound by name when they are first called.

The root package, which has all of them, provides each; who calls one imports nothing above itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

_owners: Final[dict[str, str]] = {}


def provide(name: str, owner: str) -> None:
    """Declare that the function ``name`` is an attribute of the module ``owner``, imported lazily or not."""
    _owners[name] = owner


def resolve(name: str) -> Callable[..., Any]:
    """Return the function that was provided as ``name``."""
    found: Callable[..., Any] = getattr(sys.modules[_owners[name]], name)
    return found
