"""The names that a piece of code reads: of globals, of modules that it imports, of attributes."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from functools import cache
from importlib.util import resolve_name
from itertools import accumulate
from typing import Any, Final

Code = types.CodeType
_GLOBAL_INSTRUCTIONS: Final = frozenset(
    {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
)


@cache
def names_looked_up(code: Code) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that code looks up among globals, and the modules that it imports.

    Attributes may have the same names. Modules are named as relative to a package, ``.inner`` say.
    """
    names: set[str] = set()
    imported: list[str] = []
    loaded: list[Any] = []
    for i in dis.get_instructions(code):
        if i.opname in _GLOBAL_INSTRUCTIONS:
            names.add(i.argval)
        elif i.opname == "IMPORT_NAME":  # of a level, which is loaded first, and the names that it asks for
            level = next(x for x in reversed(loaded[:-1]) if type(x) is int)
            imported.append("." * level + i.argval)
        elif i.opname.startswith("LOAD_"):
            loaded.append(i.argval)
    return tuple(name for name in code.co_names if name in names), tuple(imported)


def package_chain(imported: str, package: str) -> list[str]:
    """Return the full names of an imported module's packages, outermost first, and its own."""
    try:
        name = resolve_name(imported, package)
    except ImportError:
        return []
    return list(accumulate(name.split("."), "{}.{}".format))


def strings(constants: tuple[Any, ...]) -> Iterator[str]:
    """Yield the strings among constants, also in tuples: they may be names of attributes."""
    for x in constants:
        if isinstance(x, str):
            yield x
        elif isinstance(x, (tuple, frozenset)):
            yield from strings(tuple(x))
