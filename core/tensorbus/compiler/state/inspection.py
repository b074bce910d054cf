"""The inspection of one Python object: the view of it, for any type.

No code of the user's runs. The traversal of all objects is ``reachable``'s.
"""

from __future__ import annotations

import _collections  # type: ignore[import-not-found]
import abc
import collections
import enum
import functools
import gc
import importlib
import operator
import re
import sys
import types
import typing
import weakref
from _thread import RLock, allocate_lock
from typing import Any, Final

from ...devices.device import Device, ValueType
from ...dispatch.modes import CompositeValue
from ...dtypes.definition import DType
from ...nn.hooks import Hooks
from ...nn.module import Module
from ...ops.definition import Op
from ...random.generator import Generator
from ...tensor.tensor import Leaf, Tensor
from ...tracing.active_tracer import DEFERRED_CODE
from ...tracing.known_by_identity import KnownByIdentity
from ...tracing.mutation_counter import CountedDict, bump_mutation_counter
from .class_layout import HEAP_TYPE, has_c_state, slot_names
from .code_origin import is_own, is_pure, is_standard
from .object_view import AllAttributes, ChildRef, ExtraGuard, KeyAccess, ObjectView, TensorState
from .value_identity import exact_isinstance, identity_key, is_scalar

_CONSTANTS: Final = frozenset(
    """pi e inf nan newaxis float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_
    complex64 complex128""".split()
)


_SLOTS: Final = (types.MemberDescriptorType, types.GetSetDescriptorType, _collections._tuplegetter)


WRAPPED_FUNCTIONS: Final[dict[type, str]] = {}
"""Of classes whose instances stand for a function: the attribute that has it."""


LOCKS: Final = (type(allocate_lock()), type(RLock()))


_BY_IDENTITY: Final = (
    type, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.GenericAlias, types.UnionType, re.Pattern, DType, Device, Op, ValueType,
    enum.Enum, Generator, KnownByIdentity, operator.attrgetter, operator.itemgetter, operator.methodcaller,
    *LOCKS,
)  # fmt: skip


_BOUND_METHODS: Final = (types.BuiltinFunctionType, types.MethodWrapperType)


_STATELESS: Final = frozenset({object, abc.ABC, typing.Generic, typing.Protocol, BaseException, Exception})


_CONTAINERS: Final = frozenset(
    {list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict,
     collections.Counter, types.MappingProxyType, CountedDict}
)  # fmt: skip


_FILLED: Final = frozenset({list, dict, set, collections.deque})
"""Containers that are filled as a program goes on: logs, counts."""
_TABLES: Final = frozenset(vars(Module()))
"""The attributes that each module has."""
_ITERATED_CONTAINERS: Final = (list, tuple, dict, collections.deque)


_READING_METHODS: Final = frozenset({"__iter__", "__len__", "__getitem__", "__eq__", "keys", "items"})


_NAMED_BY_IDENTITY: Final = (types.FunctionType, types.ModuleType, types.CellType, functools.partial, Module)


_OBSERVED_TYPES: Final = (type, types.FunctionType, types.ModuleType)
"""Objects whose calls the observer sees from anywhere; calls from C code to C code are unseen."""


_OUTPUT_NAMES: Final = frozenset({"stdout", "stderr", "warn"})
"""Names by which modules of the standard library print, and which no result depends on."""


_METADATA: Final = frozenset({"__name__", "__qualname__", "__doc__", "__module__"})


def compares_by_identity(x: Any) -> bool:
    """Return whether ``x``, an argument say, is known by identity alone."""
    return type(x) is object or exact_isinstance(x, (*_BY_IDENTITY, *_NAMED_BY_IDENTITY))


def is_recreated(x: Any) -> bool:
    """Return whether ``x``, which ``is_fixed``, may be re-created at each call and do the same there."""
    if type(x) is types.FunctionType:
        return not is_own(x.__code__.co_filename) and not is_standard(x.__code__.co_filename)
    return exact_isinstance(x, (types.CellType, functools.partial))


