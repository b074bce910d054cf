"""Ready kernels of linear algebra and Fourier transforms over a library like NumPy.

``linalg_from_namespace(xp)`` uses ``xp.linalg`` and ``xp.fft``, and writes what they lack in terms of them:
LU factors, triangular systems, the matrix exponential. The library is a parameter: none is imported.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, Final

from ..backend_interface.protocols import Call, Kernel
from ..dtypes.definition import complex64, complex128, float32, float64
from ..errors import LinAlgError
from .namespace_matrix_exp import matrix_exp
from .namespace_triangular import lu_factor, solve_triangular

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]

FAILURE_REASONS: Final = {
    "cholesky": "a matrix is not positive definite",
    "solve": "a matrix is singular",
    "inv": "a matrix is singular",
    "solve_triangular": "a matrix has a zero on its diagonal",
    "matrix_exp": "a matrix is too badly scaled",
}
"""Why an op fails, where the library does."""
_MAX_PRODUCTS: Final = 1 << 13
"""The most elements of a dot product for a norm: it loses 1e-6 of the sum of so many, 1e-2 of 1e8."""


def linalg_from_namespace(xp: Any, wrap: Wrap = lambda function: function) -> dict[str, Kernel]:
    """Return the kernels of ``linalg`` and ``fft`` over arrays of ``xp``.

    ``wrap`` is applied to each function of one result: a place to silence warnings or to turn scalars of the
    library into arrays. Kernels raise ``LinAlgError`` where a matrix has no such factors.
    """
    linalg = xp.linalg

    def slogdet(x: Any) -> Any:
        sign, logabsdet = linalg.slogdet(x)
        return xp.asarray(sign), xp.asarray(logabsdet)

    def eig(x: Any) -> Any:
        return tuple(part.astype(xp.result_type(x, xp.complex64)) for part in linalg.eig(x))

    one: dict[str, Callable[..., Any]] = {
        "cholesky": linalg.cholesky,
        "det": linalg.det,
        "inv": linalg.inv,
        "solve": linalg.solve,
        "eigvalsh": linalg.eigvalsh,
        "eigvals": lambda x: linalg.eigvals(x).astype(xp.result_type(x, xp.complex64)),
        "svdvals": lambda x: linalg.svd(x, compute_uv=False),
        "solve_triangular": partial(solve_triangular, xp),
        "matrix_exp": partial(matrix_exp, xp),
    }
    several: dict[str, Callable[..., Any]] = {
        "slogdet": slogdet,
        "eigh": lambda x: tuple(linalg.eigh(x)),
        "eig": eig,
        "qr": lambda x, mode: tuple(linalg.qr(x, mode=mode)),
        "svd": lambda x, full_matrices: tuple(linalg.svd(x, full_matrices=full_matrices)),
        "lu_factor": partial(lu_factor, xp),
    }
    table = {name: _factored(name, f, wrap, linalg.LinAlgError) for name, f in one.items()}
    table |= {name: _factored(name, f, lambda f: f, linalg.LinAlgError) for name, f in several.items()}
    return {**table, "vector_norm": _length(xp, wrap), **_transforms(xp, wrap)}


def _factored(name: str, function: Callable[..., Any], wrap: Wrap, failure: type[Exception]) -> Kernel:
    """Turn the library's failure into one that names the op, the shape and what to do: one text for all."""
    why = FAILURE_REASONS.get(name, "the iteration did not converge")

    def prepare(call: Call) -> Callable[..., Any]:
        compute = wrap(partial(function, **call.attrs))

        def kernel(*values: Any) -> Any:
            try:
                return compute(*values)
            except failure as error:
                raise LinAlgError(
                    f"{name}: {why}, in an operand of shape {values[0].shape}. Look for NaN, infinities and"
                    f" linearly dependent rows."
                ) from error

        return kernel

    return Kernel(name="linalg", prepare=prepare)


def _length(xp: Any, wrap: Wrap) -> Kernel:
    """Return the kernel of the plainest norm, of all elements: one dot product, and no array of squares.

    Only of so few that it loses no bits: libraries add products up in a few lanes, from end to end.
    """

    def prepare(call: Call) -> Callable[..., Any]:
        shape = call.out_shape
        return wrap(lambda x: xp.sqrt(xp.vdot(x, x).real).reshape(shape))

    def supports(call: Call) -> bool | str:
        if call.attrs["ord"] != 2 or call.shapes is None or len(call.attrs["axis"]) != len(call.shapes[0]):
            return "serves the norm of order 2 of all elements only"
        few = prod(call.shapes[0]) <= _MAX_PRODUCTS
        return few or f"serves at most {_MAX_PRODUCTS} elements: the sum of more loses bits"

    dtypes = frozenset({float32, float64, complex64, complex128})
    return Kernel(name="dot", prepare=prepare, supports=supports, dtypes=dtypes)


def _transforms(xp: Any, wrap: Wrap) -> dict[str, Kernel]:
    def one(call: Call) -> Callable[..., Any]:
        inverse, axis, norm = (call.attrs[key] for key in ("inverse", "axis", "norm"))
        transform = xp.fft.ifft if inverse else xp.fft.fft
        return wrap(lambda x: transform(x, axis=axis, norm=norm))

    def half(call: Call) -> Callable[..., Any]:
        axis, norm = call.attrs["axis"], call.attrs["norm"]
        return wrap(lambda x: xp.fft.rfft(x, axis=axis, norm=norm))

    def whole(call: Call) -> Callable[..., Any]:
        n, axis, norm = (call.attrs[key] for key in ("n", "axis", "norm"))
        return wrap(lambda x: xp.fft.irfft(x, n, axis=axis, norm=norm))

    return {
        "fft": Kernel(name="fft", prepare=one),
        "rfft": Kernel(name="rfft", prepare=half),
        "irfft": Kernel(name="irfft", prepare=whole),
    }
