"""``custom_op``: an op whose kernels are Python functions of tensors.

The op is an op like any other: modes, gradients, ``vmap`` and captured programs see its operands, attributes
and rules, and nothing of what its kernels do. What a call mutates is among the op's results; the cells are
rebound afterwards, so a kernel changes no value that others hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol, overload

from .. import plugins
from ..autograd import engine, views
from ..autograd.node_order import order
from ..backend_interface.protocols import Call, Kernel
from ..dispatch import kernel_preference
from ..dispatch.kernel_tables import OwnedKernel, forget_program_kernels, register_program_kernels
from ..dispatch.modes import is_value_mode
from ..dispatch.plan import new_cache, plan
from ..dtypes import definition as dt
from ..dtypes.definition import DType
from ..eager.runner import fail
from ..errors import ArgumentError, PluginError
from ..ops.definition import USER, Op, table
from ..plugins.type_name import is_type_name
from ..system import env, fork_safe_locks
from ..tensor.tensor import Tensor
from ..tracing.active_modes import active_modes
from ..tracing.active_tracer import DEFERRED_CODE
from .call_codegen import arguments_function, call_function, fast_key, has_fast_path
from .call_layout import layout_of, mutated_places, split
from .kernel_source import KernelSource, check_takes_source, preparing_source
from .rules import Definition, VmapInfo, batch_of, infer, jvp_of, learn_shapes, preparing, vjp_of, writing
from .schema import Schema, schema_of

__all__ = ["CustomOp", "VmapInfo", "custom_op", "custom_op_names", "definition_of", "get_op", "unregister"]
Function = Callable[..., Any]
_MAX_PLANS: Final = 4096
_definitions: Final[dict[str, Definition]] = {}
_functions: Final[dict[str, CustomOp]] = {}
_lock = fork_safe_locks.reentrant()


class CustomOp(Protocol):
    """An op by ``custom_op``: the function that calls it, and what registers its rules.

    ``schema`` is what it takes and returns. Each ``register_...`` returns the function that it was given, so
    it is a decorator, and may be called again: the last one counts.
    """

    schema: Schema

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the op on the device of its tensors."""
        ...

    def register_kernel(
        self, device_types: str | Collection[str], function: Function | KernelSource | None = None
    ) -> Any:
        """Register the kernel for device types: a function of the same arguments, without a history.

        Or a ``KernelSource``, source in the language of the device, where the op takes tensors, ``int``,
        ``float`` and ``bool``, which are passed as int64, float64 and a byte, and returns tensors.
        """
        ...

    def register_fake(self, function: Function) -> Function:
        """Register the shape rule: a function of the same arguments, whose tensors have no values.

        It returns a tensor, or a ``(shape, dtype)`` pair, for each result. Lengths may be symbolic.
        """
        ...

    def register_autograd(self, backward: Function, *, setup_context: Function | None = None) -> Function:
        """Register the derivative: ``backward(ctx, *grads)``, a gradient or None for each argument.

        ``setup_context(ctx, inputs, output)`` saves what it needs; ``inputs`` are all arguments in order. It
        runs when gradients are taken, on arguments and results as they were. Raises ``ArgumentError`` for an
        op that mutates.
        """
        ...

    def register_jvp(self, jvp: Function, *, setup_context: Function | None = None) -> Function:
        """Register the forward derivative: ``jvp(ctx, *tangents)``, the tangent of the result, or a tuple.

        It gets a tangent for each argument, zeros where there is none (``ctx.set_materialize_grads``), a list
        for a list, None for what is no floating tensor.
        ``setup_context`` is that of ``register_autograd`` where none is given. An op that has a derivative
        and no ``jvp`` has its backward transposed. Raises ``ArgumentError`` for an op that mutates.
        """
        ...

    def register_vmap(self, function: Function) -> Function:
        """Register the batching rule: ``function(info, in_dims, *args)`` returns ``(outputs, out_dims)``.

        ``info.batch_size`` is the number of examples; ``in_dims`` holds 0 or None for each argument, a list
        for a list. Without one, examples run one after the other, with a ``LoopWarning``.
        """
        ...

    def register_autocast(self, cast_inputs: DType | str) -> None:
        """Say what ``autocast`` casts floating operands to: ``"narrow"`` (its own), ``"wide"``, a dtype."""
        ...


