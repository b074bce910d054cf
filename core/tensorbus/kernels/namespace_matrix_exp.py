"""The matrix exponential over a library like NumPy.

Scaling and squaring with a rational approximation of degree 13: Higham 2005, "The scaling and squaring method
for the matrix exponential revisited", algorithm 2.3 without its lower degrees.
"""

from __future__ import annotations

from typing import Any, Final

_COEFFICIENTS: Final = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_LARGEST: Final = 5.371920351148152
"""The 1-norm up to which the approximation is exact to double precision."""


def matrix_exp(xp: Any, a: Any) -> Any:
    """Return the exponentials of the matrices over the last two axes, computed in double precision.

    In single precision the quotient and the squarings would lose several bits.
    """
    n = a.shape[-1]
    if not a.size:
        return a.copy()
    own = a.dtype
    a = a.astype(xp.result_type(own, xp.float64))
    norm = xp.abs(a).sum(axis=-2).max(axis=-1)
    usable = xp.isfinite(norm) & (norm > _LARGEST)
    halvings = xp.ceil(xp.log2(xp.where(usable, norm, _LARGEST) / _LARGEST)).astype(int)
    half = xp.asarray(0.5, dtype=norm.dtype)
    out = _approximation(xp, a * (half**halvings)[..., None, None].astype(norm.dtype), n)
    for k in range(int(halvings.max())):
        out = xp.where((k < halvings)[..., None, None], out @ out, out)
    return out.astype(own)


def _approximation(xp: Any, a: Any, n: int) -> Any:
    # Divided by the last coefficient they would not fit float32; by the first they are at most 1.
    c = [value / _COEFFICIENTS[0] for value in _COEFFICIENTS]
    one = xp.eye(n, dtype=a.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    odd = a @ (a6 @ (c[13] * a6 + c[11] * a4 + c[9] * a2) + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * one)
    even = a6 @ (c[12] * a6 + c[10] * a4 + c[8] * a2) + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * one
    return xp.linalg.solve(even - odd, even + odd)
