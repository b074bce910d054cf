"""Observation of one run of a captured function: which code ran, and calls that may have side effects.

Python's profiling hook reports every call of a function written in Python or in C. Functions that only
compute are known by name; a call of any other (files, clocks, other libraries) leaves the function to Python.
Code of tensorbus and of the standard library's pure modules is skipped: the state that it depends on is
guarded elsewhere.
"""

from __future__ import annotations

import builtins
import dis
import sys
from collections.abc import Iterable
from functools import _lru_cache_wrapper
from types import CodeType, FrameType, TracebackType
from typing import Any, Final

from ...system.garbage_collection import without_collections
from ..state.code_origin import is_own, is_pure, is_standard, own_path
from .break_sites import BreakSites

_BUILTINS: Final = frozenset(
    """abs all any ascii bin callable chr delattr dir divmod format getattr hasattr hash hex id isinstance
    issubclass iter len max min next oct ord pow repr round setattr sorted sum vars super __build_class__ zip
    map filter enumerate reversed range""".split()
)
_METHOD_OWNERS: Final = (
    list, dict, tuple, set, frozenset, str, bytes, bytearray, int, float, complex, bool, range, slice,
    memoryview, type(None), BaseException, staticmethod, classmethod, property,
)  # fmt: skip
_SUPPORT_MODULES: Final = frozenset({"_contextvars", "_thread", "_weakref"})
_BY_NAME: Final = frozenset({"getattr", "hasattr", "setattr", "delattr", "vars", "dir"})
_NON_PUSHING_LOADS: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "LOAD_FAST_LOAD_FAST"})
"""Instructions that load something, and do not leave one value more."""
_READS_ANY_NAME: Final = frozenset(
    """__dict__ __getattribute__ __setattr__ __delattr__ __getstate__ __reduce__ __reduce_ex__ attrgetter
    methodcaller""".split()
)
_IMPORTING: Final = "<frozen importlib._bootstrap>"
"""The file of the import machinery."""
_OPENING: Final = tuple(
    own_path(*parts)
    for parts in (("plugins", ""), ("dispatch", "candidates.py"), ("dispatch", "kernel_tables.py"))
)
"""Where tensorbus calls into plugins other than to compute something."""
_REFUSED: Final = frozenset(
    {"print", "input", "open", "exec", "eval", "compile", "globals", "locals", "breakpoint"}
)