@overload
def custom_op(
    name: str, function: None = None, /, *, mutates_args: Collection[str] = (),
    device_types: str | Collection[str] | None = None, ordered: bool = False,
) -> Callable[[Function], CustomOp]: ...  # fmt: skip
@overload
def custom_op(
    name: str, function: Function, /, *, mutates_args: Collection[str] = (),
    device_types: str | Collection[str] | None = None, ordered: bool = False,
) -> CustomOp: ...  # fmt: skip
def custom_op(
    name: str, function: Function | None = None, /, *, mutates_args: Collection[str] = (),
    device_types: str | Collection[str] | None = None, ordered: bool = False,
) -> Any:  # fmt: skip
    """Make an op of an annotated function of tensors, which tensorbus calls and does not look into.

    ``name`` is ``"namespace::name"``. The annotations say what it takes: ``Tensor``, ``list[Tensor]``,
    ``int``, ``float``, ``bool``, ``str``, ``DType``, a sequence of one of these such as ``list[float]``, each
    also with ``| None``; and what it returns: ``Tensor``, a tuple of tensors, ``list[Tensor]`` or None.
    ``mutates_args`` names the arguments that it changes in place. ``device_types`` are those that the
    function is the kernel for; None: all. On another one the op runs where ``register_kernel`` has given it a
    kernel, or on the host where ``tb.fallback`` allows that; else the call raises ``UnsupportedOpError``.

    It must be a function of its arguments, and return tensors of its own, no argument and no view of one:
    compiled programs run equal calls once and unused ones never. One that does more than compute, as one that
    communicates, is ``ordered``: programs do each of its calls, in the order in which they were made. Where
    it uses more than tensor functions, ``register_fake`` has to say the shapes of its results for programs
    and transforms; without it the first eager call for operands of some shapes runs the function twice.

    A second op of the name is refused, unless it is the same function of the same module, loaded again.
    Raises ``ArgumentError`` for annotations that cannot be read, ``PluginError`` for a name that is taken.

    >>> import tensorbus as tb
    >>> @tb.library.custom_op("docs::scaled")
    ... def scaled(x: tb.Tensor, k: float = 2.0) -> tb.Tensor:
    ...     return x * k
    >>> scaled.register_autograd(lambda ctx, g: (g * ctx.k, None),
    ...                          setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1]))
    <function <lambda> at ...>
    >>> x = tb.asarray([1.0, 2.0]).requires_grad_()
    >>> scaled(x, 3.0).sum().backward()
    >>> x.grad.tolist()
    [3.0, 3.0]
    >>> tb.library.unregister("docs::scaled")
    """
    if function is None:
        return lambda f: custom_op(
            name, f, mutates_args=mutates_args, device_types=device_types, ordered=ordered
        )
    _check_name(name)
    types = None if device_types is None else _device_types(name, device_types)
    definition = Definition(
        schema=schema_of(name, function, mutates_args), function=function, everywhere=types is None,
        kernels=dict.fromkeys(types or (), function), ordered=ordered, doc=function.__doc__ or "",
    )  # fmt: skip
    return define(definition)


def define(definition: Definition) -> CustomOp:
    """Return the function that calls the op. Raises ``PluginError`` where its name is taken."""
    name = definition.name
    with _lock:
        _claim(definition)
        _definitions[name] = definition
        op: CustomOp = _function(definition)
        _functions[name] = op
        _publish(definition, op)
    return op


def get_op(name: str) -> CustomOp:
    """Return the custom op of that name, one of a plugin that is not imported yet included.

    Raises ``UnsupportedOpError`` where there is none.
    """
    if name not in _functions:
        op = table[name]  # which looks for it among plugins
        if name not in _functions:
            raise ArgumentError(f"{name!r} is no custom op, but {op!r} of {table.owner(name)!r}.")
    return _functions[name]


