"""The state that a call can reach before it runs: arguments, globals, closures and all objects behind them.

Python code depends on nothing but the state that it can name. A captured program is guarded by that state
being unchanged; the difference after the run is the run's mutations. Each object has an expression that
finds it: from the arguments (``x0``, ``x1`` ... and ``k``), or the name of a constant.
"""

from __future__ import annotations

import operator
import re
import sys
import types
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from ...nn.hooks import EVERYWHERE
from ...nn.module import Module
from ...tensor.tensor import Tensor, materialize
from ...tracing.active_tracer import DEFERRED_CODE
from ...tracing.lazy_value import LazyValue
from ...tracing.mutation_counter import CountedDict, mutation_counter
from .argument_history import ArgumentHistory
from .code_names import Code, names_looked_up, package_chain, strings
from .code_origin import is_own, is_standard
from .global_modes import GlobalModes
from .inspection import compares_by_identity, has_no_attributes, inspect_object, is_recreated
from .object_view import AllAttributes, ChildRef, KeyAccess, ObjectView, TensorState, Uncapturable
from .value_identity import exact_isinstance, is_scalar

Location = tuple[int, Any]
"""The id of an object or of a module's globals, with the key of a child, or the keys that lead to it."""
_MAX_NESTING: Final = 100
"""The number of nested containers that are named by the location of the outermost one."""
_MAX_EXPRESSION: Final = 60
"""The length above which the expression of an object is replaced by a name."""
_MAX_SHOWN: Final = 60
"""The length of a path that messages show whole."""
LOCAL_NAME: Final = re.compile(r"\bat_[0-9a-f]{12}\b")
"""The names that stand for long expressions."""
NUMBER_TYPES: Final = (int, float)
"""The types of Python numbers that may be symbolic."""
MAX_OBJECTS: Final = 30_000
"""The number of objects above which a function is left to Python: it reaches a whole library."""


def _abbreviated(text: str) -> str:
    """Return a path for people, without its middle where it is long."""
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN // 2]}...{text[-_MAX_SHOWN // 3 :]}"


@dataclass(slots=True, eq=False)
class TrackedObject:
    """A reachable object: ``expr`` is the code that finds it; ``fixed``: it is the same object at each call.

    ``before`` is its view before the run, ``children`` are its references with the objects behind them.
    ``shown`` is the way from the arguments to it, for people.
    """

    obj: Any
    expr: str
    fixed: bool
    before: ObjectView
    shown: str = ""
    children: list[tuple[ChildRef, TrackedObject | None]] = field(default_factory=list)


def location_of(tracked: TrackedObject, ref: ChildRef) -> tuple[int | str, Any]:
    """Return the location of a child: by the object's id if it is fixed, else by its expression."""
    return id(tracked.obj) if tracked.fixed else tracked.expr, ref.key


def number_locations(
    tracked: TrackedObject, children: Iterable[ChildRef]
) -> tuple[tuple[int | str, Any], ...]:
    """Return the locations of those children that are numbers and can be replaced."""
    if isinstance(tracked.obj, tuple) and not is_rebuildable(tracked):
        return ()
    return tuple([location_of(tracked, ref) for ref in children if is_number(ref.value)])


def is_rebuildable(tracked: TrackedObject) -> bool:
    """Return whether an object is a tuple, with names or without, that another may stand for: no constant."""
    kind = type(tracked.obj)
    plain = kind is tuple or (kind.__base__ is tuple and hasattr(kind, "_fields") and not kind.__dictoffset__)
    return plain and not tracked.fixed


def is_number(x: Any) -> bool:
    """Return whether ``x`` is a number, or a tuple of numbers, that may be symbolic."""
    return type(x) in NUMBER_TYPES or (
        type(x) is tuple and bool(x) and all(type(v) in NUMBER_TYPES for v in x)
    )


def parameter_names(function: Any) -> tuple[str, ...]:
    """Return the names of the positional parameters of a Python function."""
    callee: Any = function.forward if isinstance(function, Module) else function
    bound = type(callee) is types.MethodType
    plain = callee.__func__ if bound else callee
    if type(plain) is not types.FunctionType:
        return ()
    return plain.__code__.co_varnames[bound : plain.__code__.co_argcount]


_Holders = dict[int, list[tuple[TrackedObject, ChildRef]]]


