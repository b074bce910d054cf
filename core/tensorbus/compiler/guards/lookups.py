"""Look-ups in modules and classes that are not inspected, and the guards that what was found is still there.

Modules of the standard library that only compute, such as ``math``, and classes of tensorbus, such as
``Tensor``, are taken as they are: their functions are known. Others may put something else in the place of
one all the same. One comparison by identity, in the module's or the class's own dict, notices that; there is
one for each name that code which ran names, and whose function ran where that can be seen.
"""

from __future__ import annotations

import dis
import gc
from collections.abc import Container, Iterable, Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from ...nn.module import Module
from ..state.class_layout import HEAP_TYPE
from ..state.code_origin import is_own

_IMMUTABLE_TYPE: Final = 1 << 8
_BINARY: Final = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "@": "matmul", "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
_COMPARISONS: Final = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge"}
_REFLECTED: Final = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_INSTRUCTIONS: Final = {
    "UNARY_NEGATIVE": "neg", "UNARY_POSITIVE": "pos", "UNARY_INVERT": "invert", "GET_ITER": "iter",
    "BINARY_SUBSCR": "getitem", "BINARY_SLICE": "getitem", "STORE_SUBSCR": "setitem",
    "STORE_SLICE": "setitem", "CONTAINS_OP": "contains", "UNPACK_SEQUENCE": "iter", "UNARY_NOT": "bool",
    "LIST_EXTEND": "iter", "SET_UPDATE": "iter", "UNPACK_EX": "iter", "CALL_FUNCTION_EX": "iter",
    "GET_YIELD_FROM_ITER": "iter",
}  # fmt: skip
_ITERATE: Final = "all any dict enumerate filter frozenset list map max min set sorted sum tuple zip"
_FUNCTIONS: Final = {
    **dict.fromkeys(_ITERATE.split(), ("iter",)),
    "sum": ("iter", "add", "radd"), "max": ("iter", "gt"), "min": ("iter", "lt"), "sorted": ("iter", "lt"),
    "reversed": ("reversed", "len", "getitem"), "itemgetter": ("getitem",), "length_hint": ("len",),
}  # fmt: skip
"""The methods that functions call which are not called as these: ``len`` and ``operator.add`` are."""
_BY_TEXT: Final = frozenset({"getattr", "hasattr", "setattr", "attrgetter", "methodcaller"})
_CALLED: Final = ("forward", "__call__")
"""The names by which calling a module finds its function."""


class Lookup(NamedTuple):
    """A name that code looked up in ``table``, the dict of ``owner``; ``value`` was there, or nothing was."""

    owner: Any
    table: Any
    name: str
    value: Any
    absent: bool = False


def lookups(owners: Iterable[Any], ran: Iterable[CodeType], called: Container[int]) -> Iterator[Lookup]:
    """Yield what the code that ``ran`` looked up in modules and classes, and in what it found there.

    ``called`` are the ids of the code of tensorbus that ran.
    """
    names = frozenset[str]().union(*map(_names, ran))
    stack, visited = [*owners], set[Any]()
    while stack:
        owner = stack.pop()
        every = _in_class(owner, names, called) if isinstance(owner, type) else _in_module(owner, names)
        for lookup in every:
            if (id(lookup.table), lookup.name) not in visited:
                visited.add((id(lookup.table), lookup.name))
                yield lookup
                if isinstance(lookup.value, (ModuleType, type)) and _is_followed(lookup):
                    stack.append(lookup.value)


def _is_followed(lookup: Lookup) -> bool:
    """Return whether what was found belongs to the package that it was found in."""
    value = lookup.value
    inner = value.__name__ if isinstance(value, ModuleType) else value.__module__
    outer = lookup.owner.__name__ if isinstance(lookup.owner, ModuleType) else lookup.owner.__module__
    return bool(inner.partition(".")[0] == outer.partition(".")[0])


def _in_module(module: ModuleType, names: frozenset[str]) -> Iterator[Lookup]:
    table = vars(module)
    return (Lookup(module, table, name, table[name]) for name in sorted(names & table.keys()))


def _in_class(owner: type, names: frozenset[str], called: Container[int]) -> Iterator[Lookup]:
    """Yield what names stand for in a class, and that no class before the one that has it does."""
    changeable = [(base, table) for base in owner.__mro__ if (table := _table(base)) is not None]
    if issubclass(owner, Module):
        names = names.union(_CALLED)
    for name in sorted(names):
        place = next((k for k, (_, table) in enumerate(changeable) if name in table), None)
        if place is not None and _may_have_run(changeable[place][1][name], called):
            yield from (Lookup(base, table, name, None, True) for base, table in changeable[:place])
            base, table = changeable[place]
            yield Lookup(base, table, name, table[name])


def _may_have_run(value: Any, called: Container[int]) -> bool:
    """Return whether what a class has may have been called: of tensorbus's functions that is known."""
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    if not isinstance(function, FunctionType) or not is_own(function.__code__.co_filename):
        return True
    return id(function.__code__) in called


def _table(base: type) -> dict[str, Any] | None:
    """Return the dict in which a class written in Python keeps its attributes; None for others.

    It is read only: a look-up in it is faster than one in the read-only view that ``__dict__`` is.
    """
    if not base.__flags__ & HEAP_TYPE or base.__flags__ & _IMMUTABLE_TYPE:
        return None
    return next((x for x in gc.get_referents(vars(base)) if type(x) is dict), None)


@cache
def _names(code: CodeType) -> frozenset[str]:
    """Return the names that code looks up in other objects, those of operators included."""
    names = {*code.co_names}
    called = names.union(*(_FUNCTIONS.get(name, ()) for name in names))
    if names & _BY_TEXT:
        names.update(part for x in code.co_consts if isinstance(x, str) for part in x.split("."))
    names |= {form for name in called for form in (f"__{name}__", f"__r{name}__")}
    for i in dis.get_instructions(code):
        if i.opname == "BINARY_OP":
            name = _BINARY.get(i.argrepr.removesuffix("="))
            names |= {f"__{name}__", f"__r{name}__"} if name else {"__getitem__"}
            if name and i.argrepr.endswith("="):
                names.add(f"__i{name}__")
        elif i.opname == "COMPARE_OP":
            name = _COMPARISONS.get(str(i.argval), "eq")
            names |= {f"__{name}__", f"__{_REFLECTED.get(name, name)}__"}
        elif i.opname in _INSTRUCTIONS:
            names.add(f"__{_INSTRUCTIONS[i.opname]}__")
        elif "POP_JUMP" in i.opname:
            names.add("__bool__")
    return frozenset(names)