def custom_op_names() -> list[str]:
    """Return the names of the custom ops that are defined, in order of definition."""
    return list(_definitions)


def unregister(name: str) -> None:
    """Forget a custom op: for tests, which define one many times.

    Raises ``ArgumentError`` where there is none of that name.
    """
    with _lock:
        if name not in _definitions:
            raise ArgumentError(f"no custom op is called {name!r}; there are {sorted(_definitions)}.")
        del _definitions[name], _functions[name]
        table.discard(name)
        forget_program_kernels(name)
        plugins.changed()


def definition_of(op: CustomOp | str) -> Definition:
    """Return what has been registered for an op."""
    name = op if isinstance(op, str) else getattr(getattr(op, "schema", None), "name", None)
    definition = _definitions.get(str(name))
    if definition is None:
        raise ArgumentError(f"a custom op is needed, made by tensorbus.library.custom_op; got {op!r}.")
    return definition


def _check_name(name: str) -> None:
    parts = name.split("::") if isinstance(name, str) else []
    if len(parts) != 2 or not all(part.isidentifier() and part.isascii() for part in parts):
        raise ArgumentError(
            f"custom_op: a name has the form 'namespace::name', both Python identifiers, such as"
            f" 'mylib::scale'; got {name!r}."
        )


def _device_types(name: str, device_types: str | Collection[str]) -> tuple[str, ...]:
    types = (device_types,) if isinstance(device_types, str) else tuple(device_types)
    for kind in types:
        if not isinstance(kind, str) or not is_type_name(kind):
            raise ArgumentError(
                f"{name}: {kind!r} names no device type. Installed: {', '.join(plugins.known_types())}."
            )
    return types


def _origin(function: Function) -> tuple[Any, Any]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", None)


def _claim(definition: Definition) -> None:
    """Make the name free where it is the same function's, loaded again; else refuse it."""
    name, former = definition.name, _definitions.get(definition.name)
    if former is None:
        return
    before, now = _origin(former.function), _origin(definition.function)
    if before != now:
        raise PluginError(
            f"custom op {name!r} of {now[0]}.{now[1]} is already defined by {before[0]}.{before[1]}; one of"
            f" them must choose another name, or tensorbus.library.unregister({name!r}) comes first."
        )
    unregister(name)


class _Kernels(Mapping[str, OwnedKernel]):
    """The kernels of a custom op by device type: the registered ones, then the function of all types."""

    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._sources: dict[str, Callable[[Call], Any]] = {}

    def __getitem__(self, device_type: str) -> OwnedKernel:
        definition = self._definition
        function = definition.kernels.get(device_type)
        if function is None:
            if not definition.everywhere:
                raise KeyError(device_type)
            function = definition.function
        if isinstance(function, KernelSource):
            return "the program", Kernel(name="source", prepare=self._source(device_type, function))
        into = definition.into
        return "the program", Kernel(
            name="custom", prepare=preparing(definition, function, device_type),
            out=None if into is None else writing(definition, into, device_type),
        )  # fmt: skip

    def _source(self, device_type: str, source: KernelSource) -> Callable[[Call], Any]:
        """Return what prepares the source, always the same: it knows what it has compiled."""
        if device_type not in self._sources:
            definition = self._definition
            self._sources[device_type] = preparing_source(
                definition.schema, partial(infer, definition), device_type, source
            )
        return self._sources[device_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._definition.kernels)

    def __len__(self) -> int:
        return len(self._definition.kernels)