def has_no_attributes(x: Any) -> bool:
    """Return whether the view of ``x`` does not depend on the names that code reads."""
    return type(x) in _CONTAINERS or exact_isinstance(x, Tensor)


def inspect_object(x: Any, names: frozenset[str] | None) -> ObjectView:
    """Return the view of ``x``, with the attributes in ``names``; ``AllAttributes`` or None: with all.

    No code of the user's runs: an inspection has no effects, and neither have the guards.
    """
    if exact_isinstance(x, Tensor):
        return _tensor(x)
    if _runs_user_code(type(x)):
        return ObjectView("opaque", None)
    if exact_isinstance(x, types.ModuleType) and is_own(str(getattr(x, "__file__", None) or "")):
        return _library(x, names or frozenset())
    metadata_names = _METADATA.intersection(names or ())
    if isinstance(names, AllAttributes):
        names = None
    if exact_isinstance(x, type):
        return _class(x, names, metadata_names)
    if exact_isinstance(x, enum.Enum):
        return _enum_member(x, names)
    if exact_isinstance(x, types.FunctionType):
        return _function(x, names, metadata_names)
    if exact_isinstance(x, types.ModuleType):
        return _module(x, names)
    if type(x) is functools._lru_cache_wrapper:
        return _lru_cache(x, names)
    if exact_isinstance(x, _BOUND_METHODS) and not isinstance(
        x.__self__, (types.ModuleType, type, types.NoneType)
    ):
        return ObjectView(
            "method", None, (ChildRef("s", ".__self__", x.__self__, True),)
        )  # append of a list, say
    if type(x) is object or exact_isinstance(x, _BY_IDENTITY):
        return ObjectView("fixed", None)
    if exact_isinstance(x, types.MethodType):
        return ObjectView(
            "method",
            None,
            (ChildRef("f", ".__func__", x.__func__, True), ChildRef("s", ".__self__", x.__self__, True)),
        )
    if exact_isinstance(x, functools.partial):
        if _may_have_effects(x.func):
            return ObjectView("opaque", None)
        # not stable: __setstate__ replaces all three
        children = tuple(ChildRef(n, f".{n}", getattr(x, n)) for n in ("func", "args", "keywords"))
        return _with_attributes("partial", x, None, children, names)
    if type(x) in WRAPPED_FUNCTIONS:
        name = WRAPPED_FUNCTIONS[type(x)]
        return _with_attributes(
            "partial", x, None, (ChildRef("f", f".{name}", getattr(x, name), True),), names
        )
    if exact_isinstance(x, (staticmethod, classmethod)):
        return ObjectView("wrapper", None, (ChildRef("f", ".__func__", x.__func__, True),))
    if exact_isinstance(x, property):
        return ObjectView(
            "property",
            None,
            tuple(ChildRef(n, f".{n}", getattr(x, n), True) for n in ("fget", "fset", "fdel")),
        )
    if exact_isinstance(x, types.CellType):
        return _cell(x)
    if type(x) is weakref.ref:
        return ObjectView("reference", None, (ChildRef("referent", "()", x()),))
    if exact_isinstance(x, (list, tuple, collections.deque)):
        children = tuple(ChildRef(k, f"[{k}]", v, type(x) is tuple) for k, v in enumerate(x))
        return _with_attributes("sequence", x, (len(x), tuple([identity_key(v) for v in x])), children, names)
    if exact_isinstance(x, (dict, types.MappingProxyType)):
        opaque = exact_isinstance(x, collections.defaultdict) and _may_have_effects(x.default_factory)
        return ObjectView("opaque", None) if opaque else _mapping(x, names)
    if exact_isinstance(x, (set, frozenset)):
        if not all(map(is_scalar, x)):
            return ObjectView("opaque", None)
        return _with_attributes("set", x, tuple([(identity_key(v), v) for v in x]), (), names)
    return _instance(x, names)


