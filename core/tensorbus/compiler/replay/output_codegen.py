"""Generated code that reconstructs a call's result: tensors around the program's outputs, containers."""

from __future__ import annotations

import functools
import sys
import types
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from ...autograd import views
from ...autograd.saved_values import alias
from ...nn.module import Module
from ...ops.indexing import indexing
from ...random.generator import Generator
from ...tensor.tensor import Leaf, Tensor, wrap
from ...tracing.lazy_value import LazyValue
from ...tracing.mutation_counter import CountedDict
from ...tracing.sym_int import SymInt, is_open
from ...tracing.sym_number import SymNumber
from ..state.class_layout import has_c_state, slot_names
from ..state.inspection import LOCKS, compares_by_identity, inspect_object
from ..state.object_view import Uncapturable
from ..state.reachable import ReachableState, TrackedObject
from ..state.value_identity import is_scalar
from .late_errors import is_plain
from .read_values import ReadValue


class OutputCodegen:
    """Emits ``lines`` that construct objects, each once. Raises ``Uncapturable`` where it cannot.

    ``output`` returns the expression of the value of a tensor after the run, ``shared`` that of an autograd
    node that existed before. ``tracked`` are the new tensors with a node of their own, with their names.
    """

    def __init__(
        self, reach: ReachableState, reached: Mapping[int, TrackedObject], output: Callable[[Tensor], str],
        shared: Callable[[Tensor], str | None],
    ) -> None:  # fmt: skip
        self.reach, self.reached, self.output, self.shared = reach, reached, output, shared
        self.lines: list[str] = []
        self.tracked: list[tuple[Tensor, str]] = []
        self._names: dict[int, str] = {}
        self._leaf_names: dict[int, str] = {}
        self._kept_alive: list[Any] = []
        self._new_tensors: list[Tensor] = []
        self._in_progress: set[int] = set()
        """The ids of the objects under construction: their children come first."""

    def emit(self, x: Any) -> str:
        """Return the expression of an object in the result; one that existed before is found again."""
        if is_scalar(x):
            return repr(x) if x is None or type(x) in (bool, int, str) else self.reach.name(x)
        if type(x) is SymInt:
            return x.text
        if type(x) is SymNumber:
            return x.name
        name = self._names.get(id(x))
        if name is not None:
            return name
        if type(x) is ReadValue and x.copy is not None:
            return self._late_value(x, x.copy)
        tracked = self.reached.get(self.reach.stand_ins.get(id(x), id(x)))
        if tracked is not None:
            return (
                self._assign_name(x, tracked.expr)
                if not tracked.fixed and not tracked.expr.isidentifier()
                else tracked.expr
            )
        if id(x) in self.reach.objects and not compares_by_identity(x):
            raise Uncapturable(f"returns a {type(x).__name__} that was there before, and nothing names")
        if isinstance(x, Tensor):
            return self._tensor(x)
        if id(x) in self._in_progress:
            raise Uncapturable(f"makes a {type(x).__name__} that holds itself")
        self._in_progress.add(id(x))
        expr = self._container(x)
        self._in_progress.remove(id(x))
        return self._assign_name(x, expr)

    def emit_fill(self, tracked: TrackedObject, code: str) -> str:
        """Return the code that refills a container, by the template ``code`` of its type, or an instance."""
        x = tracked.obj
        at = self.emit(x)
        if tracked.before.kind != "instance":
            parts = {"pairs": self._pairs(x)} if isinstance(x, dict) else {}
            if isinstance(x, (set, frozenset)):
                if not all(is_scalar(v) for v in x):
                    raise Uncapturable("puts objects into a set")
                parts = {"set": self.reach.name(frozenset(x))}
            elif not parts:
                parts = {"all": self._emit_all(x)}
            return code.format(at=at, **parts)
        before = {part.key: part.value for part, _ in tracked.children}
        lines = []
        for part in inspect_object(x, self.reach.names).children:
            old = before.pop(part.key, self)
            if old is not part.value and part.key != "class":
                lines.append(f"set_attribute({at}, {part.key[1]!r}, {self.emit(part.value)})")
        lines += [f"set_attribute({at}, {key[1]!r})" for key in before if key != "class"]
        return "; ".join(lines)

    def _assign_name(self, x: Any, expr: str) -> str:
        """Assign an object to a name before anything is mutated."""
        name = self._names[id(x)] = f"b{len(self._names)}"
        self._kept_alive.append(x)
        self.lines.append(f"{name} = {expr}")
        return name

    def _late_value(self, x: ReadValue, copy: Tensor) -> str:
        """Return the expression of a number that is read behind the program."""
        is_plain_output = is_plain(copy) and type(copy._value) is LazyValue and not x.is_array
        at = self.output(copy) if is_plain_output else ""
        if at.startswith("o["):
            return self._assign_name(x, f"n{at[1:]}")
        return self._assign_name(x, f"{self.reach.name(ReadValue)}(copy={self.emit(copy)})")

    def _tensor(self, x: Tensor) -> str:
        if type(x) is not (x._vtype.cell or Tensor):
            raise Uncapturable(f"makes a {type(x).__name__}")
        name = self._names[id(x)] = f"t{len(self._names)}"
        self._kept_alive.append(x)
        self._new_tensors.append(x)
        value = self.output(x)
        self.lines += [
            f"{name} = {'Tensor' if type(x) is Tensor else self.reach.name(type(x))}()",
            f"{name}._value = {value}",
            f"{name}._vtype = {self.reach.name(x._vtype.materialized)}",
        ]
        shared = self.shared(x) or self._leaf_names.get(id(x._node))
        self.lines.append(f"{name}._node = {shared}")
        if shared is not None:
            return name
        if isinstance(x._node, Leaf):
            if x._node.grad is not None or getattr(x._node, "hooks", None):
                raise Uncapturable("makes a tensor that has a gradient of its own")
            self._leaf_names[id(x._node)] = f"{name}._node"
            self.lines.append(f"{name}._node = Leaf()")
        elif (copied := self._copied(x)) is not None:
            self.lines.append(f"{name}._node = aliased({copied})._node")
        elif x._node is not None:
            self.tracked.append((x, name))
        return name

    def _copied(self, x: Tensor) -> str | None:
        """Return the tensor from before that ``x`` is a copy of, where no op has made its value."""
        node = x._node
        if type(x._value) is LazyValue:
            return None
        while (plan := getattr(node, "plan", None)) is not None and plan.op is alias:
            (node,) = node.parents
            older = self.shared(wrap(x._value, x._vtype, node))
            if older is not None:
                return older.removesuffix("._node")
        return None

    def emit_views(self) -> list[str]:
        """Return the code that makes views of the new tensors that are, once all of them were emitted."""
        lines = []
        without_base = []
        for x in self._new_tensors:
            path = views.path_between(x, {*self._names, *self.reached})
            if path is None:
                without_base.append(x)
                continue
            base, steps = path
            text = self.emit(tuple(steps)) if is_open(steps) or not all(n for n, *_ in steps) else ""
            lines.append(
                f"link_along({self._names[id(x)]}, {self.emit(base)}, {text or self.reach.name(steps)})"
            )
        if views.overlapping(without_base):
            groups = views.paths_from_gone_root(without_base)
            if groups is None:
                raise Uncapturable("returns two views of a tensor that it does not return")
            for xs, paths in groups:
                text = self.emit([*map(tuple, paths)]) if is_open(paths) else self.reach.name(paths)
                lines.append(f"link_side_by_side(({self._emit_all(xs)}), {text})")
        if self._new_tensors:
            lines.append(f"if lent: separate(({self._emit_all(self._new_tensors)}))")
        return lines

    def _container(self, x: Any) -> str:
        kind, name = type(x), self.reach.name
        if kind is list:
            return f"[{self._emit_all(x)}]"
        if kind is slice:
            return f"slice({self._emit_all((x.start, x.stop, x.step))})"
        if kind is tuple:
            return f"({self._emit_all(x)})"
        if isinstance(x, tuple) and hasattr(kind, "_make"):
            return f"{name(kind)}._make(({self._emit_all(x)}))"
        if kind in (set, frozenset) and all(is_scalar(v) for v in x):
            return f"{kind.__name__}({name(frozenset(x))})"
        if kind in (dict, OrderedDict, CountedDict):
            return f"{name(kind)}(({self._pairs(x)}))"
        if kind is Counter:
            return f"{name(kind)}(dict(({self._pairs(x)})))"
        if isinstance(x, defaultdict) and kind is defaultdict:
            return f"{name(kind)}({self.emit(x.default_factory)}, ({self._pairs(x)}))"
        if compares_by_identity(x) and not isinstance(
            x, (types.FunctionType, types.CellType, functools.partial)
        ):
            if id(x) not in self.reach.objects and not _is_permanent(x):
                raise Uncapturable(f"makes a {kind.__name__}, another at each call")
            return name(x)
        return self._instance(x)

    def _emit_all(self, parts: Iterable[Any]) -> str:
        return "".join(f"{self.emit(v)}, " for v in parts)

    def _pairs(self, x: Mapping[Any, Any]) -> str:
        return "".join(f"({self.emit(k)}, {self.emit(v)}), " for k, v in x.items())

    def _named_parts(self, parts: Iterable[tuple[str, Any]]) -> str:
        return "".join(f"({name!r}, {self.emit(value)}), " for name, value in parts)

    def _instance(self, x: Any) -> str:
        """Return the code that constructs such an instance of a class written in Python."""
        kind = type(x)
        bases = kind.__mro__[:-1]
        made_otherwise = any("__new__" in vars(base) for base in bases)
        if made_otherwise or any(has_c_state(base) for base in bases):
            raise Uncapturable(f"returns a {kind.__module__}.{kind.__qualname__}")
        slots = [name for base in bases for name in slot_names(base) if hasattr(x, name)]
        places = self._named_parts((name, getattr(x, name)) for name in slots)
        entries = self._named_parts(getattr(x, "__dict__", {}).items())
        return f"construct({self.reach.name(kind)}, ({entries}), ({places}))"


