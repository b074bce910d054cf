"""Looking at one Python object: what it is now, in a form to compare later, and the objects behind it.

What a captured function reads is state of objects; so is what it changes. Nothing here walks: see ``reach``.
"""

from __future__ import annotations

import _collections  # type: ignore[import-not-found]
import abc
import collections
import enum
import functools
import gc
import operator
import re
import sys
import types
import typing
import weakref
from _thread import RLock, allocate_lock
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...devices.device import Device, ValueType
from ...dtypes.definition import DType
from ...nn.hooks import Hooks
from ...nn.module import Module
from ...ops.definition import Op
from ...random.generator import Generator
from ...tensor.tensor import Leaf, Tensor
from ...tracing.lazy_value import GIVEN, restructured
from ..capture.side_effect_observer import is_own, is_pure, is_standard
from .class_layout import HEAP_TYPE, is_foreign, slot_names
from .value_identity import is_a, is_plain, mark

_CONSTANTS: Final = frozenset(
    """pi e inf nan newaxis float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_
    complex64 complex128""".split()
)
_SLOTS: Final = (types.MemberDescriptorType, types.GetSetDescriptorType, _collections._tuplegetter)
_COMPILED: Final = "tensorbus.compiler.api"
LOCKS: Final = (type(allocate_lock()), type(RLock()))
_BY_IDENTITY: Final = (
    type, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType, types.GenericAlias, types.UnionType, re.Pattern, DType, Device, Op, ValueType,
    enum.Enum, Generator, operator.attrgetter, operator.itemgetter, operator.methodcaller,
    *LOCKS,
)  # fmt: skip
_BOUND: Final = (types.BuiltinFunctionType, types.MethodWrapperType)
_STATELESS: Final = frozenset({object, abc.ABC, typing.Generic, typing.Protocol, BaseException, Exception})
_CONTAINERS: Final = frozenset(
    {list, tuple, dict, set, frozenset, collections.deque, collections.OrderedDict, collections.defaultdict,
     collections.Counter, types.MappingProxyType}
)  # fmt: skip
_CONTAINERS_READ: Final = (list, tuple, dict, collections.deque)
_READERS: Final = frozenset({"__iter__", "__len__", "__getitem__", "__eq__", "keys", "items"})
_WRITTEN: Final = frozenset({type(None), bool, int, str, bytes})
"""The types of keys that code finds as they are printed."""
_NAMED: Final = (types.FunctionType, types.ModuleType, types.CellType, functools.partial, Module)


_TOLD: Final = (type, types.FunctionType, types.ModuleType)
"""What the observer sees whoever calls it; C code may call what is written in C unseen."""
_SAYS: Final = frozenset({"stdout", "stderr", "warn"})
"""What code of the standard library's modules says something by, and reads nothing from."""
_METADATA: Final = frozenset({"__name__", "__qualname__", "__doc__", "__module__"})


class NotReplayable(Exception):  # noqa: N818 - it is told, not raised to users
    """Why Python must run the function itself at each call."""


class Settling(NotReplayable):
    """The run set up what the next one finds: that one is worth another capture."""


class Part(NamedTuple):  # made by the thousand, like looks: thrice as fast as a frozen dataclass
    """An object behind another: ``access`` is the code that gets it, ``stable``: it is always the same.

    ``constant``: it is found without the other, as a key of a dict that was found by it.
    """

    key: Any
    access: str
    value: Any
    stable: bool = False
    constant: bool = False


class Rule(NamedTuple):
    """A condition beyond those on parts: ``code`` of the object ``{at}`` and of ``{k}``, ``value()`` now."""

    code: str
    value: Callable[[], Any]
    text: str


class Look(NamedTuple):
    """``kind`` of object, its own ``state`` without that of its parts, and the parts. See ``look``.

    ``rules`` are conditions on names that code asks for and that are not there, say.
    """

    kind: str
    state: Any
    parts: tuple[Part, ...] = ()
    rules: tuple[Rule, ...] = ()


@dataclass(slots=True, eq=False)
class TensorState:
    """What a tensor's cell holds: compared by identity."""

    value: Any
    vtype: ValueType
    node: Any
    grad: Any
    hooks: int

    @staticmethod
    def of(x: Tensor) -> TensorState:
        """Return what ``x`` holds."""
        node = x._node
        leaf = isinstance(node, Leaf)
        return TensorState(
            x._value,
            x._vtype.settled,
            node,
            node.grad if leaf else None,
            len(getattr(node, "hooks", ())) if leaf else 0,
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TensorState) and self.value is other.value and self.vtype is other.vtype
            and self.node is other.node and self.grad is other.grad and self.hooks == other.hooks
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]