def _may_have_effects(function: Any) -> bool:
    """Return whether a function may do more than compute, unseen where C code calls it."""
    owner = function.__self__ if exact_isinstance(function, types.BuiltinFunctionType) else None
    return isinstance(owner, types.ModuleType) and not is_pure(owner.__name__)


def _tensor(x: Tensor) -> ObjectView:
    state = TensorState.of(x)
    own = getattr(x, "__dict__", None)  # of parameters, and of what others derive from tensors
    children = [] if own is None else [ChildRef("attributes", ".__dict__", own, True)]
    if isinstance(state.node, Leaf):
        children += [ChildRef("grad", "._node.grad", state.grad)]
        children += [
            ChildRef(("hook", k), f"._node.hooks[{k}]", h)
            for k, h in getattr(state.node, "hooks", {}).items()
        ]
    value: Any = state.value
    guards: tuple[ExtraGuard, ...] = ()
    if isinstance(value, CompositeValue):
        children += [
            ChildRef(("part", name), f"._value.{name}", getattr(value, name)) for name in value.PARTS
        ]
        frame = value.FRAME
        guards = (
            ExtraGuard(
                f"{{at}}._value.{frame} is {{k}}", lambda: getattr(value, frame), "how it is laid out"
            ),
        )
    return ObjectView("tensor", state, tuple(children), guards)


def _cell(x: types.CellType) -> ObjectView:
    try:
        value = x.cell_contents
    except ValueError:
        guard = ExtraGuard("{at} == {k}", types.CellType, "that a variable has no value")
        return ObjectView("empty", None, (), (guard,))
    return ObjectView("cell", identity_key(value), (ChildRef("contents", ".cell_contents", value),))


def _attributes(x: Any, names: frozenset[str] | None) -> tuple[ChildRef, ...]:
    return tuple(
        ChildRef(("attribute", n), f".__dict__[{n!r}]", v)
        for n, v in vars(x).items()
        if names is None or n in names
    )


def _metadata(x: Any, names: frozenset[str]) -> tuple[ChildRef, ...]:
    """Return the name and the docstring of a function or class, as far as code reads those."""
    values = ((n, getattr(x, n, None)) for n in sorted(names))
    return tuple(ChildRef(("metadata", n), f".{n}", v) for n, v in values if is_scalar(v))


def _identity_keys(children: tuple[ChildRef, ...]) -> tuple[Any, ...]:
    return tuple([(ref.key, identity_key(ref.value)) for ref in children])


def _with_attributes(
    kind: str, x: Any, state: Any, children: tuple[ChildRef, ...], names: frozenset[str] | None
) -> ObjectView:
    """Return a view with the attributes of an object too, and its class where it is a subclass."""
    if type(x) in _CONTAINERS:
        return ObjectView(kind, (state, ()), children)
    inner = hasattr(x, "__dict__")
    extra = _attributes(x, names) if inner else ()
    class_ref = (ChildRef("class", ".__class__", type(x)),) if type(x).__flags__ & HEAP_TYPE else ()
    return ObjectView(
        kind,
        (state, _identity_keys(extra)),
        (*children, *extra, *class_ref),
        _absence_guards(x, names) if inner else (),
    )


def _absence_guards(x: Any, names: frozenset[str] | None) -> tuple[ExtraGuard, ...]:
    """Return guards that attributes which code reads stay absent."""
    own = [*vars(x)]
    if isinstance(x, types.ModuleType) and names is not None:  # which may have many others
        code = "{at}.__dict__.keys().isdisjoint({k})"
        return (ExtraGuard(code, lambda: names.difference(own), "that no other names appear"),)
    if not own:
        return (ExtraGuard("not {at}.__dict__", lambda: None, "that no attributes are set"),)
    if names is None:
        return (ExtraGuard("[*{at}.__dict__] == {k}", lambda: own, "the names of the attributes"),)
    code = "{k}.isdisjoint({at}.__dict__)"
    return (ExtraGuard(code, lambda: names.difference(own), "that no other attributes are set"),)