def _publish(definition: Definition, function: Any) -> None:
    """Put the op, as it is defined now, into the table: in the place of an earlier form of it."""
    name, schema = definition.name, definition.schema
    again = name in table
    if again:
        table.discard(name)

    def shape_rule(operands: Any, **attrs: Any) -> Any:
        specs = infer(definition, operands, attrs)
        return specs[0] if schema.single else specs

    op: Op[...] = Op(
        name=name, family=USER,
        operands=tuple([p.name for p in schema.tensors]) if schema.named else ("*tensors",),
        results=schema.result_names or (() if schema.single else ("*results",)),
        arguments=arguments_function(schema, lambda values: split(schema, values)), infer=shape_rule,
        vjp=vjp_of(definition), jvp=jvp_of(definition), batch=batch_of(definition),
        decompose=definition.decompose, autocast=definition.autocast, dtypes=definition.dtypes, method=False,
        ordered=definition.ordered, doc=definition.doc or f"The custom op {schema}.",
    )  # fmt: skip
    register_program_kernels(name, _Kernels(definition))
    table.add_unlisted(op)
    reads = definition.reads or (definition.function, definition.fake)
    kernels = [f for f in definition.kernels.values() if not isinstance(f, KernelSource)]
    rules = (
        *reads, *kernels, definition.backward, definition.setup_context, definition.vmap,
        definition.jvp, definition.jvp_context,
    )  # fmt: skip
    vars(function)[DEFERRED_CODE] = tuple(dict.fromkeys(f for f in rules if f is not None))
    if again:
        plugins.changed()


def _function(definition: Definition) -> Any:
    """Return the function that calls the op, with the methods of ``CustomOp``."""
    schema = definition.schema
    plans: dict[Any, Any] = new_cache()
    short = has_fast_path(schema)

    def slow(values: tuple[Any, ...]) -> Any:
        operands, attrs = split(schema, values)
        if definition.fake is None and not (
            active_modes or definition.ordered or schema.returns == "nothing"
        ):
            learn_shapes(definition, operands, attrs)
        has_kernels = definition.everywhere or definition.kernels
        if short and has_kernels and not active_modes and all(type(x) is Tensor for x in operands):
            _learn(schema, plans, values, operands, attrs)
        changed = (
            [operands[k] for k in mutated_places(schema, layout_of(schema, attrs))] if schema.mutated else []
        )
        if len(changed) > 1:
            _check_apart(schema, changed)
        since = next(order)
        result = table.run(schema.name, operands, attrs)
        results = [result] if schema.single else [*result]
        if changed:
            for x, value in zip(changed, results[-len(changed) :], strict=True):
                x.rebind(value, by=schema.name, since=since)
            results = results[: -len(changed)]
        if schema.returns == "nothing":
            return None
        if schema.returns == "tensor":
            return results[0]
        if schema.result_names:
            return result
        return results if schema.returns == "list" else tuple(results)

    names = {
        "_slow": slow, "_plans": plans, "_Tensor": Tensor, "_modes": active_modes, "_fail": fail,
        "_record": engine.record,
    }  # fmt: skip
    function: Any = call_function(schema, names)
    function.__name__ = schema.name.partition("::")[2]
    function.__qualname__ = function.__name__
    function.__module__ = getattr(definition.function, "__module__", None) or __name__
    function.__doc__ = definition.doc or None
    annotations = getattr(definition.function, "__annotations__", {})
    function.__annotations__ = {} if schema.named else dict(annotations)
    function.schema = schema
    _attach(function, definition)
    return function


def _check_apart(schema: Schema, changed: list[Tensor]) -> None:
    """Raise ``ArgumentError`` where two mutated arguments are one tensor, or may show one element."""
    if len({id(x) for x in changed}) != len(changed):
        raise ArgumentError(f"{schema.name}: the same tensor was passed for two arguments that it mutates.")
    viewed = {id(views.root_of(x)) for x in changed if views.view_of(x) is not None}
    if any(id(x) in viewed for x in changed) or views.overlapping(changed):
        raise ArgumentError(
            f"{schema.name}: two arguments that it mutates may show the same elements, as views of one"
            f" tensor; each is written by itself, so one write would be lost. Pass clones and copy them back."
        )


