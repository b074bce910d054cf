"""What a call can reach: its arguments, globals, closures and everything behind them, as it is before a run.

What Python code does depends on nothing but the state that it can name. That state, unchanged, is what a
captured program is guarded by; what differs after the run is what the run changed. Objects are known by the
code that finds them, from the arguments (``x0``, ``x1`` ... and ``k``) or as constants.
"""

from __future__ import annotations

import dis
import operator
import sys
import types
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import resolve_name
from itertools import accumulate
from typing import Any, Final

from ...nn.hooks import EVERYWHERE
from ...tensor.tensor import Tensor, materialize
from ...tracing.lazy_value import GIVEN, structure
from ..capture.side_effect_observer import is_own, is_standard
from .global_modes import Ambient
from .object_view import Every, Keyed, Look, NotReplayable, Part, is_fixed, is_made_anew, is_nameless, look
from .value_identity import is_a, is_plain

Code = types.CodeType
_GLOBAL: Final = frozenset(
    {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL", "LOAD_FROM_DICT_OR_GLOBALS"}
)
Place = tuple[int, Any]
"""The id of an object, or of the names of a module, and the key of a part, or the keys that lead to it."""
_DEEP: Final = 100
"""How many containers, one in the other, are named by where the outermost lies."""
NUMBERS: Final = (int, float)
"""The types of numbers that a script may hold."""
MOST: Final = 30_000
"""How many objects a function may reach before it is left to Python: a whole library stands behind it."""


@cache
def _looked_up(code: Code) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names that a piece of code looks up among globals, and the modules that it imports.

    Attributes may have the same names. Modules are named as relative to a package, ``.inner`` say.
    """
    names: set[str] = set()
    imported: list[str] = []
    loaded: list[Any] = []
    for i in dis.get_instructions(code):
        if i.opname in _GLOBAL:
            names.add(i.argval)
        elif i.opname == "IMPORT_NAME":  # of a level, which is loaded first, and the names that it asks for
            level = next(x for x in reversed(loaded[:-1]) if type(x) is int)
            imported.append("." * level + i.argval)
        elif i.opname.startswith("LOAD_"):
            loaded.append(i.argval)
    return tuple(name for name in code.co_names if name in names), tuple(imported)


def _modules(imported: str, package: str) -> list[str]:
    """Return the full name of an imported module, after those of the packages that it is in."""
    try:
        name = resolve_name(imported, package)
    except ImportError:
        return []
    return list(accumulate(name.split("."), "{}.{}".format))


def _strings(constants: tuple[Any, ...]) -> Iterator[str]:
    """Yield the strings among constants, also in tuples: names of attributes, perhaps."""
    for x in constants:
        if isinstance(x, str):
            yield x
        elif isinstance(x, (tuple, frozenset)):
            yield from _strings(tuple(x))


@dataclass(slots=True, eq=False)
class Seen:
    """An object: ``at`` is the code that finds it; ``fixed``: it is a constant, always the same object.

    ``before`` is what it was, ``parts`` the objects behind it, with the accesses that lead there.
    """

    thing: Any
    at: str
    fixed: bool
    before: Look
    parts: list[tuple[Part, Seen | None]] = field(default_factory=list)


def place_of(seen: Seen, part: Part) -> tuple[int | str, Any]:
    """Return what tells a part of an object at each call: by the object, or by how it is found."""
    return id(seen.thing) if seen.fixed else seen.at, part.key


def places_of(seen: Seen, parts: Iterable[Part]) -> tuple[tuple[int | str, Any], ...]:
    """Return the places of those parts of an object that are numbers, where others can be put there."""
    if isinstance(seen.thing, tuple):
        return ()
    return tuple([place_of(seen, part) for part in parts if is_number(part.value)])


def is_number(x: Any) -> bool:
    """Return whether ``x`` is a number, or a tuple of numbers, that may be the script's."""
    return type(x) in NUMBERS or (type(x) is tuple and bool(x) and all(type(v) in NUMBERS for v in x))


_Holders = dict[int, list[tuple[Seen, Part]]]


def _way(last: tuple[Seen, Part], holders: _Holders) -> list[tuple[Seen, Part]]:
    """Return a part of an object, that object in the one that holds it, if just one does, and so on."""
    way = [last]
    while len(held := holders.get(id(way[-1][0]), [])) == 1 and len(way) < _DEEP:
        way.append(held[0])
    return way


def _place(way: Sequence[tuple[Seen, Part]]) -> Place:
    """Return the place of a part: that of the outermost container has the keys that lead on behind it."""
    outer, part = way[-1]
    return id(outer.thing), part.key if len(way) == 1 else tuple([p.key for _, p in reversed(way)])


@dataclass(slots=True, eq=False)
class Global:
    """A name that code looks up in a module: which code does, and what it found."""

    scope: dict[str, Any]
    name: str
    users: set[Code]
    value: Any
    seen: Seen | None


class Reach:
    """Everything that ``function(*args, **kwargs)`` can reach.

    ``more`` is code, with its globals, that is known to run besides what is found. Plain values are parts
    without a ``Seen`` of their own. ``every``: all attributes count, not only those that code names.
    ``filled`` are arguments of earlier captures that those changed, by id, and what they were then.
    ``replaced`` are places (see ``homes``) at which captures have found different tensors or containers.
    """

    def __init__(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        more: Mapping[Code, dict[str, Any]],
        every: bool = False,
        filled: dict[int, Any] | None = None,
        replaced: Container[Place] = (),
    ) -> None:
        self.every, self.replaced = every, replaced
        self.filled: dict[int, Any] = {} if filled is None else filled
        self.names: frozenset[str] = (Every if every else frozenset)({"forward"})
        """The attributes that count; what calling a module asks for, to begin with."""
        self.codes: dict[Code, dict[str, Any]] = dict(more)
        self._looks: dict[int, Look] = {}
        self.ambient = Ambient.now()
        self.structure = structure[0]
        """The count of changes to structure when looking began."""
        while True:  # more code names more attributes, which lead to more code
            known = len(self.names), len(self.codes)
            self._walk(function, args, kwargs)
            if known == (len(self.names), len(self.codes)):
                break
        self._looks = {}
        self._lacked = {c: frozenset(_looked_up(c)[0]) - scope.keys() for c, scope in self.codes.items()}

    def _walk(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.seen: dict[int, Seen] = {}
        self.constants: dict[str, Any] = {}
        self._named: dict[int, str] = {}
        self.same: list[tuple[str, str]] = []
        self._next: list[Seen] = []
        for code, scope in list(self.codes.items()):
            self.read(code, scope)
        self.roots = [self._see(x, "", True) for x in (function, *(h.function for h in EVERYWHERE.values()))]
        self.arguments = [Part(k, f"x{k}", x) for k, x in enumerate(args)]
        self.arguments += [Part(name, f"k[{name!r}]", x) for name, x in kwargs.items()]
        self.given = [(part, self._part(None, part)) for part in self.arguments]
        self._follow()
        self.globals: list[Global] = []
        found: dict[tuple[int, str], Global] = {}
        while len(found) < sum(len(self._globals(c)) for c in self.codes) or self._next:
            before = len(found)
            for code in list(self.codes):
                for scope, name in self._globals(code):
                    known = found.get((id(scope), name))
                    if known is None:
                        value = scope[name]
                        part = Part(name, f"{self.name(scope)}[{name!r}]", value)
                        known = found[id(scope), name] = Global(
                            scope, name, set(), value, self._part(None, part, True)
                        )
                    known.users.add(code)
            self._follow()
            if len(found) == before:
                break
        self.globals = list(found.values())

    def _globals(self, code: Code) -> list[tuple[dict[str, Any], str]]:
        """Return where a piece of code looks up which names; modules that it imports, among all modules."""
        scope = self.codes[code]
        names, imported = _looked_up(code)
        found: list[tuple[dict[str, Any], str]] = [(scope, name) for name in names if name in scope]
        for module in imported:
            known = _modules(module, scope.get("__package__") or "")
            found += [(sys.modules, name) for name in known if name in sys.modules]
        return found

    def name(self, thing: Any) -> str:
        """Return the name of a constant."""
        found = self._named.get(id(thing))
        if found is None:
            found = self._named[id(thing)] = f"k{len(self.constants)}"
            self.constants[found] = thing
        return found

    def access(self, seen: Seen, part: Part, at: str = "") -> str:
        """Return the code that gets a part of what was seen, and is found by the code ``at``."""
        at = at or seen.at
        if not isinstance(part.access, Keyed):
            return f"{at}{part.access}"
        at = f"Entries({at})" if hasattr(type(seen.thing), "__missing__") else at
        return f"{at}[{self.name(part.access.key)}]" if part.access == "[?]" else f"{at}{part.access}"

    def _see(self, thing: Any, at: str, fixed: bool) -> Seen:
        fixed = fixed or (is_fixed(thing) and not is_made_anew(thing))
        known = self.seen.get(id(thing))
        if known is not None:
            if fixed and not known.fixed:
                self.same.append((known.at, self.name(thing)))
            return known
        if is_a(thing, Tensor):
            materialize(thing)
        if len(self.seen) >= MOST:
            raise NotReplayable(f"reaches more than {MOST} objects")
        made = Seen(thing, self.name(thing) if fixed else at, fixed, self._look(thing))
        self.seen[id(thing)] = made
        self._next.append(made)
        return made

    def _look(self, thing: Any) -> Look:
        """Look at an object, once where it is the same whatever code names: the walks find it again."""
        if not is_nameless(thing):
            return look(thing, self.names)
        found = self._looks.get(id(thing))
        if found is None:
            found = self._looks[id(thing)] = look(thing, None)
        return found

    def _part(self, owner: Seen | None, part: Part, fixed: bool = False) -> Seen | None:
        if is_plain(part.value):
            return None
        if part.constant:
            return self._see(part.value, "", True)
        at = part.access if owner is None else self.access(owner, part)
        return self._see(part.value, at, fixed or (owner is not None and owner.fixed))

    def _follow(self) -> None:
        while self._next:
            seen = self._next.pop()
            thing = seen.thing
            if type(thing) is types.FunctionType:
                self.read(thing.__code__, thing.__globals__)
            elif type(thing) in (operator.attrgetter, operator.methodcaller):
                names = (n for n in thing.__reduce__()[1] if isinstance(n, str))
                self._ask(part for n in names for part in n.split("."))
            seen.parts = [(part, self._part(seen, part)) for part in seen.before.parts]

    def look_again(self, thing: Any) -> None:
        """Look anew at an object that had no parts and has some now."""
        seen = self.seen[id(thing)]
        seen.before = look(thing, self.names)
        self._next.append(seen)
        self._follow()

    def read(self, code: Code, scope: dict[str, Any]) -> None:
        """Take note of what a piece of the user's code names."""
        if is_own(code.co_filename) or is_standard(code.co_filename):
            return
        self.codes[code] = scope
        self._ask((*code.co_names, *_strings(code.co_consts)))
        for inner in code.co_consts:
            if isinstance(inner, Code) and inner not in self.codes:
                self.read(inner, scope)

    def _ask(self, names: Iterable[str]) -> None:
        self.names = type(self.names)(self.names.union(names))

    def behind(self, ran: set[Code], hidden: set[int], unread: Container[int] = ()) -> Iterator[Seen]:
        """Yield what the code that ran can reach, without what is only behind objects whose id is hidden.

        Of tensors whose ids are ``unread`` the gradients are left out.
        """
        stack = [*self.roots, *(seen for _, seen in self.given if seen)]
        stack += [g.seen for g in self.used(ran) if g.seen is not None]
        yield from self._behind(stack, hidden, unread)

    def held_weakly(self, ran: set[Code], hidden: set[int], unread: Container[int]) -> Iterator[Seen]:
        """Yield what the code that ran can reach by weak references alone: it may go while they stay."""
        weak = {id(seen.thing): seen for seen in self.seen.values() if seen.before.kind == "reference"}
        if weak:
            held = {id(seen.thing) for seen in self.behind(ran, hidden | weak.keys(), unread)}
            found = [seen for seen in self.behind(ran, hidden, unread) if id(seen.thing) in weak]
            behind = (child for seen in found for _, child in seen.parts if child is not None)
            yield from (child for child in behind if id(child.thing) not in held)

    def _behind(self, stack: list[Seen], hidden: set[int], unread: Container[int]) -> Iterator[Seen]:
        done: set[int] = set()
        while stack:
            seen = stack.pop()
            if id(seen) in done or id(seen.thing) in hidden:
                continue
            done.add(id(seen))
            yield seen
            parts = seen.parts
            if id(seen.thing) in unread:
                parts = [(part, child) for part, child in parts if part.key != "grad"]
            stack.extend(child for _, child in reversed(parts) if child is not None)

    def later(self) -> set[Code]:
        """Return the code that runs when a program is differentiated or lowered: what kernels were given."""
        found: set[Code] = set()
        things = [seen.thing for seen in self._functions()]
        stack = [f for thing in things for f in vars(thing).get(GIVEN, ())]
        while stack:
            f = stack.pop()
            if isinstance(f, types.FunctionType) and f.__code__ in self.codes and f.__code__ not in found:
                found.add(f.__code__)
                stack += [g.value for g in self.globals if f.__code__ in g.users]
                stack += [seen.thing for cell in f.__closure__ or () for _, seen in self._parts(cell) if seen]
        return found

    def _functions(self) -> Iterator[Seen]:
        return (seen for seen in self.seen.values() if type(seen.thing) is types.FunctionType)

    def reads_later(self, places: Container[tuple[int, Any]]) -> bool:
        """Return whether code that runs ``later`` can reach a part at one of ``places``, or such a global."""
        codes = self.later()
        used = self.used(codes)
        stack = [seen for seen in self._functions() if seen.thing.__code__ in codes]
        stack += [g.seen for g in used if g.seen is not None]
        if any((id(g.scope), g.name) in places for g in used):
            return True
        behind = self._behind(stack, set(), ())
        return any((id(seen.thing), part.key) in places for seen in behind for part, _ in seen.parts)

    def _parts(self, thing: Any) -> list[tuple[Part, Seen | None]]:
        return self.seen[id(thing)].parts if id(thing) in self.seen else []

    def used(self, ran: set[Code]) -> list[Global]:
        """Return the globals that the code that ran looks up."""
        return [g for g in self.globals if g.users & ran]

    def unbound(self, ran: set[Code]) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
        """Yield the modules of the code that ran, with the names that it looks up there and that were not."""
        known = ran & self._lacked.keys()
        scopes = {id(self.codes[c]): self.codes[c] for c in known}
        for key, scope in scopes.items():
            absent = {n for c in known if id(self.codes[c]) == key for n in self._lacked[c]}
            if absent:
                yield scope, frozenset(absent)

    def homes(self) -> Iterator[tuple[Place, str, Seen]]:
        """Yield the tensors that are state and lie at one place: it, the code that finds it, the tensor.

        They are constants, unless the function or others put different ones there. Containers around them
        that have been made anew since, as a tuple in an attribute is, are found where they lie.
        """
        found: dict[int, list[tuple[Place, str, Seen]]] = {}
        holders = self._holders()
        for owner in list(self.seen.values()):
            for part, child in owner.parts:
                if child is not None and child.fixed and type(child.thing) is Tensor:
                    way = _way((owner, part), holders)
                    new = (k for k in range(1, len(way)) if _place(way[k:]) in self.replaced)
                    begin = max(new, default=0)
                    at = way[begin][0].at
                    for seen, inner in reversed(way[: begin + 1]):
                        at = self.access(seen, inner, at)
                    found.setdefault(id(child), []).append((_place(way), at, child))
        for g in self.globals:
            if g.seen is not None and type(g.seen.thing) is Tensor:
                home = (id(g.scope), g.name), f"{self.name(g.scope)}[{g.name!r}]", g.seen
                found.setdefault(id(g.seen), []).append(home)
        yield from (homes[0] for homes in found.values() if len(homes) == 1)

    def containers(self) -> Iterator[tuple[Place, int]]:
        """Yield the places at which containers lie that are state and lie nowhere else, and their ids."""
        holders = self._holders()
        for held in holders.values():
            if len(held) == 1:
                [(owner, part)] = held
                yield _place(_way((owner, part), holders)), id(part.value)

    def _holders(self) -> _Holders:
        """Return the objects that hold each container that is state, and no global."""
        found: _Holders = {}
        named = {id(g.seen) for g in self.globals}
        for owner in list(self.seen.values()):
            for part, child in owner.parts:
                if child is None or not child.fixed or id(child) in named:
                    continue
                if type(child.thing) in (tuple, list, dict):
                    found.setdefault(id(child), []).append((owner, part))
        return found

    def tensors(self) -> Iterator[Seen]:
        """Yield the tensors."""
        return (seen for seen in self.seen.values() if is_a(seen.thing, Tensor))