def _mapping(x: Any, names: frozenset[str] | None) -> ObjectView:
    children = [ChildRef(("item", identity_key(k)), KeyAccess(k), v) for k, v in list(x.items())]
    children += [ChildRef(("key", id(k)), "", k, True, True) for k in x if not is_scalar(k)]
    if exact_isinstance(x, collections.defaultdict):
        children.append(ChildRef("factory", ".default_factory", x.default_factory))
    state = (len(x), tuple([(identity_key(k), identity_key(v)) for k, v in list(x.items())]))
    return _with_attributes("mapping", x, state, tuple(children), names)


def _function(
    x: types.FunctionType, names: frozenset[str] | None, metadata_names: frozenset[str]
) -> ObjectView:
    closure = tuple(
        ChildRef(("closure", k), f".__closure__[{k}]", c, True) for k, c in enumerate(x.__closure__ or ())
    )
    if is_own(x.__code__.co_filename):
        inner = vars(x).get("__wrapped__")  # a function of the user's within one of ours
        wraps = isinstance(inner, types.FunctionType) and not is_own(inner.__code__.co_filename)
        deferred_code = vars(x).get(DEFERRED_CODE)
        access = f".__dict__[{DEFERRED_CODE!r}]"
        deferred = (ChildRef("given", access, deferred_code, True),) if deferred_code else ()
        return ObjectView("function", None, (*(closure if wraps else ()), *deferred))
    defaults = tuple(
        ChildRef(("default", k), f".__defaults__[{k}]", v, True) for k, v in enumerate(x.__defaults__ or ())
    )
    named = tuple(
        ChildRef(("named", k), f".__kwdefaults__[{k!r}]", v) for k, v in (x.__kwdefaults__ or {}).items()
    )
    extra = (*_attributes(x, names), *_metadata(x, metadata_names))
    guard = ExtraGuard("{at}.__code__ is {k}", lambda: x.__code__, "the code")
    children = (*closure, *defaults, *named, *extra)
    return ObjectView(
        "function", (id(x.__code__), _identity_keys(extra)), children, (guard, *_absence_guards(x, names))
    )


def _module(x: types.ModuleType, names: frozenset[str] | None) -> ObjectView:
    file = str(getattr(x, "__file__", None) or "")
    if is_pure(x.__name__):
        return ObjectView("fixed", None)
    if x.__name__.partition(".")[0] in sys.stdlib_module_names:
        return _standard_module(x, names)
    if not file.endswith(".py") or is_standard(file):
        return ObjectView("opaque", None)
    if "site-packages" in file:
        used = set(vars(x)) if names is None else names & set(vars(x))
        return ObjectView("fixed" if used <= _CONSTANTS else "opaque", None)
    children = _attributes(x, names)
    return ObjectView("module", _identity_keys(children), children, _absence_guards(x, names))


def _standard_module(x: types.ModuleType, names: frozenset[str] | None) -> ObjectView:
    """Inspect the names that code reads of a module with effects: its calls are the observer's."""
    if names is None:
        return ObjectView("opaque", None)
    members = [(n, v) for n, v in vars(x).items() if n in names and n not in _OUTPUT_NAMES]
    if not all(
        exact_isinstance(v, _OBSERVED_TYPES)
        or is_scalar(v)
        or (exact_isinstance(v, tuple) and all(map(is_scalar, v)))
        for _, v in members
    ):
        return ObjectView("opaque", None)
    children = tuple(ChildRef(("attribute", n), f".__dict__[{n!r}]", v) for n, v in members)
    return ObjectView("module", _identity_keys(children), children, _absence_guards(x, names))


