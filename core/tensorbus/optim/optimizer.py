"""``Optimizer``: parameter groups, state for each parameter, and a step that rebinds cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict

from ..autograd.engine import enable_grad, no_grad
from ..dispatch.modes import spread_like
from ..errors import ArgumentError, StateError
from ..ops.argument_kinds import shown
from ..ops.call_errors import tell_form_of
from ..ops.creation.creation import zeros_like
from ..ops.elementwise.complex import view_as_complex, view_as_real
from ..tensor.leaf import HookHandle
from ..tensor.tensor import Leaf, Tensor
from ..tracing import host_prologue
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import unprofiled
from ..tracing.mutation_counter import CountedDict
from .fused_update import UpdateBatch
from .step_hooks import StepHook, around

Parameters = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]
Group = dict[str, Any]
State = dict[str, Any]
SCHEDULED = ("lr", "momentum", "betas")
"""The settings that schedules change from step to step."""


def at_least(optimizer: str, least: float, **settings: Any) -> None:
    """Raise ``ArgumentError`` for a setting that is no number or below ``least``; a tensor of one is read."""
    for name, value in settings.items():
        if isinstance(value, Tensor) and value.size == 1 and not value.dtype.is_complex:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= least:
            raise ArgumentError(f"{optimizer}: {name} must be a number >= {least}, got {value!r}.")


def refuse_complex(name: str, group: Group) -> None:
    """Raise ``ArgumentError`` for complex parameters, whose parts are no rows and columns."""
    for parameter in group["params"]:
        if parameter.dtype.is_complex:
            raise ArgumentError(
                f"{name}: parameters are real, got one of {parameter.dtype}; give it to Adam, or optimize its"
                " view_as_real."
            )


class Choices(TypedDict, total=False):
    """Options by which PyTorch chooses how a step runs."""

    foreach: bool | None
    fused: bool | None
    capturable: bool
    differentiable: bool


class Optimizer:
    """Base of optimizers, as in PyTorch, with the same groups, state and state dicts.

    ``params`` are tensors, pairs of name and tensor, or dicts of ``"params"`` and the settings that differ
    from ``defaults``. A subclass writes ``update(parameter, gradient, state, group)``, which runs without
    recording history and returns the parameter's next value. A complex parameter, its gradient and its state
    come to ``update`` as real tensors with the parts along a last axis of 2. Or it writes ``step()``, as
    PyTorch's do, where ``state[parameter]`` is an empty dict at first. A tensor of one element as ``lr``
    is read at each step, which waits for the device. Raises ``ArgumentError`` for no
    parameters, one given twice, or one that is no leaf; ``TypeError`` for what is no tensor.

    >>> import tensorbus as tb
    >>> class SignMomentum(tb.optim.Optimizer):
    ...     def __init__(self, params, lr=0.1, momentum=0.5):
    ...         super().__init__(params, {"lr": lr, "momentum": momentum})
    ...
    ...     def first_state(self, parameter, group):
    ...         return {"average": tb.zeros_like(parameter)}
    ...
    ...     def update(self, parameter, gradient, state, group):
    ...         if not state:
    ...             state.update(self.first_state(parameter, group))
    ...         state["average"] = state["average"] * group["momentum"] + gradient
    ...         return parameter - tb.sign(state["average"]) * group["lr"]
    >>> x = tb.asarray([2.0, -1.0]).requires_grad_()
    >>> optimizer = SignMomentum([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [1.5, -0.5]

    ``foreach``, ``fused`` and ``capturable`` choose an implementation in PyTorch: they change no result here.
    ``differentiable=True`` is refused, as steps record no history.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        tell_form_of(cls)

    def __init__(
        self, params: Parameters, defaults: dict[str, Any], *, foreach: bool | None = None,
        fused: bool | None = None, capturable: bool = False, differentiable: bool = False,
    ) -> None:  # fmt: skip
        self._refuse(differentiable)
        if isinstance(params, Tensor):
            raise TypeError(
                f"{type(self).__name__}: params is an iterable of tensors, got one tensor; put it in a list."
            )
        if hasattr(params, "parameters"):
            raise TypeError(
                f"{type(self).__name__}: params is an iterable of tensors, got {shown(params)}; pass its"
                " parameters()."
            )
        self.defaults = defaults
        self.state: dict[Tensor, State] = self._no_state()
        self.param_groups: list[Group] = []
        entries: list[Any] = list(params)
        if not entries:
            raise ArgumentError(f"{type(self).__name__}: no parameters to optimize were given.")
        for group in entries if isinstance(entries[0], dict) else [{"params": entries}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Any) -> None:
        """Add parameters with settings of their own; what is not set is as in ``defaults``."""
        name = type(self).__name__
        if not isinstance(param_group, dict) or "params" not in param_group:
            raise TypeError(f"{name}: a parameter group is a dict with 'params', got {param_group!r}.")
        self._refuse(param_group.get("differentiable"))
        params = param_group["params"]
        listed: list[Any] = [params] if isinstance(params, Tensor) else list(params)
        named = bool(listed) and isinstance(listed[0], tuple)
        tensors = [pair[1] for pair in listed] if named else listed
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for place, parameter in enumerate(tensors):
            if not isinstance(parameter, Tensor):
                raise TypeError(
                    f"{name}: parameter {place} is a {type(parameter).__name__}, and must be a tensor."
                )
            if not parameter.is_leaf:
                raise ArgumentError(
                    f"{name}: parameter {place} is the result of an op; only leaves are optimized."
                )
            if id(parameter) in known:
                raise ArgumentError(
                    f"{name}: parameter {place} of shape {parameter.shape} was already given."
                )
            known.add(id(parameter))
        group = {**self.defaults, **param_group, "params": tensors}
        if named:
            group["param_names"] = [pair[0] for pair in listed]
        self.check(group)
        self.param_groups.append(group)

    def _refuse(self, differentiable: Any) -> None:
        if differentiable:
            raise ArgumentError(
                f"{type(self).__name__}: differentiable=True is not supported, as steps record no history;"
                " compute new values with ops, from gradients made with create_graph=True."
            )

    def _no_state(self) -> dict[Tensor, State]:
        """Return the state before the first step: a subclass without ``update`` finds empty dicts in it."""
        return defaultdict(dict) if type(self).update is Optimizer.update else CountedDict()

    def check(self, group: Group) -> None:
        """Raise ``ArgumentError`` for settings that are out of range. Subclasses supply it."""

    def update(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return the parameter's next value. Subclasses supply it.

        ``state`` is empty at a parameter's first step, unless ``compile`` made it: an update that has a
        ``first_state`` puts it there. What it stores in ``state`` is there at the next step. ``group``
        is a copy for one step, whose ``"shared"`` is a dict for what its parameters have in common.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update(); write how a parameter changes.")

    def first_state(self, parameter: Tensor, group: Group) -> State:
        """Return the state of a parameter before its first step; ``update`` calls it for an empty ``state``.

        Subclasses that can tell it without a gradient supply it: ``compile`` makes it before it captures the
        first step, so that one program serves all steps. No two entries may be the same tensor.
        """
        return {}

    def begin(self, parameter: Tensor, group: Group) -> State:
        """Return the ``first_state`` as it is kept: that of a complex parameter's parts is joined."""
        if not parameter.dtype.is_complex:
            return self.first_state(parameter, group)
        parts = view_as_real(parameter)
        state = self.first_state(parts, group)
        _join(state, parts)
        return state

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients of all parameters to None, or to zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:  # whatever it was, so that a captured program need not know
                    if isinstance(parameter._node, Leaf) or parameter.grad is not None:
                        parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad = zeros_like(parameter.grad)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change every parameter that has a gradient; return what ``closure`` (run first) returned.

        All new values are computed before the first is stored: a step that fails, for lack of memory say,
        leaves parameters and state as they were.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            if self._is_own():
                unprofiled(self._change)
            else:
                self._change()
        return loss

    def register_step_pre_hook(self, hook: StepHook) -> HookHandle:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may return new ``(args, kwargs)``.

        These are the arguments of ``step``, the optimizer first, as in PyTorch.
        """
        return around(self, "before", hook)

    def register_step_post_hook(self, hook: StepHook) -> HookHandle:
        """Call ``hook(optimizer, args, kwargs)`` after each step, with the arguments that the step had."""
        return around(self, "after", hook)

    def _is_own(self) -> bool:
        """Return whether a step runs nothing of the user's."""
        written = type(self).__module__, type(self).update.__module__
        plain = "update" not in vars(self) and all(type(group) is dict for group in self.param_groups)
        return plain and all(name.startswith("tensorbus.") for name in written)

    def _change(self) -> None:
        host_prologue.note_optimizer_step(self.state)
        if active_modes or not self._is_own() or self._has_complex():
            self._rebind(self._changes())
            return
        with UpdateBatch():
            changes = self._changes()
        self._rebind(changes)

    def _has_complex(self) -> bool:
        return any(p.dtype.is_complex for group in self.param_groups for p in group["params"])

    def _changes(self) -> list[tuple[Tensor, Tensor, State]]:
        """Return each parameter that has a gradient, its next value, and its next state."""
        changes = []
        for group in self.param_groups:
            scheduled = [key for key in SCHEDULED if not isinstance(group.get(key), Tensor)]
            settings = host_prologue.symbolic_numbers(group, scheduled) | {"shared": {}}
            for key in set(SCHEDULED).difference(scheduled):  # what the tensor holds at this step
                settings[key] = float(group[key])
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    _refuse_divided(parameter)
                else:
                    known = self.state.get(parameter, {})
                    state = host_prologue.symbolic_numbers(known, known)
                    follow(parameter, state)
                    if group.get("maximize"):
                        gradient = -gradient
                    changes.append((parameter, self._updated(parameter, gradient, state, settings), state))
        return changes

    def _rebind(self, changes: Sequence[tuple[Tensor, Tensor, State]]) -> None:
        by = f"the step of {type(self).__name__}"
        for parameter, value, state in changes:
            parameter.rebind(value, by=by)
            known = self.state.get(parameter)
            if known is None:
                known = self.state[parameter] = CountedDict()
            host_prologue.note_optimizer_step(known)
            _store(known, state)

    def _updated(self, parameter: Tensor, gradient: Tensor, state: State, group: Group) -> Tensor:
        """Return what ``update`` does; complex numbers go through it as two reals each."""
        if not parameter.dtype.is_complex:
            return self.update(parameter, gradient, state, group)
        for name, value in state.items():
            if isinstance(value, Tensor) and value.dtype.is_complex:
                state[name] = view_as_real(value)
        moved = self.update(view_as_real(parameter), view_as_real(gradient), state, group)
        _join(state, moved)
        joined: Tensor = view_as_complex(moved)
        return joined

    def state_dict(self) -> dict[str, Any]:
        """Return state and groups, parameters numbered in order: data and tensors, fit for ``tb.save``."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for parameter in group["params"]:
                numbers[id(parameter)] = len(numbers)
            groups.append({**group, "params": [numbers[id(p)] for p in group["params"]]})
        state = {
            numbers[id(parameter)]: {
                k: v.detach().clone() if isinstance(v, Tensor) else v for k, v in entries.items()
            }
            for parameter, entries in self.state.items()
        }
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Any) -> None:
        """Load state and settings, with tensors in each parameter's dtype and on its device.

        Raises ``StateError`` where the groups are of other sizes, or a state has another shape than its
        parameter, and then has changed nothing.
        """
        name = type(self).__name__
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            raise StateError(f"{name}: a state dict has 'state' and 'param_groups'.")
        saved = state_dict["param_groups"]
        sizes = (
            [len(group["params"]) for group in self.param_groups],
            [len(group["params"]) for group in saved],
        )
        if sizes[0] != sizes[1]:
            raise StateError(
                f"{name}: the state dict has groups of {sizes[1]} parameters, and the optimizer of"
                f" {sizes[0]}."
            )
        groups = []
        of: dict[Any, Tensor] = {}
        settings: dict[int, Group] = {}
        for own, other in zip(self.param_groups, saved, strict=True):
            of.update(zip(other["params"], own["params"], strict=True))
            group = {**self.defaults, **other, "params": own["params"]}
            if "param_names" in own:
                group["param_names"] = own["param_names"]
            self.check(group)
            groups.append(group)
            settings |= {id(p): group for p in own["params"]}
        state = self._no_state()
        for number, entries in state_dict["state"].items():
            if number not in of:
                raise StateError(
                    f"{name}: the state dict has state of parameter {number!r}, which no group names."
                )
            parameter = of[number]
            state[parameter] = self._fit(number, entries, parameter, settings[id(parameter)])
        self.state, self.param_groups = state, groups

    def _fit(self, number: Any, entries: State, parameter: Tensor, group: Group) -> State:
        """Return saved state as a parameter keeps it. Raises ``StateError`` for another shape."""
        shapes = {k: v.shape for k, v in entries.items() if isinstance(v, Tensor) and k != "step"}
        if any(shape != parameter.shape for shape in shapes.values()):
            self._check_shapes(number, shapes, parameter, group)
        return CountedDict({k: _fitted(k, v, parameter) for k, v in entries.items()})

    def _check_shapes(
        self, number: Any, shapes: Mapping[str, tuple[int, ...]], parameter: Tensor, group: Group
    ) -> None:
        """Raise ``StateError`` for state that is neither as the parameter nor as its first state."""
        first = self.begin(parameter, group)
        for name, shape in shapes.items():
            known = first.get(name)
            expected = known.shape if isinstance(known, Tensor) else parameter.shape
            if shape != expected:
                own = "" if expected == parameter.shape else f", which asks for {expected}"
                raise StateError(
                    f"{type(self).__name__}: {name!r} of parameter {number} has shape {shape}, and the"
                    f" parameter {parameter.shape}{own}."
                )

    def __repr__(self) -> str:
        lines = []
        for number, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {number}")
            lines += [f"    {k}: {v}" for k, v in sorted(group.items()) if k not in ("params", "param_names")]
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


def _join(state: State, parts: Tensor) -> None:
    """Make complex what has the shape of a complex parameter's parts."""
    for name, value in state.items():
        if isinstance(value, Tensor) and value.shape == parts.shape:
            state[name] = view_as_complex(value)


def _store(known: State, state: State) -> None:
    """Put new state in the place of the old: a tensor's cell stays the same."""
    for name, value in state.items():
        old = known.get(name)
        if not isinstance(value, Tensor):
            host_prologue.store_number(known, name, value)
        elif isinstance(old, Tensor) and old._value.shape == value._value.shape and (
            old._vtype is value._vtype or (old.dtype, old.device) == (value.dtype, value.device)
        ):  # fmt: skip
            if old is not value:
                old.rebind(value, by="the step of an optimizer")
        else:
            known[name] = value.detach().clone()


def follow(parameter: Tensor, state: State) -> None:
    """Move state after a parameter whose module was moved to another device or dtype since."""
    for name, value in state.items():
        if isinstance(value, Tensor) and value._vtype.materialized is not parameter._vtype.materialized:
            if name != "step":
                state[name] = value.to(parameter.device, parameter.dtype)
            elif value.device != parameter.device:
                state[name] = value.to(parameter.device)


def _fitted(name: str, value: Any, parameter: Tensor) -> Any:
    if not isinstance(value, Tensor):
        return value
    value = spread_like(value.detach(), parameter)
    return value.to(parameter.device, None if name == "step" else parameter.dtype, copy=True)


def _refuse_divided(parameter: Tensor) -> None:
    """Raise for one in whose place its module has parts, by ``fully_shard``: it never gets a gradient."""
    if "_divided" in getattr(parameter, "__dict__", ()):
        raise ArgumentError(
            f"optimizer: a parameter of shape {parameter.shape} was divided by fully_shard after the"
            f" optimizer had been made, and its module has parts in its place. Make the optimizer"
            f" afterwards, of module.parameters()."
        )