class SideEffectObserver:
    """The user code that ran, as ``codes``, and the first ``obstacle`` to a capture; ``sites`` take each.

    ``own_code`` is tensorbus's code that ran, by id. ``reads_any_name``: attributes were read by names that
    may not stand in the code. ``reached`` are the ids of the objects that the function reaches.
    """

    def __init__(self, sites: BreakSites | None = None, reached: Iterable[int] = ()) -> None:
        self.sites = sites
        if sites is not None:
            sites.reached = frozenset(reached)  # which keep nothing alive
        self.codes: dict[CodeType, dict[str, Any]] = {}
        self.obstacle: str | None = None
        self.reads_any_name = False
        self._before: Any = None
        self._root = 0
        """The id of the frame that runs the function."""
        self.own_code: dict[int, CodeType] = {}
        self._user_code: dict[int, CodeType] = {}
        """Code of the user's that ran, by id: code compares by its text, which takes long."""
        self._literal_calls: dict[int, tuple[CodeType, frozenset[int]]] = {}

    def __enter__(self) -> SideEffectObserver:
        self._before, self._root = sys.getprofile(), id(sys._getframe(1))
        self._collecting = without_collections()  # what runs when garbage is found is not the function's
        self._collecting.__enter__()
        unobserved, observe = self.own_code, self._observe

        def profile(frame: FrameType, event: str, arg: Any) -> None:
            if id(frame.f_code) not in unobserved:
                observe(frame, event, arg)

        sys.setprofile(profile)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        restore_profiler(self._before)
        self._collecting.__exit__(kind, error, trace)

    def _observe(self, frame: FrameType, event: str, arg: Any) -> None:
        if _is_own_frame(frame):
            self.own_code[id(frame.f_code)] = frame.f_code
        elif event == "call":
            if id(frame.f_code) not in self._user_code and not self._runs_to_open(frame):
                self._on_call(frame)
        elif event == "c_call" and not self._runs_to_open(frame):
            self._on_c_call(frame, arg)

    def _runs_to_open(self, frame: FrameType) -> bool:
        """Return whether code runs because tensorbus imports something, or opens or asks a plugin.

        The function does not depend on it: the same happens in whichever call comes first.
        """
        imports = False
        at: FrameType | None = frame
        while at is not None and id(at) != self._root and id(at.f_code) not in self._user_code:
            file = at.f_code.co_filename
            if file.startswith(_OPENING) or (imports and _is_own_frame(at)):
                return True
            imports = imports or file == _IMPORTING
            at = at.f_back
        return False

    def _on_call(self, frame: FrameType) -> None:
        code = frame.f_code
        if is_standard(code.co_filename):
            name = frame.f_globals.get("__name__", "")
            if not is_pure(name) and not _runs_on_our_behalf(frame):
                self.refuse(f"calls {name}.{code.co_qualname}, which may do more than compute", frame)
            return
        self.codes[code] = frame.f_globals
        self._user_code[id(code)] = code
        if not _READS_ANY_NAME.isdisjoint(code.co_names):
            self.reads_any_name = True

    def _on_c_call(self, frame: FrameType, function: Any) -> None:
        if is_standard(frame.f_code.co_filename) and _runs_on_our_behalf(frame):
            return
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "?")
        if owner is builtins or (owner is None and getattr(function, "__module__", None) == "builtins"):
            if name in _REFUSED:
                self.refuse(f"calls {name}()", frame)
            elif name in _BY_NAME:
                # what contextlib asks for by name is the same for all
                is_literal = frame.f_globals.get("__name__") == "contextlib" or self._is_literal_name(frame)
                self.reads_any_name = self.reads_any_name or not is_literal
            elif name == "id" and not is_standard(frame.f_code.co_filename):
                self.refuse("calls id()", frame)
            elif name not in _BUILTINS and hasattr(builtins, name):
                self.refuse(f"calls {name}()", frame)
            return
        if owner.__class__ is str and name in ("format", "format_map"):
            self.reads_any_name = True  # a field of the text may be an attribute
            return
        if owner is sys and name in ("setprofile", "getprofile"):
            return
        if owner is sys and name == "_getframe" and frame.f_globals.get("__name__") == "inspect":
            self.refuse(f"calls inspect.{frame.f_code.co_name}(), which depends on who calls", frame)
        if isinstance(owner, _lru_cache_wrapper) and name.startswith("cache_"):
            self.refuse(f"calls {name}() of a function with a cache", frame)
            if self.sites is not None:
                self.sites.asks_cache = True
        if owner is None or isinstance(owner, _METHOD_OWNERS):
            return
        if getattr(function, "__qualname__", "").startswith("object."):
            return
        if isinstance(owner, type):  # ``datetime.now``, say
            owner = next((base for base in owner.__mro__ if name in vars(base)), type)
            module = owner.__module__
        else:
            module = owner.__name__ if isinstance(owner, type(sys)) else type(owner).__module__
        if is_pure(module) or module.partition(".")[0] == "tensorbus" or module in _SUPPORT_MODULES:
            return
        if is_standard(frame.f_code.co_filename) and is_pure(frame.f_globals.get("__name__", "")):
            return
        self.refuse(f"calls {module}.{name}()", frame)

    def _is_literal_name(self, frame: FrameType) -> bool:
        """Return whether ``getattr`` is called with a name that stands in the code."""
        code = frame.f_code
        calls = self._literal_calls.get(id(code))
        if calls is None:
            calls = self._literal_calls[id(code)] = (code, _literal_name_calls(code))
        return frame.f_lasti in calls[1]

    def refuse(self, reason: str, frame: FrameType) -> None:
        """Note the first reason why Python must run this function itself, and where ``frame`` is."""
        if self.sites is not None:
            self.sites.note_break(frame)
        if self.obstacle is None:
            self.obstacle = reason


def _literal_name_calls(code: CodeType) -> frozenset[int]:
    """Return the offsets of calls with ``(x, "name")``, or with that and a constant or a variable."""
    offsets = set()
    last: list[dis.Instruction] = []
    for i in dis.get_instructions(code):
        if i.opname == "PRECALL" and not i.is_jump_target:
            continue
        if i.opname == "CALL" and not i.is_jump_target and i.arg in (2, 3) and len(last) >= i.arg:
            name, *default = last[1 - i.arg :]
            simple = all(e.opname.startswith("LOAD_") and not e.is_jump_target for e in default)
            simple = simple and not any(e.opname in _NON_PUSHING_LOADS for e in default)
            if name.opname == "LOAD_CONST" and isinstance(name.argval, str) and simple:
                offsets.add(i.offset)
        last = [*last[-2:], i]
    return frozenset(offsets)


def _is_own_frame(frame: FrameType) -> bool:
    """Return whether tensorbus runs, or the generated code of a named tuple."""
    name = frame.f_globals.get("__name__", "")
    return is_own(frame.f_code.co_filename) or name.startswith(("tensorbus.", "namedtuple_"))


def _runs_on_our_behalf(frame: FrameType) -> bool:
    """Return whether code of the standard library runs because tensorbus called it."""
    at: FrameType | None = frame
    while at is not None and is_standard(at.f_code.co_filename):
        at = at.f_back
    return at is not None and _is_own_frame(at)


def restore_profiler(before: Any) -> None:
    """Restore the former profiler: a function, None, or a ``cProfile.Profile``, which is neither."""
    if before is None or callable(before):
        sys.setprofile(before)
    else:
        before.enable()


def unobserved() -> _Unobserved:
    """Return a context in which this thread is not observed."""
    return _Unobserved()


class _Unobserved:
    def __enter__(self) -> None:
        self._before = sys.getprofile()
        sys.setprofile(None)

    def __exit__(self, *exception: object) -> None:
        restore_profiler(self._before)
