"""``kernel``: an op whose kernels a program brings along, as source in the languages of its devices.

It is an op like any other, known to its program alone: checks, gradients, ``vmap`` and captured programs
treat it as they do the rest. Nothing is compiled before it is called on a device.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

from .. import plugins
from ..backend_interface.protocols import Call, Kernel
from ..dispatch.kernel_tables import OwnedKernel, register_program_kernels
from ..dtypes.definition import DType
from ..errors import ArgumentError, UnsupportedOpError
from ..ops.batching_rules import looped
from ..ops.definition import USER, Op, Spec, table
from ..plugins.manifest import is_type_name
from ..system import fork_safe_locks
from ..tracing.active_tracer import DEFERRED_CODE
from .definition import Definition, Rule, checked_default, checked_jvp, checked_vjp, defined, named


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """Source for one device, with what is different there.

    ``code`` is text, or for ``cuda`` a function of Triton's (``@triton.jit``). ``grid`` and ``sizes`` stand
    in for those of ``kernel``. ``group`` is how many items along axis 0 of the grid share local memory (0: as
    the device likes); the grid is then made longer, to a multiple of it. ``constants`` are known when the
    code is compiled: macros in C-like languages, in Triton ``tl.constexpr`` parameters and options such as
    ``num_warps``.
    """

    code: Any
    grid: Rule | None = None
    sizes: Rule | None = None
    group: int = 0
    constants: Mapping[str, bool | int | float] = field(default_factory=dict)


def kernel(
    source: Mapping[str, Any],
    *,
    name: str,
    tensors: Mapping[str, DType | Collection[DType]],
    out: Rule,
    scalars: Mapping[str, DType] | None = None,
    results: Sequence[str] = (),
    grid: Rule | None = None,
    sizes: Rule | None = None,
    vjp: Callable[..., Any] | None = None,
    jvp: Callable[..., Any] | None = None,
    default: Callable[..., Any] | None = None,
    doc: str = "",
) -> Callable[..., Any]:
    """Return a function of tensors that runs a kernel of yours, given as source in a device's own language.

    It works like every op: eagerly, inside ``compile`` without a break in the graph, inside ``vmap`` (by
    ``default``, else one example after another), and with gradients where there is a ``vjp`` or a
    ``default``. It must be a function of its arguments: it reads them and writes its results, every element.

    ``source``: for each device type its text, or a ``KernelSource``. ``name``: the function in it.
    ``tensors``: the operands, in order, and the dtype or dtypes that each may have; nothing is cast.
    ``scalars``: then Python numbers, each with the dtype that it is passed in. A program is compiled for
    their values; a number that changes at each call is better a tensor of shape ``()``.
    ``out``: the shape rule. Like ``grid`` and ``sizes`` it is called with the operands' specs (``.shape``,
    ``.dtype``) and the scalars, in the order of the call; it returns the spec of the result, as one that it
    was given or as a ``(shape, dtype)`` pair. With ``results``, their names, it returns one for each, and a
    call returns a named tuple.
    ``grid``: one to three lengths, the numbers of work-items; without it the elements of the (first)
    result. ``sizes``: integers that the source needs to know; without it the lengths of that grid.
    ``vjp``: the derivative, a function whose parameters are among ``g`` (the gradient of the result),
    ``out``, the names of operands and scalars, and ``x_shape`` for an operand ``x``; it returns a tuple with
    a gradient or None for each operand. ``jvp``: the forward derivative, a function whose parameters are
    among those and ``x_t``, the tangent of an operand ``x`` or None for zero; it returns the tangent of the
    result, or a tuple. Without it the ``vjp`` is transposed, which takes one of what it calls. ``default``:
    the kernel written in tensor functions, for devices without source, and for derivatives where there is
    no ``vjp``.

    The function in the source has these arguments, in this order:

    1. each operand, a ``const`` pointer to its elements, packed in C order whatever the tensor's layout was;
    2. each result, a pointer to memory that is not set;
    3. each scalar by value, in the type of its dtype (bool: an unsigned byte);
    4. each of ``sizes``, a signed integer of 64 bits;
    5. what says which items to do. A launch may have more items than the grid, so compare with the lengths:

       * ``cpu`` (C): ``int64_t begin, int64_t end``, items numbered from 0 with axis 0 running fastest. The
         function is called for many such ranges, in several threads at once. No loop over the grid is needed
         beyond its range, and never an item outside of it.
       * ``opencl`` (``__kernel void``) and ``cuda`` (``extern "C" __global__ void``): nothing; axis ``k`` of
         the grid is ``get_global_id(k)``, or ``blockIdx`` and ``threadIdx`` of x, y, z.
       * ``metal`` (a plain function, not a ``kernel``; pointers in ``device``): ``uint3 at``, the item.
       * Triton, for ``cuda``: nothing; the grid counts programs, and ``tl.constexpr`` parameters come last.

    Bools are bytes of 0 and 1, bfloat16 is 16 bits without arithmetic, complex numbers are pairs. The macros
    ``TB_x`` and ``TB_out`` (or the result's own name) are the types of the elements of ``x`` and the result:
    a kernel that takes several dtypes is written in them. What is compiled is kept on disk.

    Raises ``ArgumentError`` for a definition that does not hold together; a call raises ``DtypeError`` for
    operands of other dtypes, ``ShapeError`` where a rule fails, ``UnsupportedOpError`` on a device without
    source, naming those that have some, and ``DeviceError`` with the compiler's text and the numbered source
    where it does not compile.

    >>> import tensorbus as tb
    >>> code = "void scale(const float *x, float *out, float k, int64_t n, int64_t begin, int64_t end) {"
    >>> code += " for (int64_t i = begin; i < end; ++i) out[i] = k * x[i]; }"
    >>> scale = tb.kernel({"cpu": code}, name="scale", tensors={"x": tb.float32}, scalars={"k": tb.float32},
    ...                   out=lambda x, k: x, vjp=lambda g, k: (scale(g, k),))
    >>> scale(tb.asarray([1.0, 2.0], device="cpu"), 3.0).tolist()
    [3.0, 6.0]
    """
    definition = defined(name, tensors, scalars or {}, tuple(results), out, grid, sizes)
    sources = _sources(name, source, default)
    kernels: dict[str, OwnedKernel] = {
        kind: ("the program", Kernel(name="source", prepare=_preparing(definition, kind, kernel_source)))
        for kind, kernel_source in sources.items()
    }
    with _lock:
        op = _op(definition, vjp, jvp, default, doc)
        register_program_kernels(op.name, kernels)
        function = table.add_unlisted(op).function
        vars(function)[DEFERRED_CODE] = tuple(f for f in (vjp, jvp, default) if f is not None)
        return function


_lock = fork_safe_locks.simple()
_names: Final = itertools.count(2)


def _op(definition: Definition, vjp: Any, jvp: Any, default: Any, doc: str) -> Op[...]:
    name, own = definition.name, f"kernel_{definition.name}"
    while own in table:
        own = f"kernel_{name}_{next(_names)}"
    return Op(
        name=own,
        family=USER,
        operands=tuple(definition.tensors),
        arguments=named(name, (*definition.tensors, *definition.scalars), definition.arguments),
        infer=definition.infer,
        results=definition.results if definition.several else (),
        decompose=None if default is None else checked_default(definition, default),
        vjp=None if vjp is None else checked_vjp(definition, vjp),
        jvp=None if jvp is None else checked_jvp(definition, jvp),
        batch=looped(own) if default is None else None,
        dtypes=tuple(dict.fromkeys(d for allowed in definition.tensors.values() for d in allowed)),
        doc=doc or f"The kernel {name!r} of this program.",
    )


def _sources(name: str, source: Any, default: Any) -> dict[str, KernelSource]:
    if not isinstance(source, Mapping):
        raise ArgumentError(
            f"kernel {name!r}: source is a dict from device types to text, such as {{'cpu': ...}}; got"
            f" {type(source).__name__}."
        )
    for kind in source:
        if not isinstance(kind, str) or not is_type_name(kind):
            raise ArgumentError(
                f"kernel {name!r}: source is for {kind!r}, which names no device type. Installed:"
                f" {', '.join(plugins.known_types())}."
            )
        if not (isinstance(source[kind], (str, KernelSource)) or callable(source[kind])):
            raise ArgumentError(
                f"kernel {name!r}: source for {kind!r} is text, a KernelSource or a Triton function; got"
                f" {type(source[kind]).__name__}."
            )
    if not (default is None or callable(default)):
        raise ArgumentError(f"kernel {name!r}: default is a function of tensors, got {default!r}.")
    if not source and default is None:
        raise ArgumentError(f"kernel {name!r}: give source for a device, or a default.")
    return {
        kind: code if isinstance(code, KernelSource) else KernelSource(code=code)
        for kind, code in source.items()
    }


def _preparing(definition: Definition, device_type: str, source: KernelSource) -> Callable[[Call], Any]:
    """Return what makes the source ready for a call, on a device of this type."""

    def prepare(call: Call) -> Callable[..., Any]:
        from ..backend_interface.capabilities import SourceCall, SupportsUserKernels

        runtime = plugins.backend(device_type).runtime
        if not isinstance(runtime, SupportsUserKernels):
            raise UnsupportedOpError(
                f"{definition.name}: there is source for {device_type!r}, but this device compiles no kernels"
                f" of users. Leave it out and give a default, which runs on every device."
            )
        assert call.shapes is not None  # only plans of elementwise ops leave them open
        specs = [Spec(s, d) for s, d in zip(call.shapes, call.dtypes, strict=True)]
        inferred = definition.infer(specs, **call.attrs)
        outs: tuple[Spec, ...] = inferred if definition.several else (inferred,)
        grid: tuple[int, ...] = (prod(outs[0].shape),)
        if definition.grid is not None:
            grid = definition.lengths("grid", definition.grid, specs, call.attrs)
        rule = source.sizes or definition.sizes
        sizes = definition.lengths("sizes", rule, specs, call.attrs) if rule else grid
        if source.grid is not None:
            grid = definition.lengths("grid", source.grid, specs, call.attrs)
        run = runtime.compile_kernel(
            SourceCall(
                name=definition.name,
                code=source.code,
                operands=tuple((k, s.dtype, s.shape) for k, s in zip(definition.tensors, specs, strict=True)),
                results=tuple((k, s.dtype, s.shape) for k, s in zip(definition.results, outs, strict=True)),
                scalars=tuple((k, d, call.attrs[k]) for k, d in definition.scalars.items()),
                sizes=sizes,
                grid=grid,
                group=source.group,
                constants=source.constants,
            ),
            call.index,
        )
        if definition.several:
            return lambda *values: run(values)
        return lambda *values: run(values)[0]

    return prepare