def _learn(
    schema: Schema, plans: dict[Any, Any], values: tuple[Any, ...], operands: Any, attrs: dict[str, Any]
) -> None:
    """Keep the plan of a call for the fast path, where the call is one that it serves."""
    for parameter, value in zip(schema.parameters, values, strict=True):  # which the fast path leaves out
        other_type = not parameter.is_tensor and type(value).__name__ != parameter.kind
        if other_type or (type(value) is float and (not value or value != value)):
            return
    kinds = [x._vtype for x in operands]
    if kernel_preference.active() or any(
        k.materialized is not k or is_value_mode(k.device.type) for k in kinds
    ):
        return
    key = fast_key(schema, values)
    if key in plans or env.debugging():
        return
    plan_of_call = plan(table[schema.name], kinds, [x._value.shape for x in operands], attrs)
    if len(plans) >= _MAX_PLANS:
        plans.clear()
    plans[key] = None  # what has no kernel is decomposed each time
    if plan_of_call.source is not None:
        kernel, request = plan_of_call.source
        assert kernel.prepare is not None
        plans[key] = plan_of_call, kernel.prepare(request)


def _check_derivative(definition: Definition, method: str, derivative: Any, setup_context: Any) -> None:
    """Raise where these cannot be a derivative and its context, or the op cannot have one."""
    _check_callable(definition, method, derivative)
    if setup_context is not None:
        _check_callable(definition, method, setup_context)
    if definition.schema.mutated:
        raise ArgumentError(
            f"{definition.name}: an op that mutates its arguments has no derivative of its own. Make one"
            f" that returns the new value, and assign it: x[...] = op(x)."
        )


def _attach(target: Any, definition: Definition) -> None:
    """Give the function the methods of ``CustomOp``."""

    def register_kernel(device_types: Any, function: Any = None) -> Any:
        if function is None:
            return lambda f: register_kernel(device_types, f)
        if isinstance(function, KernelSource):
            check_takes_source(definition.schema)
        else:
            _check_callable(definition, "register_kernel", function)
        for kind in _device_types(definition.name, device_types):
            definition.kernels[kind] = function
        _publish(definition, target)
        return function

    def register_fake(function: Function) -> Function:
        _check_callable(definition, "register_fake", function)
        definition.fake = function
        _publish(definition, target)
        return function

    def register_autograd(backward: Function, *, setup_context: Function | None = None) -> Function:
        _check_derivative(definition, "register_autograd", backward, setup_context)
        definition.backward, definition.setup_context = backward, setup_context
        _publish(definition, target)
        return backward

    def register_jvp(jvp: Function, *, setup_context: Function | None = None) -> Function:
        _check_derivative(definition, "register_jvp", jvp, setup_context)
        definition.jvp, definition.jvp_context = jvp, setup_context
        _publish(definition, target)
        return jvp

    def register_vmap(function: Function) -> Function:
        _check_callable(definition, "register_vmap", function)
        definition.vmap = function
        _publish(definition, target)
        return function

    def register_autocast(cast_inputs: DType | str) -> None:
        if cast_inputs not in ("narrow", "wide"):
            cast_inputs = dt.dtype(cast_inputs)
            if not cast_inputs.is_floating:
                raise ArgumentError(
                    f"{definition.name}: autocast casts to a floating dtype, got {cast_inputs}."
                )
        definition.autocast = cast_inputs
        _publish(definition, target)

    registering = (
        register_kernel,
        register_fake,
        register_autograd,
        register_jvp,
        register_vmap,
        register_autocast,
    )
    for method in registering:
        method.__doc__ = getattr(CustomOp, method.__name__).__doc__
        setattr(target, method.__name__, method)


def _check_callable(definition: Definition, what: str, function: Any) -> None:
    if not callable(function):
        raise ArgumentError(f"{definition.name}: {what} takes a function, got {function!r}.")
    if definition.name not in _definitions or _definitions[definition.name] is not definition:
        raise ArgumentError(f"{definition.name}: this op has been unregistered, or defined again.")
