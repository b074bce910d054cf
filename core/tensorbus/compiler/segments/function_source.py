"""The syntax tree of a function, where its source is there and is what its code was compiled from."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

from ..capture.break_sites import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSource:
    """The definition of a function; ``class_name`` is that of the class whose body it stands in."""

    node: ast.FunctionDef
    class_name: str | None


_files: Final[dict[str, tuple[str, ast.Module, list[CodeType]]]] = {}


def function_source(code: CodeType) -> FunctionSource | None:
    """Return the definition of a function by its code.

    None for a lambda, a generator or a coroutine, and where the file has changed or is not there.
    """
    if code.co_name == "<lambda>" or code.co_flags & _SUSPENDED:
        return None
    text = "".join(linecache.getlines(code.co_filename))
    known = _files.get(code.co_filename)
    if known is None or known[0] != text:
        try:
            tree = ast.parse(text, code.co_filename)
            module = compile(text, code.co_filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None
        known = _files[code.co_filename] = (text, tree, [*_nested(module)])
    _, tree, codes = known
    if not any(code.co_firstlineno == other.co_firstlineno and code == other for other in codes):
        return None
    sources = [
        FunctionSource(node=node, class_name=class_name)
        for node, class_name in _functions(tree, None)
        if node.name == code.co_name and _first_line(node) == code.co_firstlineno
    ]
    return sources[0] if len(sources) == 1 else None


_SUSPENDED: Final = 0x20 | 0x80 | 0x200
"""The flags of code of generators and coroutines."""


def _nested(code: CodeType) -> Iterator[CodeType]:
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield x
            yield from _nested(x)


def _functions(node: ast.AST, class_name: str | None) -> Iterator[tuple[ast.FunctionDef, str | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield child, class_name
        inner = child.name if isinstance(child, ast.ClassDef) else class_name
        yield from _functions(child, inner)


def _first_line(node: ast.FunctionDef) -> int:
    return min([node.lineno, *[x.lineno for x in node.decorator_list]])


def position_of(node: Any) -> Position | None:
    """Return the part of the source that a node stands for."""
    line, end = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if line is None or end is None:
        return None
    return Position(line, end, node.col_offset, node.end_col_offset or 0)