def is_fixed(x: Any) -> bool:
    """Return whether ``x``, an argument say, is told from others by identity alone."""
    return type(x) is object or is_a(x, (*_BY_IDENTITY, *_NAMED))


def is_made_anew(x: Any) -> bool:
    """Return whether ``x``, which ``is_fixed``, may be another at each call and do the same there."""
    if type(x) is types.FunctionType:
        return not is_own(x.__code__.co_filename) and not is_standard(x.__code__.co_filename)
    return is_a(x, (types.CellType, functools.partial))


def is_nameless(x: Any) -> bool:
    """Return whether ``look`` tells the same of ``x`` whatever names it is given."""
    return type(x) in _CONTAINERS or is_a(x, Tensor)


class Every(frozenset[str]):
    """All attributes count. Of tensorbus's own modules, which have hundreds, those that code names: these."""


def look(x: Any, names: frozenset[str] | None) -> Look:
    """Return what ``x`` is. Of attributes only those in ``names`` are looked at; ``Every`` or None: all.

    No code of the user's runs: looking, like the guards, is to have no effects.
    """
    if is_a(x, Tensor):
        return _tensor(x)
    if _tells_itself(type(x)):
        return Look("opaque", None)
    if is_a(x, types.ModuleType) and is_own(str(getattr(x, "__file__", None) or "")):
        return _library(x, names or frozenset())
    asked = _METADATA.intersection(names or ())
    if isinstance(names, Every):
        names = None
    if is_a(x, type):
        return _class(x, names, asked)
    if is_a(x, enum.Enum):
        return _member(x, names)
    if is_a(x, types.FunctionType):
        return _function(x, names, asked)
    if is_a(x, types.ModuleType):
        return _module(x, names)
    if type(x) is functools._lru_cache_wrapper:
        return _cache(x, names)
    if is_a(x, _BOUND) and not isinstance(x.__self__, (types.ModuleType, type, types.NoneType)):
        return Look("method", None, (Part("s", ".__self__", x.__self__, True),))  # append of a list, say
    if type(x) is object or is_a(x, _BY_IDENTITY):
        return Look("fixed", None)
    if is_a(x, types.MethodType):
        return Look(
            "method",
            None,
            (Part("f", ".__func__", x.__func__, True), Part("s", ".__self__", x.__self__, True)),
        )
    if is_a(x, functools.partial):
        if _is_unseen(x.func):
            return Look("opaque", None)
        parts = tuple(Part(n, f".{n}", getattr(x, n), True) for n in ("func", "args", "keywords"))
        return _with_attributes("partial", x, None, parts, names)
    if type(x).__module__ == _COMPILED:
        return _with_attributes("partial", x, None, (Part("f", "._function", x._function, True),), names)
    if is_a(x, (staticmethod, classmethod)):
        return Look("wrapper", None, (Part("f", ".__func__", x.__func__, True),))
    if is_a(x, property):
        return Look(
            "property", None, tuple(Part(n, f".{n}", getattr(x, n), True) for n in ("fget", "fset", "fdel"))
        )
    if is_a(x, types.CellType):
        return _cell(x)
    if type(x) is weakref.ref:
        return Look("reference", None, (Part("referent", "()", x()),))
    if is_a(x, (list, tuple, collections.deque)):
        parts = tuple(Part(k, f"[{k}]", v, type(x) is tuple) for k, v in enumerate(x))
        return _with_attributes("sequence", x, (len(x), tuple([mark(v) for v in x])), parts, names)
    if is_a(x, (dict, types.MappingProxyType)):
        unseen = is_a(x, collections.defaultdict) and _is_unseen(x.default_factory)
        return Look("opaque", None) if unseen else _mapping(x, names)
    if is_a(x, (set, frozenset)):
        if not all(map(is_plain, x)):
            return Look("opaque", None)
        return _with_attributes("set", x, tuple([(mark(v), v) for v in x]), (), names)
    return _instance(x, names)


