"""``Module``: parameters, buffers and submodules under one roof, with PyTorch's names and meaning.

Moving or loading a module changes what its cells hold, never the cells themselves: an optimizer or another
module that shares a parameter goes on with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Self

from ..compat import torch_names
from ..dtypes import definition as dt
from ..ops.argument_kinds import shown
from ..ops.call_errors import ArgumentTypeError, tell_form_of, with_form_of_class
from ..ops.creation.creation import empty, zeros_like
from ..system.late_binding import LateFunction
from ..tensor.tensor import Leaf, Tensor
from ..tracing.mutation_counter import bump_mutation_counter
from .hooks import EVERYWHERE, Hook, Hooks, Registered, RemovableHandle
from .hooks import call as call_hooked
from .module_to import move
from .parameter import Parameter, hold, stored
from .state_dict import LoadResult, load_state, saved_state

_compile: Final = LateFunction("compile")
_TABLES: Final = ("_parameters", "_buffers", "_modules")


def _no_forward(self: Module, *args: Any, **kwargs: Any) -> Any:
    """Compute the module's result. Every module supplies its own."""
    raise NotImplementedError(f"{type(self).__name__} has no forward(); define what it computes.")


class Module:
    """Base of all models and layers: assign parameters and modules in ``__init__``, write ``forward``.

    >>> import tensorbus as tb
    >>> class Scale(tb.nn.Module):
    ...     def __init__(self) -> None:
    ...         super().__init__()
    ...         self.factor = tb.nn.Parameter(tb.ones((1,)))
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> [name for name, _ in Scale().named_parameters()]
    ['factor']
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _transient: set[str]
    _hooks: Hooks
    forward: Callable[..., Any] = _no_forward

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        tell_form_of(cls)

    @with_form_of_class
    def __init__(self) -> None:
        # Into __dict__ directly: __setattr__ below reads these very entries.
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _modules={}, _transient=set(), _hooks=Hooks()
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what ``forward`` returns, and what hooks make of it."""
        hooks = self.__dict__.get("_hooks")
        if hooks or EVERYWHERE:
            if hooks and hooks.compiled is not None:
                return hooks.compiled(*args, **kwargs)
            return call_hooked(self, hooks or Hooks(), args, kwargs)
        return self.forward(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Do what a call does, without what was compiled of it."""
        return call_hooked(self, self._hooks, args, kwargs)

    def compile(self, **options: Any) -> None:
        """Compile this module where it is: calls run it as ``tb.compile`` does, with its ``options``.

        Its class, its state and its names stay what they are. Of a model of many equal blocks, blocks that
        are compiled so take less time to compile than the whole.

        >>> import tensorbus as tb
        >>> model = tb.nn.Sequential(tb.nn.Linear(2, 2), tb.nn.ReLU())
        >>> model.compile()
        >>> model(tb.ones((1, 2))).shape
        (1, 2)
        """
        self._hooks.compiled = _compile(self._run, **options)
        bump_mutation_counter()

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        for table in _TABLES:
            entries = own.get(table)
            if entries and name in entries:
                return entries[name]
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        raise AttributeError(message + torch_names.of_module(name), name=name, obj=self)

    def __setattr__(self, name: str, value: Any) -> None:
        bump_mutation_counter()
        tables = [self.__dict__.get(table) for table in _TABLES]
        kinds: tuple[type, ...] = (Parameter, Tensor, Module)
        home = 0 if isinstance(value, Parameter) else 2 if isinstance(value, Module) else None
        if home is not None:
            if tables[home] is None:
                raise AttributeError(
                    f"call super().__init__() in {type(self).__name__} before assigning {name!r}."
                )
            self.__dict__.pop(name, None)
            for place, table in enumerate(tables):
                if table is not None and place != home:
                    table.pop(name, None)
            self._table(home)[name] = value
            return
        for table, kind in zip(tables, kinds, strict=True):
            if table is not None and name in table:
                if value is not None and not isinstance(value, kind):
                    raise TypeError(
                        f"{type(self).__name__}.{name} holds a {kind.__name__} or None, got"
                        f" {type(value).__name__};"
                        f" assign such a one, or delete the attribute first."
                    )
                table[name] = value
                return
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        bump_mutation_counter()
        for table in _TABLES:
            if name in self.__dict__.get(table, ()):
                del self.__dict__[table][name]
                self._transient.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted(
            {*super().__dir__(), *(name for table in _TABLES for name in self.__dict__.get(table, ()))}
        )

    def _table(self, place: int) -> dict[str, Any]:
        table: dict[str, Any] = self.__dict__[_TABLES[place]]
        return table

    def _check_name(self, what: str, name: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(
                f"call super().__init__() in {type(self).__name__} before registering {name!r}."
            )
        if not isinstance(name, str):
            raise TypeError(f"the name of a {what} is a string, got {type(name).__name__}.")
        if not name or "." in name:
            raise KeyError(f"the name of a {what} is not empty and has no dot, got {name!r}.")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or a place for one (None). ``KeyError`` where the name is taken."""
        self._register(0, "parameter", name, param, Parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is not learned; one that is not ``persistent`` stays out of state dicts."""
        self._register(1, "buffer", name, tensor, Tensor)
        if persistent:
            self._transient.discard(name)
        else:
            self._transient.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a submodule. ``KeyError`` where the name is taken."""
        self._register(2, "module", name, module, Module)

    add_module = register_module

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args[, kwargs])`` before ``forward``; what it returns replaces them."""
        return RemovableHandle(self._hooks.before).add(Registered(hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args[, kwargs], out)`` after ``forward``; what it returns replaces the result.

        With ``always_call`` also where something raised.
        """
        return RemovableHandle(self._hooks.after).add(Registered(hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` when both are known; both are tuples.

        What it returns replaces the gradient of the module's only tensor argument.
        """
        return RemovableHandle(self._hooks.back).add(Registered(hook), prepend)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before gradients go back through the module; it gets a tuple.

        What it returns replaces the gradient of the module's result, where that is one tensor.
        """
        return RemovableHandle(self._hooks.left).add(Registered(hook), prepend)

    def _register(self, place: int, what: str, name: str, value: Any, kind: type) -> None:
        self._check_name(what, name)
        if name not in self._table(place) and hasattr(self, name):
            raise KeyError(f"{type(self).__name__} already has an attribute {name!r}; choose another name.")
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"a {what} is a {kind.__name__} or None, got {type(value).__name__}.")
        self._table(place)[name] = value
        bump_mutation_counter()

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield this module and all below it with their dotted names, each module once."""
        yield from self._walk(prefix, set())

    def _walk(self, prefix: str, seen: set[int]) -> Iterator[tuple[str, Module]]:
        if id(self) in seen:
            return
        seen.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child._walk(f"{prefix}.{name}" if prefix else name, seen)

    def modules(self) -> Iterator[Module]:
        """Yield this module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Yield the modules directly below, each once."""
        seen: set[int] = set()
        for name, child in self._modules.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Module]:
        """Yield the modules directly below, each once."""
        return (child for _, child in self.named_children())

    def _named(self, place: int, prefix: str, recurse: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix) if recurse else [(prefix, self)]:
            for name, cell in module._table(place).items():
                if cell is not None and id(cell) not in seen:
                    seen.add(id(cell))
                    yield (f"{path}.{name}" if path else name), cell

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield parameters with their dotted names, each once."""
        return self._named(0, prefix, recurse)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Yield parameters, each once."""
        return (cell for _, cell in self._named(0, "", recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Tensor]]:
        """Yield buffers with their dotted names, each once."""
        return self._named(1, prefix, recurse)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Yield buffers, each once."""
        return (cell for _, cell in self._named(1, "", recurse))

    def get_submodule(self, target: str) -> Module:
        """Return the module of a dotted name. Raises ``AttributeError`` where there is none."""
        if not isinstance(target, str):
            raise ArgumentTypeError(f"get_submodule: 'target' must be a text, got {shown(target)}.")
        module: Module = self
        for name in target.split(".") if target else ():
            child = getattr(module, name)
            if not isinstance(child, Module):
                raise AttributeError(f"{type(self).__name__}: {name!r} in {target!r} is no module.")
            module = child
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put ``module`` where a dotted name says; with ``strict`` only in the place of another.

        Raises ``AttributeError`` where the path, or with ``strict`` the place, is not there.

        >>> import tensorbus as tb
        >>> net = tb.nn.Sequential(tb.nn.Linear(2, 2), tb.nn.ReLU())
        >>> net.set_submodule("1", tb.nn.Tanh())
        >>> net[1]
        Tanh()
        """
        if not isinstance(module, Module):
            raise TypeError(f"set_submodule: a module is needed, got {type(module).__name__}.")
        path, _, name = target.rpartition(".")
        self._check_name("module", name)
        home = self.get_submodule(path)
        if strict and not isinstance(getattr(home, name), Module):
            raise AttributeError(f"{type(self).__name__}: {target!r} is no module.")
        setattr(home, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """Return the parameter of a dotted name. Raises ``AttributeError`` where there is none."""
        path, _, name = target.rpartition(".")
        parameter = self.get_submodule(path)._parameters.get(name)
        if parameter is None:
            raise AttributeError(f"{type(self).__name__} has no parameter {target!r}.")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """Return the buffer of a dotted name. Raises ``AttributeError`` where there is none."""
        path, _, name = target.rpartition(".")
        buffer = self.get_submodule(path)._buffers.get(name)
        if buffer is None:
            raise AttributeError(f"{type(self).__name__} has no buffer {target!r}.")
        return buffer

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call ``fn`` on every module below and then on this one; return this one."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode here and below: dropout drops, batch normalization gathers statistics."""
        if not isinstance(mode, bool):
            raise TypeError(f"train: the mode is a bool, got {mode!r}.")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode: ``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make every parameter require a gradient, or none."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zeros."""
        zero_grad(self.parameters(), set_to_none)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move to another device, another floating-point dtype, or both; return the module.

        Integers keep their dtype.

        ``m.to("opencl")``, ``m.to(tb.bfloat16)``, ``m.to(device, dtype)``, ``m.to(tensor)``. Where one tensor
        cannot move, none does. Raises ``DtypeError`` for a dtype that is not floating-point.
        """
        move((*map(stored, self.parameters()), *self.buffers()), *args, **kwargs)
        return self

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Move to another device and leave values behind: what parameters and buffers hold is anything.

        Gradients are forgotten. A module made on ``"meta"``, which has shapes only, gets memory so;
        ``reset_parameters`` of its modules, or a state dict, then gives it values.

        >>> import tensorbus as tb
        >>> with tb.device("meta"):
        ...     layer = tb.nn.Linear(3, 2)
        >>> layer.to_empty(device="cpu").reset_parameters()
        >>> layer(tb.ones((1, 3), device="cpu")).shape
        (1, 2)
        """
        cells = [*map(stored, self.parameters(recurse)), *self.buffers(recurse)]
        values = [_empty_as(x, device) for x in cells]
        zero_grad(cells, set_to_none=True)
        for cell, value in zip(cells, values, strict=True):
            hold(cell, value)
        return self

    def float(self) -> Self:
        """Move to float32: ``to(tb.float32)``."""
        return self.to(dt.float32)

    def double(self) -> Self:
        """Move to float64."""
        return self.to(dt.float64)

    def half(self) -> Self:
        """Move to float16."""
        return self.to(dt.float16)

    def bfloat16(self) -> Self:
        """Move to bfloat16."""
        return self.to(dt.bfloat16)

    def get_extra_state(self) -> Any:
        """Return what else a state dict should have of this module. Modules that need it supply it."""
        raise NotImplementedError(f"{type(self).__name__} has no get_extra_state(); write what it keeps.")

    def set_extra_state(self, state: Any) -> None:
        """Take over what ``get_extra_state`` returned. Modules that supply that one supply this one."""
        raise NotImplementedError(f"{type(self).__name__} has no set_extra_state(); write what it takes.")

    def state_dict(self, *, prefix: str = "") -> dict[str, Any]:
        """Return parameters and persistent buffers by dotted name, with the values of now.

        What a module's ``get_extra_state`` returns comes under its name and ``"_extra_state"``.
        """
        return saved_state(self, prefix)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> LoadResult:
        """Take over the values of ``state_dict``, in each parameter's own dtype and on its own device.

        With ``assign`` in the dtype and on the device that the state dict has them, without a copy: for a
        module made on ``"meta"``. Returns the missing and the unexpected keys, which must be none where
        ``strict``. Raises ``StateError`` naming every key that is missing, unexpected or of a wrong shape,
        and then has changed nothing.

        >>> import tensorbus as tb
        >>> saved = tb.nn.Linear(3, 2, device="cpu").state_dict()
        >>> layer = tb.nn.Linear(3, 2, device="meta")
        >>> layer.load_state_dict(saved, assign=True).missing_keys, layer.weight.device
        ([], Device('cpu:0'))
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict: a dict of tensors is needed, got {type(state_dict).__name__}.")
        return load_state(self, state_dict, strict, assign)

    def extra_repr(self) -> str:
        """Return what ``repr`` shows of this module between its brackets."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        below = [f"({name}): {_indented(repr(child))}" for name, child in self._modules.items()]
        if not below and len(lines) <= 1:
            return f"{type(self).__name__}({extra})"
        return f"{type(self).__name__}(\n  " + "\n  ".join([*lines, *below]) + "\n)"


def zero_grad(parameters: Iterable[Tensor], set_to_none: bool) -> None:
    """Forget gradients, or make them zeros."""
    for parameter in parameters:
        if set_to_none:  # whatever it was, so that a captured program need not know
            if isinstance(parameter._node, Leaf) or parameter.grad is not None:
                parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad = zeros_like(parameter.grad)


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _empty_as(x: Tensor, device: Any) -> Tensor:
    """Return a tensor of the shape and dtype of ``x`` on another device, divided among ranks as ``x`` is."""
    kind: Any = x._vtype.cell
    if kind is not None:
        part: Tensor = kind._empty_as(x, device)
        return part
    result: Tensor = empty(x.shape, dtype=x.dtype, device=device)
    return result
