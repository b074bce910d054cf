"""Packages whose parts are imported when they are first named: who needs one layer waits for one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

_hints: Final[list[Callable[[str], str]]] = []


def hint_by(hint: Callable[[str], str]) -> None:
    """Let errors of names that are not there end with what ``hint`` says of a path below ``tensorbus``."""
    _hints.append(hint)


def lazy_exports(
    package: str, parts: Mapping[str, str], modules: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the ``__getattr__``, the ``__dir__`` and the ``__all__`` of a package.

    ``parts`` tells which module, by its name inside of the package, has which names, with spaces between;
    ``modules`` are those that are offered themselves. Type checkers are told the same by imports under
    ``TYPE_CHECKING``.

    >>> find, names, offered = lazy_exports("tensorbus", {"func": "vmap"}, "linalg")
    >>> find("vmap").__module__, offered
    ('tensorbus.func.vectorize', ['linalg', 'vmap'])
    """
    homes = {name: part for part, names in parts.items() for name in names.split()}
    inside = {*modules.split(), *parts}
    offered = sorted({*homes, *modules.split()})
    scope = vars(sys.modules[package])

    def find(name: str) -> Any:
        if name in homes:
            part = importlib.import_module(f".{homes[name]}", package)
            # All at once: importing a part of the name of a class has put the module where the class belongs.
            scope.update({each: getattr(part, each) for each in parts[homes[name]].split()})
            return scope[name]
        if name in inside:
            return importlib.import_module(f".{name}", package)
        path = f"{package}.{name}".partition(".")[2]
        hint = "".join([hint(path) for hint in _hints])
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    return find, lambda: sorted({*scope, *offered}), offered