def _lru_cache(x: Any, names: frozenset[str] | None) -> ObjectView:
    """Inspect a function with a cache: callers may mutate the results that it keeps."""
    referents = gc.get_referents(x)
    at = max((k for k, r in enumerate(referents) if r is x.__wrapped__), default=0)
    cache, info = referents[at - 1], x.cache_info()
    if at == 0 or type(cache) is not dict or len(cache) != info.currsize:
        return ObjectView("opaque", None)
    keys = {*map(id, cache)}
    entries = cache.values() if info.maxsize is None else referents[1 : at - 1]
    links = {id(type(link)) for link in cache.values()} if info.maxsize is not None else ()
    results = {id(r): r for r in entries if not is_scalar(r) and id(r) not in keys and id(r) not in links}
    children = tuple([ChildRef(("kept", k), "", r, True, True) for k, r in results.items()])
    code = "{at}.cache_info()[1::2] == {k}"  # as long as nothing is computed or forgotten
    view = _with_attributes("cache", x, tuple(info), children, names)
    guard = ExtraGuard(code, lambda: x.cache_info()[1::2], "what is held")
    return view._replace(extra_guards=(*view.extra_guards, guard))


class _CountedModule(types.ModuleType):
    """A module of tensorbus that bumps the mutation counter when one of its functions is replaced."""

    def __setattr__(self, name: str, value: Any) -> None:
        imported = name not in self.__dict__ and value is sys.modules.get(f"{self.__name__}.{name}")
        super().__setattr__(name, value)
        if not imported:
            bump_mutation_counter()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        bump_mutation_counter()

    def __reduce__(self) -> tuple[Any, ...]:  # cloudpickle knows modules by their exact type
        return importlib.import_module, (self.__name__,)


def _library(x: types.ModuleType, names: frozenset[str]) -> ObjectView:
    """Inspect the names that code reads of a module of tensorbus, absent ones included."""
    if type(x) is types.ModuleType:
        x.__class__ = _CountedModule
    if "__getattr__" in vars(x):
        for name in names.intersection(dir(x)).difference(vars(x)):
            getattr(x, name)  # imported when first named: now, as a run would seem to add it
    members = {
        n: v for n, v in vars(x).items()
        if n in names and (callable(v) or is_scalar(v) or exact_isinstance(v, DType) or _is_submodule(v))
    }  # fmt: skip
    children = tuple(ChildRef(("attribute", n), f".__dict__[{n!r}]", v) for n, v in members.items())
    code = "{at}.__dict__.keys().isdisjoint({k})"  # what it imports later, ``dir`` tells now
    guard = ExtraGuard(code, lambda: names.difference(dir(x)), "that no other names appear")
    return ObjectView("counted", _identity_keys(children), children, (guard,))


def _is_submodule(x: Any) -> bool:
    return isinstance(x, types.ModuleType) and x.__name__.startswith("tensorbus.")


def _class(x: type, names: frozenset[str] | None, metadata_names: frozenset[str]) -> ObjectView:
    if x.__module__ == "decimal":  # it computes as the thread's context says
        return ObjectView("opaque", None)
    if is_pure(x.__module__) or x.__module__.partition(".")[0] == "tensorbus":
        return ObjectView("fixed", None)
    kind: type = type(x)
    made_by = (ChildRef("class", ".__class__", kind, True),) if kind.__flags__ & HEAP_TYPE else ()
    bases = made_by + tuple(
        ChildRef(("base", k), f".__mro__[{k}]", b, True)
        for k, b in enumerate(x.__mro__)
        if k and b is not object
    )
    own = [(n, v) for n, v in list(vars(x).items()) if names is None or n in names or _is_special(n, v)]
    children = tuple(
        ChildRef(("attribute", n), f".__dict__[{n!r}]", v) for n, v in own
        if not isinstance(v, _SLOTS)
    )  # fmt: skip
    if kind in (type, abc.ABCMeta):  # another may say itself what a class is called
        children += _metadata(x, metadata_names)
    guards: tuple[ExtraGuard, ...] = (
        ExtraGuard("len({at}.__dict__) == {k}", lambda: len(vars(x)), "the number of attributes"),
        ExtraGuard("{at}.__mro__ == {k}", lambda: x.__mro__, "the bases"),
    )
    if isinstance(x, abc.ABCMeta):  # classes may be registered as derived from it
        code = "{k}[0]() == {k}[1]"
        guards += (
            ExtraGuard(code, lambda: (abc.get_cache_token, abc.get_cache_token()), "what is registered"),
        )
    return ObjectView("class", _identity_keys(children), (*bases, *children), guards)