def _is_unseen(function: Any) -> bool:
    """Return whether a function may do more than compute, which is not seen where C code calls it."""
    owner = function.__self__ if is_a(function, types.BuiltinFunctionType) else None
    return isinstance(owner, types.ModuleType) and not is_pure(owner.__name__)


def _tensor(x: Tensor) -> Look:
    state = TensorState.of(x)
    own = getattr(x, "__dict__", None)  # of parameters, and of what others derive from tensors
    parts = [] if own is None else [Part("attributes", ".__dict__", own, True)]
    if isinstance(state.node, Leaf):
        parts += [Part("grad", "._node.grad", state.grad)]
        parts += [
            Part(("hook", k), f"._node.hooks[{k}]", h) for k, h in getattr(state.node, "hooks", {}).items()
        ]
    return Look("tensor", state, tuple(parts))


def _cell(x: types.CellType) -> Look:
    try:
        value = x.cell_contents
    except ValueError:
        rule = Rule("{at} == {k}", types.CellType, "that a variable has no value")
        return Look("empty", None, (), (rule,))
    return Look("cell", mark(value), (Part("contents", ".cell_contents", value),))


def _attributes(x: Any, names: frozenset[str] | None) -> tuple[Part, ...]:
    return tuple(
        Part(("attribute", n), f".__dict__[{n!r}]", v)
        for n, v in vars(x).items()
        if names is None or n in names
    )


def _metadata(x: Any, asked: frozenset[str]) -> tuple[Part, ...]:
    """Return what a function or class is called and told of, as far as code asks for that."""
    found = ((n, getattr(x, n, None)) for n in sorted(asked))
    return tuple(Part(("metadata", n), f".{n}", v) for n, v in found if is_plain(v))


def _marks(parts: tuple[Part, ...]) -> tuple[Any, ...]:
    return tuple([(part.key, mark(part.value)) for part in parts])


def _with_attributes(
    kind: str, x: Any, state: Any, parts: tuple[Part, ...], names: frozenset[str] | None
) -> Look:
    """Add the attributes that an object has beside its items, and the class where it is a subclass."""
    if type(x) in _CONTAINERS:
        return Look(kind, (state, ()), parts)
    inner = hasattr(x, "__dict__")
    extra = _attributes(x, names) if inner else ()
    kind_of = (Part("class", ".__class__", type(x)),) if type(x).__flags__ & HEAP_TYPE else ()
    return Look(kind, (state, _marks(extra)), (*parts, *extra, *kind_of), _lacking(x, names) if inner else ())


def _lacking(x: Any, names: frozenset[str] | None) -> tuple[Rule, ...]:
    """Return the condition that no attribute comes to an instance, say, that code asks for."""
    own = [*vars(x)]
    if isinstance(x, types.ModuleType) and names is not None:  # which may have many others
        code = "{at}.__dict__.keys().isdisjoint({k})"
        return (Rule(code, lambda: names.difference(own), "that no other names appear"),)
    if not own:
        return (Rule("not {at}.__dict__", lambda: None, "that no attributes are set"),)
    if names is None:
        return (Rule("[*{at}.__dict__] == {k}", lambda: own, "the names of the attributes"),)
    code = "{k}.isdisjoint({at}.__dict__)"
    return (Rule(code, lambda: names.difference(own), "that no other attributes are set"),)


def _mapping(x: Any, names: frozenset[str] | None) -> Look:
    parts = [Part(("item", mark(k)), Keyed(k), v) for k, v in list(x.items())]
    parts += [Part(("key", id(k)), "", k, True, True) for k in x if not is_plain(k)]
    if is_a(x, collections.defaultdict):
        parts.append(Part("factory", ".default_factory", x.default_factory))
    state = (len(x), tuple([(mark(k), mark(v)) for k, v in list(x.items())]))
    return _with_attributes("mapping", x, state, tuple(parts), names)


class Keyed(str):
    """The access to an entry of a dict; ``key`` is an object where it has no text."""

    key: Any

    def __new__(cls, key: Any) -> Keyed:
        """Write the key where it has a text; else leave it to be named."""
        made = super().__new__(cls, f"[{key!r}]" if type(key) in _WRITTEN else "[?]")
        made.key = key
        return made


