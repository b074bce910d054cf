"""Programs of functions that were captured before, found again by their code and the values in it.

Capturing runs Python on tracing values, for a millisecond or more. A function that is made anew at each call,
with other tensors in its closure, is the same program as long as its code, its numbers, and the shapes and
dtypes of its tensors are the same. Where that cannot be told, it is captured anew.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from ...devices.device import Device
from ...dispatch.default_dtype import get_default_dtype
from ...dtypes.definition import DType
from ...ops.nn.score_program import ScoreProgram
from ...tensor.tensor import Tensor
from ...tracing.active_modes import active_modes
from .mask_mods import and_masks, noop_mask, or_masks
from .score_capture import Captured, Mod, capture

_MAX_PROGRAMS: Final = 256
_NUMBERS: Final = frozenset({bool, int, float, complex, str, type(None)})
_READS: Final = frozenset({"item", "tolist", "numpy", "grad", "data", "requires_grad", "is_leaf"})
"""Attributes of a tensor that are more than its shape and dtype: a program may hang on them."""
_BUILTINS: Final = frozenset({"abs", "len"})
_EFFECTS: Final = (
    "IF_", "STORE_GLOBAL", "STORE_ATTR", "STORE_SUBSCR", "STORE_DEREF", "DELETE_", "IMPORT_", "YIELD", "WITH",
    "CONTAINS_", "FORMAT_", "MATCH_",
)  # fmt: skip
"""Parts of the names of instructions by which a function does more than compute, or decides by values."""
_FIXED_MODULES: Final = frozenset({"math", "operator"})
_COMBINING: Final = frozenset({f(noop_mask).__code__ for f in (and_masks, or_masks)})
"""The code of the functions that combine masks: all that they read is the masks."""
_OWN: Final = __name__.partition(".")[0]
_programs: Final[dict[Any, tuple[ScoreProgram, tuple[int, ...]]]] = {}


def capture_again(score_mod: Mod | None, mask_mod: Mod | None, dtype: DType, device: Device) -> Captured:
    """Return what ``capture`` returns; the program of functions that are known is not captured again."""
    if active_modes:  # who observes what is read sees the functions run
        return capture(score_mod, mask_mod, dtype, device)
    parts = _Parts()
    try:
        functions = parts.key(score_mod), parts.key(mask_mod)
    except _UnknownError:
        return capture(score_mod, mask_mod, dtype, device)
    key = (functions, dtype, device, get_default_dtype())
    known = _programs.get(key)
    tensors = parts.tensors
    if known is not None:
        program, places = known
        return Captured(program, tuple([tensors[k] for k in places]))
    captured = capture(score_mod, mask_mod, dtype, device)
    numbers = {id(x): k for k, x in enumerate(tensors)}
    if captured.whole and all(id(x) in numbers for x in captured.tensors):
        if len(_programs) >= _MAX_PROGRAMS:
            _programs.clear()
        _programs[key] = captured.program, tuple([numbers[id(x)] for x in captured.tensors])
    return captured


class _UnknownError(Exception):
    """A function reads something that may change without a trace."""


@dataclass(slots=True)
class _Parts:
    """Collects the tensors that functions can reach, and tells the functions apart by all else."""

    tensors: list[Tensor] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)
    within: set[int] = field(default_factory=set)

    def key(self, value: Any) -> Any:
        """Return what a value is known by. Raises ``_UnknownError``."""
        kind = type(value)
        if kind in _NUMBERS:
            return kind, repr(value) if kind in (float, complex) else value
        if kind is FunctionType:
            return self._function(value)
        if isinstance(value, Tensor):
            return self._tensor(value)
        if kind is tuple:
            return tuple([self.key(x) for x in value])
        if kind is DType or (kind is BuiltinFunctionType and type(value.__self__) is ModuleType):
            return value
        if isinstance(value, ModuleType) and (_is_own(value.__name__) or value.__name__ in _FIXED_MODULES):
            return value.__name__
        raise _UnknownError

    def _tensor(self, x: Tensor) -> Any:
        number = self.numbers.get(id(x))
        if number is not None:
            return number
        self.numbers[id(x)] = len(self.tensors)
        self.tensors.append(x)
        return "tensor", type(x), x.shape, x._vtype, x._node is not None

    def _function(self, function: FunctionType) -> Any:
        if id(function) in self.within:
            raise _UnknownError
        code = function.__code__
        if _is_own(function.__module__) and _is_public(function):
            return function
        names = () if code in _COMBINING else _global_names(code)
        if names is None or function.__dict__:
            raise _UnknownError
        self.within.add(id(function))
        try:
            inside = tuple([self.key(cell.cell_contents) for cell in function.__closure__ or ()])
        except ValueError:  # an empty cell
            raise _UnknownError from None
        defaults = self.key(function.__defaults__), self.key(tuple((function.__kwdefaults__ or {}).items()))
        reads = tuple([self._global(function, name) for name in names])
        self.within.discard(id(function))
        return code, inside, defaults, reads

    def _global(self, function: FunctionType, name: str) -> Any:
        known = function.__globals__
        if name in known:
            return self.key(known[name])
        if name in _BUILTINS:
            return name
        raise _UnknownError


def _is_own(module: str | None) -> bool:
    """Return whether a module is tensorbus's own, which does not change."""
    return module is not None and (module == _OWN or module.startswith(f"{_OWN}."))


def _is_public(function: FunctionType) -> bool:
    """Return whether a function is one of its module, and no closure that somebody else's values are in."""
    return getattr(sys.modules.get(function.__module__), function.__name__, None) is function


@lru_cache(maxsize=1024)
def _global_names(code: CodeType) -> tuple[str, ...] | None:
    """Return the globals that code reads, sorted; None where it may do more than compute."""
    names: set[str] = set()
    for each in _codes(code):
        for step in dis.get_instructions(each):
            if any(part in step.opname for part in _EFFECTS):
                return None
            if step.opname in ("LOAD_ATTR", "LOAD_METHOD") and (
                step.argval in _READS or step.argval.endswith("_")
            ):
                return None
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(step.argval)
    return tuple(sorted(names))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)