def _is_special(name: str, value: Any) -> bool:
    return name.startswith("__") and name.endswith("__") and isinstance(value, types.FunctionType)


def _instance(x: Any, names: frozenset[str] | None) -> ObjectView:
    """Inspect an instance of a class written in Python; any other instance is opaque."""
    cls = type(x)
    plain = cls.__flags__ & HEAP_TYPE or cls is types.SimpleNamespace
    if not plain or any(has_c_state(base) for base in cls.__mro__):
        return ObjectView("opaque", None)
    counted = exact_isinstance(x, (Module, Hooks))
    every = counted or any(_is_library(base) for base in cls.__mro__)
    inner = hasattr(x, "__dict__")
    children = list(_attributes(x, None if every else names)) if inner else []
    if counted and names is not None and not isinstance(names, AllAttributes):
        children = [ref for ref in children if not _is_aside(x, ref, names)]
    unset: list[str] = []
    for base in cls.__mro__:
        for name in slot_names(base):
            if hasattr(x, name):
                children.append(ChildRef(("slot", name), f".{name}", getattr(x, name)))
            else:
                unset.append(name)
    state = (cls, _identity_keys(tuple(children)))
    guards = _absence_guards(x, names) if inner else ()
    for name in unset:
        guards += (ExtraGuard(f"not hasattr({{at}}, {name!r})", lambda: None, f"that no {name} is set"),)
    return ObjectView(
        "counted" if counted else "instance", state, (ChildRef("class", ".__class__", cls), *children), guards
    )


def _is_aside(x: Any, ref: ChildRef, names: frozenset[str]) -> bool:
    """Return whether a module's attribute is a container that no code which may run names.

    Of what derives from no other module of tensorbus, code of tensorbus reads its tables alone.
    """
    name = ref.key[1] if type(ref.key) is tuple else ""
    if type(ref.value) not in _FILLED or name in names or name in _TABLES or name.startswith("__"):
        return False
    return not any(base is not Module and _is_library(base) for base in type(x).__mro__[:-1])


def _enum_member(x: enum.Enum, names: frozenset[str] | None) -> ObjectView:
    children = _attributes(x, None if names is None else names | {"_value_"})
    cls = ChildRef("class", ".__class__", type(x), True)
    return ObjectView("member", _identity_keys(children), (*children, cls), _absence_guards(x, names))


def _runs_user_code(kind: type) -> bool:
    """Return whether reading instances runs code of the user's: guards would run it once more."""
    user_classes = [base for base in kind.__mro__ if base.__flags__ & HEAP_TYPE and not _is_library(base)]
    methods = {"__getattribute__", "__class__"}
    if issubclass(kind, (*_ITERATED_CONTAINERS, set, frozenset)):
        methods |= _READING_METHODS
    if any("__slots__" in vars(base) for base in user_classes):
        methods.add("__getattr__")  # which slots without a value come to
    return any(not methods.isdisjoint(vars(base)) for base in user_classes)


def _is_library(base: type) -> bool:
    """Return whether a library's class reads attributes of its instances which user code does not name."""
    name = base.__module__.partition(".")[0]
    return base not in _STATELESS and (name == "tensorbus" or name in sys.stdlib_module_names)
