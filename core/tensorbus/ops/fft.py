"""Discrete Fourier transforms. Array API standard 2025.12, extension "Fourier transform Functions".

Three prims, each over one axis: complex to complex, real to half a spectrum, and back. ``tensorbus.fft``
writes everything else in them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..dtypes import definition as dt
from ..dtypes.definition import DType, real_of
from ..errors import DtypeError, ShapeError
from . import sharding_rules
from .batching_rules import shifted
from .call_errors import flags
from .creation.creation import full
from .definition import Op, Shape, Spec, table
from .elementwise.family import Operand
from .movement.family import normalize_axis
from .movement.movement import pad, reshape

_REAL: Final = (dt.float32, dt.float64)
ADJOINT_NORM: Final = {"backward": "forward", "ortho": "ortho", "forward": "backward"}
"""The norm of the transform in the other direction that has the same factor."""


def _complex(name: str) -> Callable[..., tuple[DType, ...]]:
    def compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
        (d,) = operand_dtypes
        d = dt.default_float if d.is_integer or d is dt.bool_ else d
        return (_fitting(name, dt.complex_of(d) if d in _REAL else d, dt.COMPLEX),)

    return compute


def _real(name: str) -> Callable[..., tuple[DType, ...]]:
    def compute(operand_dtypes: tuple[DType, ...], **_: Any) -> tuple[DType, ...]:
        (d,) = operand_dtypes
        return (_fitting(name, dt.default_float if d.is_integer or d is dt.bool_ else d, _REAL),)

    return compute


def _fitting(name: str, d: DType, dtypes: Sequence[DType]) -> DType:
    if d not in dtypes:
        raise DtypeError(
            f"{name}: not defined for {d}; it takes {', '.join(k.name for k in dtypes)}. Cast the operand"
            f" with .to(dtype){', or take its real part' if d.is_complex else ''}."
        )
    return d


def _along_axis(
    name: str,
    *,
    arguments: Callable[..., tuple[tuple[Operand, ...], dict[str, Any]]],
    length: Callable[..., int],
    result: Callable[[DType], DType],
    compute: Callable[..., tuple[DType, ...]],
    dtypes: tuple[DType, ...],
    vjp: Callable[..., tuple[Any, ...]],
    doc: str,
) -> Op[...]:
    """Define a transform over ``axis``; ``length`` gives that of the result."""

    def normalize(specs: tuple[Spec, ...], axis: int, **attrs: Any) -> dict[str, Any]:
        return {"axis": normalize_axis(name, axis, len(specs[0].shape)), **attrs}

    def infer(specs: tuple[Spec, ...], *, axis: int, **attrs: Any) -> Spec:
        shape = specs[0].shape
        n = length(shape[axis], **attrs)
        if n < 1 or shape[axis] < 1:
            raise ShapeError(
                f"{name}: axis {axis} of shape {shape} would have {shape[axis]} elements before and {n} after"
                f" the transform; at least 1 is needed."
            )
        return Spec((*shape[:axis], n, *shape[axis + 1 :]), result(specs[0].dtype))

    return table.add(
        Op(
            name=name, family="fft", operands=("x",), arguments=arguments, normalize=normalize, infer=infer,
            compute=compute, vjp=vjp, jvp="linear", batch=shifted(name, "axis"),
            shard=sharding_rules.besides(kind="linear"), dtypes=dtypes, method=False,
            doc=doc,
        )
    )  # fmt: skip


def _ends(x: Any, axis: int, length: int, middle: float) -> Any:
    """Multiply what stands for two frequencies of a spectrum of ``length``: all but the first and the middle.

    The halves of a real signal's spectrum are conjugates of each other, and only one of them is there.
    """
    own = 1 if length % 2 else 2
    count = x.shape[axis] - own
    if count < 1:
        return x
    factors = full((count,), middle, dtype=real_of(x.dtype), device=x.device)
    factors = pad(factors, (1,), (own - 1,), 1)
    return x * reshape(factors, (-1, *(1,) * (len(x.shape) - axis - 1)))


def _fft_vjp(g: Any, axis: int, inverse: bool, norm: str) -> tuple[Any, ...]:
    return (transform(g, axis=axis, inverse=not inverse, norm=ADJOINT_NORM[norm]),)


def _rfft_vjp(g: Any, x_shape: Shape, axis: int, norm: str) -> tuple[Any, ...]:
    half = _ends(g, axis, x_shape[axis], 0.5)
    return (inverse_real_transform(half, n=x_shape[axis], axis=axis, norm=ADJOINT_NORM[norm]),)


def _irfft_vjp(g: Any, n: int, axis: int, norm: str) -> tuple[Any, ...]:
    return (_ends(real_transform(g, axis=axis, norm=ADJOINT_NORM[norm]), axis, n, 2.0),)


transform: Op[...] = _along_axis(
    "fft",
    arguments=lambda x, /, axis=-1, inverse=False, norm="backward": (
        (x,), {"axis": axis, **flags("fft", inverse=inverse), "norm": norm}
    ),
    length=lambda m, **_: m, result=lambda d: d, compute=_complex("fft"), dtypes=dt.COMPLEX, vjp=_fft_vjp,
    doc="The Fourier transform of complex numbers along ``axis``, or its inverse.",
)  # fmt: skip
real_transform: Op[...] = _along_axis(
    "rfft",
    arguments=lambda x, /, axis=-1, norm="backward": ((x,), {"axis": axis, "norm": norm}),
    length=lambda m, **_: m // 2 + 1, result=dt.complex_of, compute=_real("rfft"),
    dtypes=_REAL, vjp=_rfft_vjp,
    doc="The first half of the Fourier transform of real numbers; the other is its conjugate backwards.",
)  # fmt: skip


def _irfft_length(m: int, n: int, **_: Any) -> int:
    if n > 0 and m != n // 2 + 1:
        raise ShapeError(f"irfft: {n} numbers come from {n // 2 + 1} frequencies, got {m}.")
    return n


inverse_real_transform: Op[...] = _along_axis(
    "irfft",
    arguments=lambda x, /, n, axis=-1, norm="backward": ((x,), {"n": n, "axis": axis, "norm": norm}),
    length=_irfft_length, result=real_of, compute=_complex("irfft"), dtypes=dt.COMPLEX, vjp=_irfft_vjp,
    doc="The ``n`` real numbers whose ``rfft`` this is; imaginary parts that no such have are left out.",
)  # fmt: skip