def _path_to(last: tuple[TrackedObject, ChildRef], holders: _Holders) -> list[tuple[TrackedObject, ChildRef]]:
    """Return the path from a child outwards, as long as each container has exactly one holder."""
    path = [last]
    while len(owners := holders.get(id(path[-1][0]), [])) == 1 and len(path) < _MAX_NESTING:
        path.append(owners[0])
    return path


def _location(path: Sequence[tuple[TrackedObject, ChildRef]]) -> Location:
    """Return the location of a path: in the outermost container, with the keys that lead inwards."""
    outer, ref = path[-1]
    return id(outer.obj), ref.key if len(path) == 1 else tuple([p.key for _, p in reversed(path)])


@dataclass(slots=True, eq=False)
class GlobalRef:
    """A name that code looks up in a module: ``users`` is that code, ``value`` what the name stood for."""

    scope: dict[str, Any]
    name: str
    users: set[Code]
    value: Any
    tracked: TrackedObject | None


class ReachableState:
    """Everything that ``function(*args, **kwargs)`` can reach.

    ``more`` is code, with its globals, that is known to run too. Scalars are children without a
    ``TrackedObject`` of their own. ``every``: all attributes are inspected, not only those that code names.
    ``history`` is what earlier captures found of the arguments.
    ``replaced`` are locations (see ``unique_locations``) where captures found different tensors or
    containers. ``unrun_code`` is that of the function of which ``function`` is a part: it does not run,
    though it can be reached, and neither does ``__init__`` of what is there, unless ``more`` has them.
    """

    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        more: Mapping[Code, dict[str, Any]],
        every: bool = False,
        history: ArgumentHistory | None = None,
        replaced: Container[Location] = (),
        unrun_code: Code | None = None,
    ) -> None:
        self.unrun_code = unrun_code
        self.all_attributes, self.replaced_locations = every, replaced
        self.history = ArgumentHistory() if history is None else history
        self.names: frozenset[str] = (AllAttributes if every else frozenset)({"forward"})
        """The attributes that are inspected, at first the one that calling a module reads."""
        self.codes: dict[Code, dict[str, Any]] = dict(more)
        self._views: dict[int, ObjectView] = {}
        self.global_modes = GlobalModes.current()
        self.mutation_count = mutation_counter[0]
        """The mutation counter when inspection began."""
        while True:  # more code names more attributes, which lead to more code
            counts = len(self.names), len(self.codes)
            self._collect(function, args, kwargs)
            if counts == (len(self.names), len(self.codes)):
                break
        self._views = {}
        self._missing_names = {
            c: frozenset(names_looked_up(c)[0]) - scope.keys() for c, scope in self.codes.items()
        }

    def _collect(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.objects: dict[int, TrackedObject] = {}
        self.constants: dict[str, Any] = {}
        self._constant_names: dict[int, str] = {}
        self.local_names: dict[str, str] = {}
        """Names of objects far inside of others, with their expressions, in which earlier names may stand."""
        self.stand_ins: dict[int, int] = {}
        """The ids of tuples that stand for others in a dry run, with those of the others."""
        self.aliases: list[tuple[str, str]] = []
        self._untracked: list[TrackedObject] = []
        for code, scope in list(self.codes.items()):
            self.note_code(code, scope)
        self.roots = [
            self._track(x, "", True) for x in (function, *(h.function for h in EVERYWHERE.values()))
        ]
        self.arguments = [ChildRef(k, f"x{k}", x) for k, x in enumerate(args)]
        self.arguments += [ChildRef(name, f"k[{name!r}]", x) for name, x in kwargs.items()]
        objects = (self._track_child(None, ref, ref.key in self.history.fixed) for ref in self.arguments)
        self.argument_objects = [*zip(self.arguments, objects, strict=True)]
        called = dict(enumerate(parameter_names(function)))
        for ref, tracked in self.argument_objects:
            if tracked is not None and tracked.shown == ref.access:
                tracked.shown = called.get(ref.key, ref.access) if isinstance(ref.key, int) else ref.key
        self._track_children()
        self.globals: list[GlobalRef] = []
        global_refs: dict[tuple[int, str], GlobalRef] = {}
        while len(global_refs) < sum(len(self._globals(c)) for c in self.codes) or self._untracked:
            before = len(global_refs)
            for code in list(self.codes):
                for scope, name in self._globals(code):
                    global_ref = global_refs.get((id(scope), name))
                    if global_ref is None:
                        value = scope[name]
                        ref = ChildRef(name, f"{self.name(scope)}[{name!r}]", value)
                        global_ref = global_refs[id(scope), name] = GlobalRef(
                            scope, name, set(), value, self._track_child(None, ref, True)
                        )
                    global_ref.users.add(code)
            self._track_children()
            if len(global_refs) == before:
                break
        self.globals = list(global_refs.values())

    def _globals(self, code: Code) -> list[tuple[dict[str, Any], str]]:
        """Return scopes and names of the globals that code looks up; an import looks up a module."""
        scope = self.codes[code]
        names, imported = names_looked_up(code)
        looked_up: list[tuple[dict[str, Any], str]] = [(scope, name) for name in names if name in scope]
        for module in imported:
            chain = package_chain(module, scope.get("__package__") or "")
            looked_up += [(sys.modules, name) for name in chain if name in sys.modules]
        return looked_up

    def name(self, thing: Any) -> str:
        """Return the name of a constant in generated code."""
        name = self._constant_names.get(id(thing))
        if name is None:
            name = self._constant_names[id(thing)] = f"k{len(self.constants)}"
            self.constants[name] = thing
        return name

    def access(self, tracked: TrackedObject, ref: ChildRef, at: str = "") -> str:
        """Return the expression of a child; ``at`` is that of the object, where it is another."""
        at = at or tracked.expr
        if not isinstance(ref.access, KeyAccess):
            return f"{at}{ref.access}"
        at = f"DictItems({at})" if hasattr(type(tracked.obj), "__missing__") else at
        return f"{at}[{self.name(ref.access.key)}]" if ref.access == "[?]" else f"{at}{ref.access}"

    def _track(self, thing: Any, at: str, fixed: bool, shown: str = "") -> TrackedObject:
        fixed = fixed or (compares_by_identity(thing) and not is_recreated(thing))
        existing = self.objects.get(id(thing))
        if existing is not None:
            if fixed and not existing.fixed:
                self.aliases.append((existing.expr, self.name(thing)))
            return existing
        if exact_isinstance(thing, Tensor):
            materialize(thing)
        if len(self.objects) >= MAX_OBJECTS:
            raise Uncapturable(f"reaches more than {MAX_OBJECTS} objects")
        expr = self.name(thing) if fixed else self._short(at)
        tracked = TrackedObject(thing, expr, fixed, self._inspect(thing), shown)
        self.objects[id(thing)] = tracked
        self._untracked.append(tracked)
        return tracked

    def _inspect(self, thing: Any) -> ObjectView:
        """Inspect an object; once only where the names that code reads make no difference."""
        if not has_no_attributes(thing):
            return inspect_object(thing, self.names)
        view = self._views.get(id(thing))
        if view is None:
            view = self._views[id(thing)] = inspect_object(thing, None)
        return view

    def _track_child(
        self, owner: TrackedObject | None, ref: ChildRef, fixed: bool = False
    ) -> TrackedObject | None:
        if is_scalar(ref.value):
            return None
        if ref.constant:
            return self._track(ref.value, "", True)
        at = ref.access if owner is None else self.access(owner, ref)
        shown = _abbreviated(ref.access if owner is None else f"{owner.shown}{ref.access}")
        return self._track(ref.value, at, fixed or (owner is not None and owner.fixed), shown)

    def _short(self, at: str) -> str:
        """Return an expression, or a name for a long one: nested ones would be as long as their depth.

        The name depends on the expression alone, so that the next capture gives the same.
        """
        if len(at) <= _MAX_EXPRESSION:
            return at
        name = f"at_{blake2b(at.encode(), digest_size=6).hexdigest()}"
        self.local_names[name] = at
        return name

    def definitions(self, code: str, defined: set[str]) -> list[tuple[str, str]]:
        """Return the local names in ``code`` that are not ``defined``, with their expressions, in order.

        They are from then on.
        """
        definitions: list[tuple[str, str]] = []
        for name in LOCAL_NAME.findall(code) if self.local_names else ():
            chain = []
            while name is not None and name not in defined and name in self.local_names:
                defined.add(name)
                chain.append((name, self.local_names[name]))
                inner = LOCAL_NAME.search(self.local_names[name])
                name = inner[0] if inner else None
            definitions += reversed(chain)
        return definitions

    def _track_children(self) -> None:
        while self._untracked:
            tracked = self._untracked.pop()
            thing = tracked.obj
            if type(thing) is types.FunctionType:
                if self._is_taken_not_to_run(thing.__code__):
                    continue
                self.note_code(thing.__code__, thing.__globals__)
            elif type(thing) in (operator.attrgetter, operator.methodcaller):
                names = (n for n in thing.__reduce__()[1] if isinstance(n, str))
                self._add_names(ref for n in names for ref in n.split("."))
            tracked.children = [(ref, self._track_child(tracked, ref)) for ref in tracked.before.children]

    def _is_taken_not_to_run(self, code: Code) -> bool:
        """Return whether code is left out until it has run: of a divided function, and what made objects."""
        if self.unrun_code is None or code in self.codes:
            return False
        return code is self.unrun_code or code.co_name == "__init__"

    def inspect_again(self, thing: Any) -> None:
        """Inspect an object again that had no children and has some now."""
        tracked = self.objects[id(thing)]
        tracked.before = inspect_object(thing, self.names)
        self._untracked.append(tracked)
        self._track_children()

    def drop_old_values(self) -> None:
        """Drop the old values of tensors that the run assigns: new ones may reuse their memory."""
        for tracked in self.objects.values():
            state = tracked.before.state
            if isinstance(state, TensorState) and type(tracked.obj._value) is LazyValue:
                state.value = None

    def note_code(self, code: Code, scope: dict[str, Any]) -> None:
        """Note the names that a piece of the user's code reads."""
        if is_own(code.co_filename) or is_standard(code.co_filename):
            return
        self.codes[code] = scope
        self._add_names((*code.co_names, *strings(code.co_consts)))
        for inner in code.co_consts:
            if isinstance(inner, Code) and inner not in self.codes:
                self.note_code(inner, scope)

    def _add_names(self, names: Iterable[str]) -> None:
        self.names = type(self.names)(self.names.union(names))

    def reachable_from(
        self, ran: set[Code], hidden: set[int], unread: Container[int] = ()
    ) -> Iterator[TrackedObject]:
        """Yield what the code that ran can reach, except what lies only behind objects with hidden ids.

        Of tensors whose ids are ``unread`` the gradients are left out.
        """
        stack = [*self.roots, *(tracked for _, tracked in self.argument_objects if tracked)]
        stack += [g.tracked for g in self.globals_read_by(ran) if g.tracked is not None]
        yield from self._reachable_from(stack, hidden, unread)

    def weakly_held(
        self, ran: set[Code], hidden: set[int], unread: Container[int]
    ) -> Iterator[TrackedObject]:
        """Yield what the code that ran can reach by weak references alone: it may die while they stay."""
        weak = {
            id(tracked.obj): tracked
            for tracked in self.objects.values()
            if tracked.before.kind == "reference"
        }
        if weak:
            strong = {id(tracked.obj) for tracked in self.reachable_from(ran, hidden | weak.keys(), unread)}
            references = [
                tracked for tracked in self.reachable_from(ran, hidden, unread) if id(tracked.obj) in weak
            ]
            behind = (child for tracked in references for _, child in tracked.children if child is not None)
            yield from (child for child in behind if id(child.obj) not in strong)

    def _reachable_from(
        self, stack: list[TrackedObject], hidden: set[int], unread: Container[int]
    ) -> Iterator[TrackedObject]:
        visited: set[int] = set()
        while stack:
            tracked = stack.pop()
            if id(tracked) in visited or id(tracked.obj) in hidden:
                continue
            visited.add(id(tracked))
            yield tracked
            children = tracked.children
            if id(tracked.obj) in unread:
                children = [(ref, child) for ref, child in children if ref.key != "grad"]
            stack.extend(child for _, child in reversed(children) if child is not None)

    def holders_of(self, thing: TrackedObject) -> Iterator[int | str]:
        """Yield the arguments, by position or name, behind which an object is."""
        for ref, tracked in self.argument_objects:
            if tracked is not None and thing in self._reachable_from([tracked], set(), ()):
                yield ref.key

    def deferred_code(self) -> set[Code]:
        """Return the code that runs when a program is differentiated or lowered: rules of user kernels."""
        codes: set[Code] = set()
        things = [tracked.obj for tracked in self._functions()]
        stack = [f for thing in things for f in vars(thing).get(DEFERRED_CODE, ())]
        while stack:
            f = stack.pop()
            if isinstance(f, types.FunctionType) and f.__code__ in self.codes and f.__code__ not in codes:
                codes.add(f.__code__)
                stack += [g.value for g in self.globals if f.__code__ in g.users]
                stack += [
                    tracked.obj
                    for cell in f.__closure__ or ()
                    for _, tracked in self._children_of(cell)
                    if tracked
                ]
        return codes

    def _functions(self) -> Iterator[TrackedObject]:
        return (tracked for tracked in self.objects.values() if type(tracked.obj) is types.FunctionType)

    def deferred_code_reads(self, places: Container[tuple[int, Any]]) -> bool:
        """Return whether deferred code can reach a child or a global at one of ``places``."""
        codes = self.deferred_code()
        used = self.globals_read_by(codes)
        stack = [tracked for tracked in self._functions() if tracked.obj.__code__ in codes]
        stack += [g.tracked for g in used if g.tracked is not None]
        if any((id(g.scope), g.name) in places for g in used):
            return True
        behind = self._reachable_from(stack, set(), ())
        return any((id(tracked.obj), ref.key) in places for tracked in behind for ref, _ in tracked.children)

    def _children_of(self, thing: Any) -> list[tuple[ChildRef, TrackedObject | None]]:
        return self.objects[id(thing)].children if id(thing) in self.objects else []

    def globals_read_by(self, ran: set[Code]) -> list[GlobalRef]:
        """Return the globals that the code that ran looks up."""
        return [g for g in self.globals if g.users & ran]

    def missing_globals(self, ran: set[Code]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
        """Yield the scopes of the code that ran, with the absent names that it looks up there."""
        codes = ran & self._missing_names.keys()
        scopes = {id(self.codes[c]): self.codes[c] for c in codes}
        for key, scope in scopes.items():
            absent = {n for c in codes if id(self.codes[c]) == key for n in self._missing_names[c]}
            if absent:
                yield scope, frozenset(absent)

    def unique_locations(self) -> Iterator[tuple[Location, str, TrackedObject]]:
        """Yield the tensors that are state at exactly one location: it, the expression, the tensor.

        They are constants, unless the function or others put different ones there. Containers around them
        that have been replaced since, as a tuple in an attribute may be, are found by their location.
        """
        homes_by_id: dict[int, list[tuple[Location, str, TrackedObject]]] = {}
        holders = self._holders()
        for owner in list(self.objects.values()):
            for ref, child in owner.children:
                if child is not None and child.fixed and type(child.obj) is Tensor:
                    path = _path_to((owner, ref), holders)
                    new = (k for k in range(1, len(path)) if _location(path[k:]) in self.replaced_locations)
                    begin = max(new, default=0)
                    at = path[begin][0].expr
                    for tracked, inner in reversed(path[: begin + 1]):
                        at = self.access(tracked, inner, at)
                    homes_by_id.setdefault(id(child), []).append((_location(path), at, child))
        for g in self.globals:
            if g.tracked is not None and type(g.tracked.obj) is Tensor:
                home = (id(g.scope), g.name), f"{self.name(g.scope)}[{g.name!r}]", g.tracked
                homes_by_id.setdefault(id(g.tracked), []).append(home)
        yield from (homes[0] for homes in homes_by_id.values() if len(homes) == 1)

    def container_locations(self) -> Iterator[tuple[Location, int]]:
        """Yield the locations of containers that are state and lie nowhere else, and their ids."""
        holders = self._holders()
        for owners in holders.values():
            if len(owners) == 1:
                [(owner, ref)] = owners
                yield _location(_path_to((owner, ref), holders)), id(ref.value)

    def _holders(self) -> _Holders:
        """Return the holders of each container that is state and no global."""
        containers: _Holders = {}
        named = {id(g.tracked) for g in self.globals}
        for owner in list(self.objects.values()):
            for ref, child in owner.children:
                if child is None or not child.fixed or id(child) in named:
                    continue
                if type(child.obj) in (tuple, list, dict, CountedDict):
                    containers.setdefault(id(child), []).append((owner, ref))
        return containers

    def tensors(self) -> Iterator[TrackedObject]:
        """Yield the tensors."""
        return (tracked for tracked in self.objects.values() if exact_isinstance(tracked.obj, Tensor))
