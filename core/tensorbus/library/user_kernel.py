"""``kernel``: a custom op whose kernels are source in the languages of devices.

Its shape rule, derivatives and default come with it, by the names of its operands. Nothing is compiled before
it is called on a device.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from .. import plugins
from ..dtypes.definition import DType, bool_
from ..errors import ArgumentError
from ..ops.definition import Spec, table
from ..plugins.type_name import is_type_name
from ..system import fork_safe_locks
from .custom_op import CustomOp, define
from .kernel_definition import KernelDefinition, checked_default, checked_jvp, checked_vjp, defined
from .kernel_source import KernelSource, Rule
from .rules import Definition
from .schema import Kind, Schema, SchemaParameter


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
) -> CustomOp:
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
    5. what says which work-items to do. A launch may have more than the grid, so compare with the lengths:

       * ``cpu`` (C): ``int64_t begin, int64_t end``, work-items numbered from 0 with axis 0 running fastest.
         The function is called for many such ranges, in several threads at once. No loop over the grid is
         needed beyond its range, and never a work-item outside of it.
       * ``opencl`` (``__kernel void``) and ``cuda`` (``extern "C" __global__ void``): nothing; axis ``k`` of
         the grid is ``get_global_id(k)``, or ``blockIdx`` and ``threadIdx`` of x, y, z.
       * ``metal`` (a plain function, not a ``kernel``; pointers in ``device``): ``uint3 at``, the work-item.
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
    definition = defined(name, tensors, scalars or {}, results, out, grid, sizes)
    sources = _sources(definition, source, default)
    with _lock:
        return define(_custom_op(definition, sources, vjp, jvp, default, doc))


_lock = fork_safe_locks.simple()
_names: Final = itertools.count(2)


def _custom_op(
    definition: KernelDefinition, sources: Mapping[str, KernelSource], vjp: Any, jvp: Any, default: Any,
    doc: str,
) -> Definition:  # fmt: skip
    """Return the kernel as the definition of a custom op, of a name that is free."""
    name, own = definition.name, f"kernel::{definition.name}"
    while own in table:
        own = f"kernel::{name}_{next(_names)}"
    kinds: list[tuple[str, Kind, DType | None]] = [(key, "tensor", None) for key in definition.tensors]
    kinds += [(key, _kind(dtype), dtype) for key, dtype in definition.scalars.items()]
    required = inspect.Parameter.empty
    parameters = [
        SchemaParameter(
            name=key, kind=kind, optional=False, keyword_only=False, default=required, dtype=dtype
        )
        for key, kind, dtype in kinds
    ]
    schema = Schema(
        name=own, parameters=tuple(parameters), results=len(definition.results),
        returns="tuple" if definition.several else "tensor", mutated=(), named=True,
        result_names=definition.results if definition.several else (),
    )  # fmt: skip

    def fake(*values: Any) -> Any:
        count = len(definition.tensors)
        specs = [Spec(x.shape, x.dtype) for x in values[:count]]
        return definition.infer(specs, **dict(zip(definition.scalars, values[count:], strict=True)))

    return Definition(
        schema=schema, function=default or definition.out, everywhere=False, kernels={**sources}, fake=fake,
        decompose=None if default is None else checked_default(definition, default),
        vjp=None if vjp is None else checked_vjp(definition, vjp),
        jvp_rule=None if jvp is None else checked_jvp(definition, jvp),
        reads=tuple(f for f in (vjp, jvp, default) if f is not None) or (definition.out,),
        dtypes=tuple(dict.fromkeys(d for allowed in definition.tensors.values() for d in allowed)),
        doc=doc or f"The kernel {name!r} of this program.",
    )  # fmt: skip


def _kind(dtype: DType) -> Kind:
    """Return the kind of a parameter whose numbers are passed in ``dtype``."""
    return "bool" if dtype is bool_ else "float" if dtype.is_floating else "int"


def _source_of(definition: KernelDefinition, source: KernelSource) -> KernelSource:
    """Return the source with the name, grid and sizes of the kernel where it has none of its own."""
    return replace(
        source, name=source.name or definition.name, grid=source.grid or definition.grid,
        sizes=source.sizes or definition.sizes or definition.grid,
    )  # fmt: skip


def _sources(definition: KernelDefinition, source: Any, default: Any) -> dict[str, KernelSource]:
    name = definition.name
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
        kind: _source_of(definition, code if isinstance(code, KernelSource) else KernelSource(code=code))
        for kind, code in source.items()
    }