def _function(x: types.FunctionType, names: frozenset[str] | None, asked: frozenset[str]) -> Look:
    closure = tuple(
        Part(("closure", k), f".__closure__[{k}]", c, True) for k, c in enumerate(x.__closure__ or ())
    )
    if is_own(x.__code__.co_filename):
        inner = vars(x).get("__wrapped__")  # a function of the user's within one of ours
        wraps = isinstance(inner, types.FunctionType) and not is_own(inner.__code__.co_filename)
        given = vars(x).get(GIVEN)
        brought = (Part("given", f".__dict__[{GIVEN!r}]", given, True),) if given else ()
        return Look("function", None, (*(closure if wraps else ()), *brought))
    defaults = tuple(
        Part(("default", k), f".__defaults__[{k}]", v, True) for k, v in enumerate(x.__defaults__ or ())
    )
    named = tuple(
        Part(("named", k), f".__kwdefaults__[{k!r}]", v) for k, v in (x.__kwdefaults__ or {}).items()
    )
    extra = (*_attributes(x, names), *_metadata(x, asked))
    rule = Rule("{at}.__code__ is {k}", lambda: x.__code__, "the code")
    parts = (*closure, *defaults, *named, *extra)
    return Look("function", (id(x.__code__), _marks(extra)), parts, (rule, *_lacking(x, names)))


def _module(x: types.ModuleType, names: frozenset[str] | None) -> Look:
    file = str(getattr(x, "__file__", None) or "")
    if is_pure(x.__name__):
        return Look("fixed", None)
    if x.__name__.partition(".")[0] in sys.stdlib_module_names:
        return _standard(x, names)
    if not file.endswith(".py") or is_standard(file):
        return Look("opaque", None)
    if "site-packages" in file:
        used = set(vars(x)) if names is None else names & set(vars(x))
        return Look("fixed" if used <= _CONSTANTS else "opaque", None)
    parts = _attributes(x, names)
    return Look("module", _marks(parts), parts, _lacking(x, names))


def _standard(x: types.ModuleType, names: frozenset[str] | None) -> Look:
    """Look at what code names of a module that does more than compute: what is called, the observer sees."""
    if names is None:
        return Look("opaque", None)
    found = [(n, v) for n, v in vars(x).items() if n in names and n not in _SAYS]
    if not all(is_a(v, _TOLD) or is_plain(v) or (is_a(v, tuple) and all(map(is_plain, v))) for _, v in found):
        return Look("opaque", None)
    parts = tuple(Part(("attribute", n), f".__dict__[{n!r}]", v) for n, v in found)
    return Look("module", _marks(parts), parts, _lacking(x, names))


def _cache(x: Any, names: frozenset[str] | None) -> Look:
    """Look at a function with a cache: what it keeps may be changed by whoever was given it."""
    referents = gc.get_referents(x)
    at = max((k for k, r in enumerate(referents) if r is x.__wrapped__), default=0)
    held, info = referents[at - 1], x.cache_info()
    if at == 0 or type(held) is not dict or len(held) != info.currsize:
        return Look("opaque", None)
    keys = {*map(id, held)}
    kept = held.values() if info.maxsize is None else referents[1 : at - 1]
    links = {id(type(link)) for link in held.values()} if info.maxsize is not None else ()
    results = {id(r): r for r in kept if not is_plain(r) and id(r) not in keys and id(r) not in links}
    parts = tuple([Part(("kept", k), "", r, True, True) for k, r in results.items()])
    code = "{at}.cache_info()[1::2] == {k}"  # as long as nothing is computed or forgotten
    found = _with_attributes("cache", x, tuple(info), parts, names)
    rule = Rule(code, lambda: x.cache_info()[1::2], "what is held")
    return found._replace(rules=(*found.rules, rule))


class _Watched(types.ModuleType):
    """A module of tensorbus that counts when something is put in the place of one of its functions."""

    def __setattr__(self, name: str, value: Any) -> None:
        imported = name not in self.__dict__ and value is sys.modules.get(f"{self.__name__}.{name}")
        super().__setattr__(name, value)
        if not imported:
            restructured()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        restructured()


def _library(x: types.ModuleType, names: frozenset[str]) -> Look:
    """Look at a module of tensorbus: at what code names, which it may be given anew or for the first time."""
    if type(x) is types.ModuleType:
        x.__class__ = _Watched
    found = {n: v for n, v in vars(x).items() if n in names and (callable(v) or is_plain(v) or _is_part(v))}
    parts = tuple(Part(("attribute", n), f".__dict__[{n!r}]", v) for n, v in found.items())
    code = "{at}.__dict__.keys().isdisjoint({k})"  # what it imports later, ``dir`` tells now
    rule = Rule(code, lambda: names.difference(dir(x)), "that no other names appear")
    return Look("counted", _marks(parts), parts, (rule,))


