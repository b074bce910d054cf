"""Generates the guards of a capture: everything that its code reads is unchanged.

``emit`` collects them as ``Guard``s; ``emit_head`` writes the code that checks them at each call, the first
lines of a cache entry; those that fail only after a counted mutation are apart, in ``emit_on_mutation``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Container, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from ...amp.matmul_precision import _chosen as _matmul_precision
from ...autograd.views import are_unrelated, no_views, relations
from ...devices.device import _default_device, _device_stack
from ...dispatch import kernel_preference
from ...dtypes import definition as dt
from ...nn.hooks import EVERYWHERE
from ...nn.parameter import Parameter
from ...tensor.grad_mode import grad_enabled
from ...tensor.tensor import Leaf, Tensor
from ...tracing.autocast_state import autocast_dtype
from ...tracing.host_prologue import ARGUMENT, HostPrologue
from ...tracing.mesh_policy import mesh_policy
from ...tracing.mutation_counter import NUMBERS, CountedDict
from ...tracing.sym_int import FUNCTIONS, ShapeEnv, integer
from ..state.mutations import describe_object, describe_ref, is_prologue_number
from ..state.object_view import KeyAccess, TensorState
from ..state.reachable import (
    LOCAL_NAME,
    GlobalRef,
    ReachableState,
    TrackedObject,
    is_number,
    number_locations,
    parameter_names,
)
from ..state.value_identity import DictItems, is_scalar, same_items
from .guard import Guard
from .lookups import lookups
from .merged_guards import MERGED_GLOBALS, ids, merge_guards

GUARD_GLOBALS: Final = {
    "grad_enabled": grad_enabled.get, "entered": _device_stack.get, "chosen": _default_device, "dtypes": dt,
    "preferred": kernel_preference._preferred.get, "autocast": autocast_dtype.get, "Leaf": Leaf,
    "NoneType": type(None), "everywhere": EVERYWHERE, "same_items": same_items, "DictItems": DictItems,
    "precision": _matmul_precision, "integer": integer, "no_views": no_views, "relations": relations,
    "are_unrelated": are_unrelated, "mesh_policy": mesh_policy.get,
    **FUNCTIONS, **MERGED_GLOBALS,
}  # fmt: skip
"""The globals of guard code besides the constants of a capture."""
_MUTABLE_KINDS: Final = frozenset({"tensor", "sequence", "mapping", "set", "instance", "counted", "cell"})
_COUNTED_TABLES: Final = frozenset(
    f".__dict__[{name!r}]" for name in ("_parameters", "_buffers", "_modules", "_transient", "_hooks")
) | {".before", ".after", ".back", ".left"}
"""The children of modules and of their hooks that change only with the mutation counter."""
_MIN_LIST_GUARD_ITEMS: Final = 4
"""The length from which a list of scalars has one guard instead of one for each item."""
_LOOKS_INTO_CONSTANT: Final = re.compile(r"\bk\d+[.\[]|[ (]in k\d|(?:any|all|map)\(")
_MAX_NAMED: Final = 4
"""How many objects a guard's text names."""
_EXACTLY_COMPARED: Final = frozenset({int, bool, str, bytes, type(None)})
"""The types whose equal values are identical."""


