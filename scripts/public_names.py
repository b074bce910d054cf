"""Prints every public name of tensorbus with its signature, a line each.

Run ``python scripts/public_names.py > names.txt`` before and after a change, and compare the two files.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

MODULES = """tensorbus autograd backend_api compiler distributions dtypes errors fft func linalg nn
    nn.functional nn.init nn.parametrizations nn.parametrize nn.utils nn.utils.rnn optim optim.lr_scheduler
    random serialization special""".split()

_ABSENT = object()


def _is_defined(module: ModuleType) -> set[str]:
    """Return the names that a module defines, or re-exports as ``from x import name as name``."""
    defined: set[str] = {*getattr(module, "__all__", ()), *getattr(module, "_FORMER", ())}
    for node in ast.walk(ast.parse(Path(module.__file__ or "").read_text())):
        if isinstance(node, ast.ImportFrom):
            defined |= {a.asname or "" for a in node.names if a.asname in (a.name, "bool")}
    for node in ast.parse(Path(module.__file__ or "").read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined |= {x.id for t in targets for x in ast.walk(t) if isinstance(x, ast.Name)}
    defined |= set(getattr(module, "_FORMER", ()))
    if module.__name__ == "tensorbus.dtypes":
        defined |= {"default_int", "default_float", "default_complex"}
    return {name for name in defined if name and not name.startswith("_")}


def _signature(x: Any) -> str:
    try:
        text = str(inspect.signature(x))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r" at 0x[0-9a-f]+|<function [\w.]+>", "", text)
    return re.sub(r"\b(?:tensorbus|ops|dt|dtypes)\.[\w.]*?(\w+)(?=[\[\],|)' ]|$)", r"\1", text)


def _lines(prefix: str, x: Any) -> Iterator[str]:
    if isinstance(x, type):
        bases = [c.__name__ for c in x.__mro__[1:] if c is not object]
        yield f"{prefix}{_signature(x)} class({', '.join(bases)})"
        for name in sorted(dir(x)):
            if not name.startswith("_"):
                value = getattr(x, name, None)
                yield f"{prefix}.{name} {type(value).__name__}{_signature(value)}"
    elif isinstance(x, ModuleType):
        yield f"{prefix} module"
    else:
        yield f"{prefix} {type(x).__name__}{_signature(x)}"


def main() -> None:
    """Print the names of all public modules."""
    getattr(importlib.import_module("tensorbus"), "nothing", None)  # a miss loads every op
    for path in MODULES:
        name = path if path == "tensorbus" else f"tensorbus.{path}"
        module = importlib.import_module(name)
        for public in sorted(_is_defined(module)):
            value = getattr(module, public, _ABSENT)
            if value is _ABSENT:  # imported for some settings only
                continue
            if not isinstance(value, ModuleType) or value.__name__.removeprefix("tensorbus.") in MODULES:
                for line in _lines(f"{name}.{public}", value):
                    print(line)


if __name__ == "__main__":
    main()