def _is_part(x: Any) -> bool:
    return isinstance(x, types.ModuleType) and x.__name__.startswith("tensorbus.")


def _class(x: type, names: frozenset[str] | None, asked: frozenset[str]) -> Look:
    if x.__module__ == "decimal":  # it computes as the thread's context says
        return Look("opaque", None)
    if is_pure(x.__module__) or x.__module__.partition(".")[0] == "tensorbus":
        return Look("fixed", None)
    kind: type = type(x)
    made_by = (Part("class", ".__class__", kind, True),) if kind.__flags__ & HEAP_TYPE else ()
    bases = made_by + tuple(
        Part(("base", k), f".__mro__[{k}]", b, True) for k, b in enumerate(x.__mro__) if k and b is not object
    )
    own = [(n, v) for n, v in list(vars(x).items()) if names is None or n in names or _is_special(n, v)]
    parts = tuple(
        Part(("attribute", n), f".__dict__[{n!r}]", v) for n, v in own
        if not isinstance(v, _SLOTS)
    )  # fmt: skip
    if kind in (type, abc.ABCMeta):  # another may say itself what a class is called
        parts += _metadata(x, asked)
    rules: tuple[Rule, ...] = (
        Rule("len({at}.__dict__) == {k}", lambda: len(vars(x)), "the number of attributes"),
        Rule("{at}.__mro__ == {k}", lambda: x.__mro__, "the bases"),
    )
    if isinstance(x, abc.ABCMeta):  # classes may be registered as derived from it
        code = "{k}[0]() == {k}[1]"
        rules += (Rule(code, lambda: (abc.get_cache_token, abc.get_cache_token()), "what is registered"),)
    return Look("class", _marks(parts), (*bases, *parts), rules)


def _is_special(name: str, value: Any) -> bool:
    return name.startswith("__") and name.endswith("__") and isinstance(value, types.FunctionType)


def _instance(x: Any, names: frozenset[str] | None) -> Look:
    """Look at an instance of a class written in Python; of anything else nothing is known."""
    cls = type(x)
    plain = cls.__flags__ & HEAP_TYPE or cls is types.SimpleNamespace
    if not plain or any(is_foreign(base) for base in cls.__mro__):
        return Look("opaque", None)
    counted = is_a(x, (Module, Hooks))
    every = counted or any(_is_library(base) for base in cls.__mro__)
    inner = hasattr(x, "__dict__")
    parts = list(_attributes(x, None if every else names)) if inner else []
    unset: list[str] = []
    for base in cls.__mro__:
        for name in slot_names(base):
            if hasattr(x, name):
                parts.append(Part(("slot", name), f".{name}", getattr(x, name)))
            else:
                unset.append(name)
    state = (cls, _marks(tuple(parts)))
    rules = _lacking(x, names) if inner else ()
    for name in unset:
        rules += (Rule(f"not hasattr({{at}}, {name!r})", lambda: None, f"that no {name} is set"),)
    return Look(
        "counted" if counted else "instance", state, (Part("class", ".__class__", cls), *parts), rules
    )


def _member(x: enum.Enum, names: frozenset[str] | None) -> Look:
    parts = _attributes(x, None if names is None else names | {"_value_"})
    cls = Part("class", ".__class__", type(x), True)
    return Look("member", _marks(parts), (*parts, cls), _lacking(x, names))


def _tells_itself(kind: type) -> bool:
    """Return whether code of the user's runs where instances are read: guards would run it once more."""
    written = [base for base in kind.__mro__ if base.__flags__ & HEAP_TYPE and not _is_library(base)]
    asked = {"__getattribute__", "__class__"}
    if issubclass(kind, (*_CONTAINERS_READ, set, frozenset)):
        asked |= _READERS
    if any("__slots__" in vars(base) for base in written):
        asked.add("__getattr__")  # which slots without a value come to
    return any(not asked.isdisjoint(vars(base)) for base in written)


def _is_library(base: type) -> bool:
    """Return whether a class reads attributes of its instances that code of the user's need not name."""
    name = base.__module__.partition(".")[0]
    return base not in _STATELESS and (name == "tensorbus" or name in sys.stdlib_module_names)