class GuardCodegen:
    """Generates the guards of one capture, for the objects ``reached``, by id, by code that ``ran``.

    ``grads``: the program reads gradients of tensors, except of those ``overwritten``, by id. ``called`` are
    the ids of tensorbus's own code that ran.
    """

    def __init__(
        self, reach: ReachableState, reached: Mapping[int, TrackedObject], ran: set[CodeType],
        prologue: HostPrologue, grads: bool, shape_env: ShapeEnv, overwritten: Container[int],
        called: Container[int] = (),
    ) -> None:  # fmt: skip
        self.ran, self.called = ran, called
        self.reach, self.reached, self.prologue, self.grads, self.shape_env = (
            reach,
            reached,
            prologue,
            grads,
            shape_env,
        )
        self.overwritten = overwritten
        self.guards: list[Guard] = []
        self._empty: list[TrackedObject] = []
        """Empty dicts, such as those of parameters' attributes: one guard serves all."""
        self._locations: tuple[tuple[int | str, Any], ...] = ()
        """The locations of the numbers that the guards checked now are about."""
        self.strict = False
        """Whether code may read prologue numbers of optimizer groups, such as rates, by another way."""
        self._counted_tables = {
            id(ref.value)
            for tracked in reached.values() if tracked.before.kind == "counted"
            for ref in tracked.before.children if ref.access in _COUNTED_TABLES
        }  # fmt: skip

    def emit(self, used: Sequence[GlobalRef]) -> None:
        """Emit the guards of arguments, of the globals ``used``, and of all objects behind them.

        They come before those that were added already.
        """
        added, self.guards = self.guards, []
        arguments = [p for p in self.reach.arguments if isinstance(p.key, int)]
        named = [p for p in self.reach.arguments if isinstance(p.key, str)]
        self.add(f"len(a) == {len(arguments)}", "the number of arguments")
        code = f"[*k] == {self.reach.name([p.key for p in named])}" if named else "not k"
        self.add(code, "the names of arguments")
        self._modes()
        called = {k: f"{name!r}, " for k, name in enumerate(parameter_names(self.reach.roots[0].obj))}
        for ref, tracked in self.reach.argument_objects:
            if (ARGUMENT, ref.key) in self.prologue.slots:
                continue
            self._child(ref.access, ref.value, tracked, f"{called.get(ref.key, '')}argument {ref.key!r}")
        for grown in self.prologue.appended.values():
            for at in grown.exprs:
                self.add(f"{at} is {grown.expr}", f"the {type(grown.obj).__name__} that is added to")
        for global_ref in used:
            at = f"{self.reach.name(global_ref.scope)}[{global_ref.name!r}]"
            if (id(global_ref.scope), global_ref.name) in self.prologue.slots:
                self._prologue_number(at, global_ref.value, f"the global {global_ref.name!r}")
                continue
            self._locations = (
                ((id(global_ref.scope), global_ref.name),) if is_number(global_ref.value) else ()
            )
            self._child(at, global_ref.value, global_ref.tracked, f"the global {global_ref.name!r}")
            self._locations = ()
        for scope, names in self.reach.missing_globals(self.ran):
            text = f"that no global is named {', '.join(sorted(names))}"
            self.add(f"{self.reach.name(scope)}.keys().isdisjoint({self.reach.name(names)})", text)
        for one, other in self.reach.aliases:
            self.add(f"{one} is {other}", f"which object {one} is")
        self._distinct()
        library: list[TrackedObject] = []
        for tracked in list(self.reached.values()):
            if isinstance(tracked.obj, ModuleType) and tracked.before.kind == "counted":
                library.append(tracked)
            else:
                self._object(tracked)
        self._library(library)
        self._lookups()
        if self._empty:
            code = f"not any({self.reach.name(tuple(tracked.obj for tracked in self._empty))})"
            first = ", ".join(map(describe_object, self._empty[:_MAX_NAMED]))
            self.add(code, f"that nothing is in {first} and the like")
        for condition in self.shape_env.guards:
            where = " and ".join(
                f"{name} is {at.replace('._value', '')}" for name, at in self.shape_env.symbols.items()
                if re.search(rf"\b{name}\b", condition)
            )  # fmt: skip
            self.add(condition, f"the lengths of arguments: {condition}, where {where}")
        self.guards = merge_guards(self.guards, self.reach.constants, self.reach.name) + added

    def _library(self, modules: Sequence[TrackedObject]) -> None:
        """Guard what is looked up in tensorbus by one condition, for which its mutation counter stands."""
        others, self.guards = self.guards, []
        for tracked in modules:
            self._object(tracked)
        merged = [guard for guard in self.guards if guard.on_mutation_only and not guard.locations]
        self.guards = others + [guard for guard in self.guards if guard not in merged]
        if merged:
            names = [describe_ref(ref) for tracked in modules for ref, _ in tracked.children]
            listed = ", ".join(names[:_MAX_NAMED]) + (", ..." if len(names) > _MAX_NAMED else "")
            code = " and ".join(f"({guard.code})" for guard in merged)
            self.add(code, f"what is looked up in tensorbus: {listed or 'nothing'}", True)

    def _lookups(self) -> None:
        """Guard what code looks up in modules and classes that are taken as they are."""
        fixed = [tracked.obj for tracked in self.reached.values() if tracked.before.kind == "fixed"]
        owners = [x for x in fixed if isinstance(x, (ModuleType, type))]
        tensors = {type(tracked.obj) for tracked in self.reached.values() if tracked.before.kind == "tensor"}
        name = self.reach.name
        for lookup in lookups([*owners, Tensor, *tensors - {Tensor}], self.ran, self.called):
            at = f"{name(lookup.table)}[{lookup.name!r}]"
            kind = "class" if isinstance(lookup.owner, type) else "module"
            text = f"attribute {lookup.name!r} of {kind} {lookup.owner.__name__}"
            if lookup.absent:
                self.add(f"{lookup.name!r} not in {name(lookup.table)}", f"that there is no {text}")
            else:
                self.add(f"{at} is {name(lookup.value)}", text)

    def _distinct(self) -> None:
        """Guard that no mutable object is reached by two expressions that were distinct objects."""
        mutable = [
            s for s in self.reached.values()
            if s.before.kind in _MUTABLE_KINDS
            and (self.grads or s.fixed or not s.expr.endswith("._node.grad"))
        ]  # fmt: skip
        for kind in {type(s.obj): None for s in mutable if not s.fixed}:
            places = [s.expr for s in mutable if not s.fixed and type(s.obj) is kind]
            every = self.ids(places)
            fixed = frozenset(id(s.obj) for s in mutable if s.fixed and type(s.obj) is kind)
            text = f"that no {kind.__name__} is given twice, or is one that the code finds elsewhere"
            if len(places) == 2:
                self.add(f"{places[0]} is not {places[1]}", text)
            elif len(places) > 2:
                self.add(f"len({{{every}}}) == {len(places)}", text)
            if fixed:
                self.add(f"{self.reach.name(fixed)}.isdisjoint(({every},))", text)

    def ids(self, places: Sequence[str]) -> str:
        """Return the code of the ids of what is at these places, between commas."""
        return ids(places, self.reach.constants, self.reach.name)

    def add(self, code: str, text: str, on_mutation_only: bool = False) -> None:
        """Add a condition."""
        self.guards.append(
            Guard(code=code, text=text, on_mutation_only=on_mutation_only, locations=self._locations)
        )

    def _modes(self) -> None:
        name, modes = self.reach.name, self.reach.global_modes
        self.add(f"grad_enabled() is {modes.grad_mode}", "whether gradients are recorded")
        entered, device = modes.default_device
        default = "chosen[0] is None" if device is None else f"chosen[0] == {name(device)}"
        self.add(f"entered() == {name(entered)} and {default}", "the default device")
        self.add(f"dtypes.default_float is {name(modes.default_dtype)}", "the default dtype")
        self.add(f"autocast() is {name(modes.autocast)}", "autocast")
        preferred = name(modes.preferred_kernels)
        self.add(f"preferred() is {preferred} or preferred() == {preferred}", "preferred kernels")
        self.add(f"precision[0] == {modes.matmul_precision!r}", "the precision of products")
        if modes.mesh_policy.was_consulted():
            known = name(modes.mesh_policy.policy)
            self.add(f"mesh_policy() is {known}", "explicit() and implicit_replication()")
        self.add(f"everywhere == {name({**EVERYWHERE})}", "the hooks of every module", True)

    def _child(
        self, at: str, value: Any, tracked: TrackedObject | None, text: str, on_mutation_only: bool = False
    ) -> None:
        if tracked is None:
            self._scalar(at, value, text, on_mutation_only)
        elif tracked.fixed:
            self.add(f"{at} is {tracked.expr}", text, on_mutation_only)
        elif at != tracked.expr:
            self.add(f"{at} is {tracked.expr}", f"that {text} is {describe_object(tracked)}")
        else:
            self.add(f"type({at}) is {self.reach.name(type(value))}", f"the type of {text}")

    def _prologue_number(self, at: str, value: Any, text: str) -> None:
        """Guard the type at a location of the prologue: its numbers may have any value."""
        self.add(f"type({at}) is {type(value).__name__}", f"the type of {text}")
        if type(value) is tuple:
            self.add(f"len({at}) == {len(value)}", f"the length of {text}")

    def _scalar(self, at: str, value: Any, text: str, on_mutation_only: bool) -> None:
        text = f"{text}, which was {value!r}"
        if value is None or value is True or value is False or value is Ellipsis or value is NotImplemented:
            self.add(f"{at} is {value!r}", text, on_mutation_only)
        elif type(value) in (int, str, bytes):
            self.add(f"type({at}) is {type(value).__name__} and {at} == {value!r}", text, on_mutation_only)
        else:  # 0.0 is not -0.0, and NaN is NaN
            self.add(
                f"type({at}) is {self.reach.name(type(value))} and repr({at}) == {repr(value)!r}",
                text,
                on_mutation_only,
            )

    def _object(self, tracked: TrackedObject) -> None:
        before, at, on_mutation_only = tracked.before, tracked.expr, self._is_on_mutation_only(tracked)
        text = describe_object(tracked)
        if isinstance(before.state, TensorState):
            self._tensor(tracked, before.state, text)
        elif before.kind in ("sequence", "mapping") and not (tracked.fixed and type(tracked.obj) is tuple):
            keys = [ref.access.key for ref, _ in tracked.children if isinstance(ref.access, KeyAccess)]
            if before.kind == "sequence":
                self.add(f"len({at}) == {before.state[0][0]}", f"the length of {text}", on_mutation_only)
                if isinstance(tracked.obj, deque) and not tracked.fixed:  # of which this is never another
                    self.add(f"{at}.maxlen == {tracked.obj.maxlen}", f"how many items {text} keeps")
            elif not keys and tracked.fixed and type(tracked.obj) is dict and not on_mutation_only:
                self._empty.append(tracked)
            elif all(map(is_scalar, keys)) or not any(
                is_prologue_number(self.prologue, tracked, ref)
                and (id(tracked.obj), ref.key) not in self.prologue.slots
                for ref, _ in tracked.children
            ):
                self._keys(at, keys, f"the keys of {text}", on_mutation_only)
        elif before.kind == "set" and not (tracked.fixed and isinstance(tracked.obj, frozenset)):
            self._keys(at, [v for _, v in before.state[0]], text, on_mutation_only)
        if isinstance(tracked.obj, FunctionType) and before.extra_guards:
            self._function(tracked, tracked.obj, text, on_mutation_only)
        for guard in before.extra_guards:
            k = self.reach.name(guard.value())
            self.add(guard.code.format(at=at, k=k), f"{guard.text} of {text}", on_mutation_only)
        if self._list_items(tracked, text, on_mutation_only):
            return
        for ref, child in tracked.children:
            if ref.constant:
                continue
            if (id(tracked.obj), ref.key) in self.prologue.slots:
                self._prologue_number(
                    self.reach.access(tracked, ref), ref.value, f"{describe_ref(ref)} of {text}"
                )
                continue
            of_script = is_prologue_number(self.prologue, tracked, ref)
            if of_script and not (self.strict and isinstance(tracked.obj, dict) and "params" in tracked.obj):
                continue
            if tracked.fixed and ref.stable and child is None:
                continue
            if child is not None and (
                id(child.obj) not in self.reached or (child.fixed and tracked.fixed and ref.stable)
            ):
                continue
            if ref.key == "grad" and (not self.grads or id(tracked.obj) in self.overwritten):
                continue
            access = self.reach.access(tracked, ref)
            if child is None or type(ref.value) is tuple:
                self._locations = number_locations(tracked, (ref,))
            uncounted = type(tracked.obj) is CountedDict and type(ref.value) in NUMBERS
            self._child(
                access, ref.value, child, f"{describe_ref(ref)} of {text}", on_mutation_only and not uncounted
            )
            self._locations = ()

    def _keys(self, at: str, keys: list[Any], text: str, on_mutation_only: bool) -> None:
        """Guard the keys of a dict, or the items of a set, and their order: code may iterate over them."""
        kinds = [*map(type, keys)]
        if all(kind in _EXACTLY_COMPARED for kind in kinds):
            name = self.reach.name
            self.add(
                f"[*{at}] == {name(keys)} and [*map(type, {at})] == {name(kinds)}", text, on_mutation_only
            )
        else:
            self.add(f"same_items({at}, {self.reach.name(keys)})", text, on_mutation_only)

    def _function(
        self, tracked: TrackedObject, function: FunctionType, text: str, on_mutation_only: bool
    ) -> None:
        """Guard the globals and defaults of a function; the values of defaults are children."""
        at, name = tracked.expr, self.reach.name
        if not tracked.fixed:
            self.add(
                f"{at}.__globals__ is {name(function.__globals__)}",
                f"the globals of {text}",
                on_mutation_only,
            )
        for kind in ("__defaults__", "__kwdefaults__"):
            value = getattr(function, kind)
            if not tracked.fixed:
                self.add(
                    f"len({at}.{kind} or ()) == {len(value or ())}", f"the {kind} of {text}", on_mutation_only
                )
            elif value:
                self.add(f"{at}.{kind} is {name(value)}", f"the {kind} of {text}", on_mutation_only)

    def _list_items(self, tracked: TrackedObject, text: str, on_mutation_only: bool) -> bool:
        """Guard a list of scalars by one condition; return whether it is one."""
        if type(tracked.obj) is not list or len(tracked.children) < _MIN_LIST_GUARD_ITEMS:
            return False
        for ref, child in tracked.children:
            if child is not None or (id(tracked.obj), ref.key) in self.prologue.slots:
                return False
        values = [ref.value for ref, _ in tracked.children]
        kinds, at, name = [type(v) for v in values], tracked.expr, self.reach.name
        condition = f"[*map(type, {at})] == {name(kinds)}"
        if any(kind not in _EXACTLY_COMPARED for kind in kinds):  # 0.0 is not -0.0, and NaN is NaN
            condition = f"{condition} and [*map(repr, {at})] == {name([*map(repr, values)])}"
        else:
            condition = f"{condition} and {at} == {name(values)}"
        self._locations = number_locations(tracked, [ref for ref, _ in tracked.children])
        self.add(condition, f"the items of {text}", on_mutation_only)
        self._locations = ()
        return True

    def _is_on_mutation_only(self, tracked: TrackedObject) -> bool:
        """Return whether an object changes only with the mutation counter."""
        counted = tracked.before.kind == "counted" or type(tracked.obj) is CountedDict
        return tracked.fixed and (counted or id(tracked.obj) in self._counted_tables)

    def _tensor(self, tracked: TrackedObject, state: TensorState, text: str) -> None:
        at, name = tracked.expr, self.reach.name
        # A fixed tensor changes its type or requires_grad with the mutation counter, and its shape never.
        self.add(
            f"{at}._vtype is {name(state.vtype)}",
            f"the dtype and device of {text}, {state.vtype}",
            tracked.fixed,
        )
        if not tracked.fixed:
            self._shape(at, state.value.shape, text)
        if state.node is None:
            is_parameter = isinstance(tracked.obj, Parameter)
            asks = isinstance(tracked.obj._node, Leaf)  # by now: it may have had a gradient before
            none = (
                f" and ({at}.grad is None) is {asks or tracked.obj.grad is None}"
                if is_parameter or asks
                else ""
            )
            self.add(f"{at}._node is None{none}", f"that {text} requires no gradient", is_parameter)
        elif isinstance(state.node, Leaf):
            if tracked.fixed:
                self.add(f"{at}._node is {name(state.node)}", f"that {text} requires a gradient", True)
            else:
                self.add(f"type({at}._node) is Leaf", f"that {text} requires a gradient")
            code = f"len(getattr({at}._node, 'hooks', ())) == {state.hooks}"
            self.add(code, f"the hooks of {text}", tracked.fixed)
        else:
            self.add(f"type({at}._node) not in (NoneType, Leaf)", f"that {text} has a history")

    def _shape(self, at: str, shape: tuple[int, ...], text: str) -> None:
        symbolic = {
            k for k in range(len(shape)) if f"{at}._value.shape[{k}]" in self.shape_env.symbols.values()
        }
        if not symbolic:
            lengths = tuple(shape)  # a device's own shapes may print otherwise
            self.add(f"{at}._value.shape == {lengths!r}", f"the shape of {text}, {lengths}")
            return
        self.add(f"len({at}._value.shape) == {len(shape)}", f"the rank of {text}, {len(shape)}")
        for k in set(range(len(shape))) - symbolic:
            self.add(f"{at}._value.shape[{k}] == {shape[k]}", f"the length of axis {k} of {text}, {shape[k]}")

    def define_names(self, body: str) -> None:
        """Put the definition of each local name before the first guard that has it, or behind all guards.

        ``body`` is the code that comes after them.
        """
        defined: set[str] = set()
        guards: list[Guard] = []
        for guard in self.guards:
            guards += [_definition(*each) for each in self.reach.definitions(guard.code, defined)]
            guards.append(guard)
        self.guards = guards + [_definition(*each) for each in self.reach.definitions(body, defined)]

    def emit_head(self) -> list[str]:
        """Return the first lines of a cache entry's code: arguments by name, then the check of the guards."""
        always = " and ".join(f"({g.code})" for g in self.guards if not g.on_mutation_only)
        text = ["def replay(a, k):", "    try:", *self._bind_names("        ")]
        text += [f"        if not ({always}):", "            return GUARD_MISS"]
        if any(g.on_mutation_only for g in self.guards):
            text += ["        now = mutation_counter[0]", "        if now != checked[0]:"]
            text += [
                "            if not unchanged(a, k):",
                "                return GUARD_MISS",
                "            checked[0] = now",
            ]
        return [
            *text,
            "    except (LookupError, AttributeError, TypeError, ValueError):",
            "        return GUARD_MISS",
        ]

    def emit_on_mutation(self) -> str:
        """Return the code of ``unchanged``, which checks the guards behind the mutation counter."""
        on_mutation_only = " and ".join(f"({g.code})" for g in self.guards if g.on_mutation_only)
        names = self.reach.definitions(on_mutation_only, set())
        lines = [*self._bind_names("    "), *[f"    {name} = {at}" for name, at in names]]
        return "\n".join(["def unchanged(a, k):", *lines, f"    return {on_mutation_only or True}", ""])

    def emit_eager_head(self) -> str:
        """Return the code of ``left_to_python``, which finds calls that Python runs anyway.

        It checks the guards of arguments and modes, and ``holds``, all of them, where the mutation counter
        has moved.
        """
        bound: set[str] = set()
        checked = []
        for guard in self.guards:
            inner = {*LOCAL_NAME.findall(guard.code)} - {guard.code[1:].partition(" :=")[0]}
            if guard.on_mutation_only or not inner <= bound or not _is_of_arguments(guard):
                continue
            bound |= {*LOCAL_NAME.findall(guard.code)} if guard.binds else set()
            checked.append(f"({guard.code})")
        return "\n".join(
            [
                "def left_to_python(a, k):",
                "    try:",
                *self._bind_names("        "),
                f"        if not ({' and '.join(checked) or True}):",
                "            return GUARD_MISS",
                "        now = mutation_counter[0]",
                "        if now != checked[0]:",
                "            if not holds(a, k):",
                "                return GUARD_MISS",
                "            checked[0] = now",
                "    except (LookupError, AttributeError, TypeError, ValueError):",
                "        return GUARD_MISS",
                "    return FALL_BACK",
                "",
            ]
        )

    def _bind_names(self, depth: str) -> list[str]:
        count = sum(isinstance(ref.key, int) for ref in self.reach.arguments)
        lines = [f"{depth}{''.join(f'x{n}, ' for n in range(count))}= a"] if count else []
        symbols = self.shape_env.symbols
        names = self.reach.definitions(" ".join(symbols.values()), set())
        return lines + [f"{depth}{name} = {at}" for name, at in (*names, *symbols.items())]


def _is_of_arguments(guard: Guard) -> bool:
    """Return whether a guard looks at arguments and modes only, into no other object."""
    return not (_LOOKS_INTO_CONSTANT.search(guard.code) or guard.text.startswith("attribute "))


def _definition(name: str, at: str) -> Guard:
    return Guard(code=f"[{name} := {at}]", text=f"that there is something at {at}", binds=True)