def _is_permanent(x: Any) -> bool:
    """Return whether an object known by identity exists without a call that creates it."""
    if isinstance(x, type):
        try:
            return attrgetter(x.__qualname__)(sys.modules.get(x.__module__)) is x
        except AttributeError:
            return False
    if isinstance(x, (types.BuiltinFunctionType, types.MethodWrapperType)):
        return isinstance(x.__self__, (types.ModuleType, type, types.NoneType))
    return not isinstance(x, (Module, Generator, *LOCKS)) and type(x) is not object


def link_along(x: Tensor, base: Tensor, steps: Sequence[Any]) -> None:
    """Make ``x``, which a program computed, the view of ``base`` that it is without a capture."""
    by_key = partial(views.KeyStep, get=indexing.getitem, put=indexing.setitem)
    views.link_along(x, base, steps, by_key)


def construct(kind: type, entries: Sequence[tuple[str, Any]], places: Sequence[tuple[str, Any]]) -> Any:
    """Return an instance with these attributes in its ``__dict__``, and these in slots."""
    instance: Any = object.__new__(kind)
    if entries:
        instance.__dict__.update(entries)
    for name, value in places:
        object.__setattr__(instance, name, value)
    return instance


def set_attribute(x: Any, name: str, *value: Any) -> None:
    """Set or delete an attribute of an instance, past its class's ``__setattr__``."""
    own = getattr(x, "__dict__", None)
    if own is not None and (name in own or (value and not hasattr(type(x), name))):
        if value:
            own[name] = value[0]
        else:
            del own[name]
    elif value:
        object.__setattr__(x, name, value[0])
    else:
        object.__delattr__(x, name)
