"""``autocast``: products in a narrow dtype, what needs range in float32, without a change to the model.

Micikevicius et al.: "Mixed precision training", 2018. Ops of the first kind get their float operands cast to
the narrow dtype, ops of the second to float32; all others take what comes, by the rules of promotion.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ContextDecorator
from contextvars import Token
from types import TracebackType
from typing import Any, Final

from . import dtypes as dt
from .dtypes import DType
from .errors import DtypeError
from .ops.op import Op, table
from .pending import narrow, recorders
from .tensor import Tensor

NARROW: Final = frozenset(
    "matmul linear conv conv_transpose conv_weight bilinear scaled_dot_product_attention".split()
)
"""Ops that gain by a narrow dtype, and accumulate in a wide one."""
WIDE: Final = frozenset(
    """power exp expm1 log log1p log2 log10 sum mean prod var std cumulative_sum cumulative_prod softmax
    log_softmax logsumexp layer_norm rms_norm group_norm instance_norm batch_norm cross_entropy nll_loss
    binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss huber_loss smooth_l1_loss kl_div
    vector_norm matrix_norm cdist cosine_similarity""".split()
)
"""Ops whose sums or exponentials overflow or round away in a narrow dtype."""
_FLOATS: Final = frozenset({dt.float16, dt.bfloat16, dt.float32})


class autocast(ContextDecorator):  # noqa: N801 - a function to its users
    """Compute products in ``dtype`` inside a ``with`` block or a decorated function, for this thread or task.

    Matrix products, convolutions and attention take float32 operands as ``dtype`` (bfloat16 or float16);
    softmax, losses, norms and long sums take narrow ones as float32. ``enabled=False`` turns it off within.
    Gradients have the dtypes of what they belong to. Raises ``DtypeError`` for another dtype.

    >>> import tensorbus as tb
    >>> x = tb.ones((2, 2))
    >>> with tb.autocast(tb.bfloat16):
    ...     y = x @ x
    ...     z = y.sum()
    >>> y.dtype, z.dtype
    (tensorbus.bfloat16, tensorbus.float32)
    """

    def __init__(self, dtype: DType | str = dt.bfloat16, *, enabled: bool = True) -> None:
        kind = dt.dtype(dtype)
        if kind not in (dt.float16, dt.bfloat16):
            raise DtypeError(f"autocast: the dtype is float16 or bfloat16, got {kind}.")
        self._given = kind if enabled else None
        self._tokens: list[Token[DType | None]] = []

    def __enter__(self) -> None:
        self._tokens.append(narrow.set(self._given))
        recorders[self, len(self._tokens)] = self  # type: ignore[index,assignment]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorders.pop((self, len(self._tokens)), None)  # type: ignore[call-overload]
        narrow.reset(self._tokens.pop())

    def _recreate_cm(self) -> Any:
        return autocast(self._given or dt.bfloat16, enabled=self._given is not None)


def autocast_dtype() -> DType | None:
    """Return the narrow dtype that products compute in here; None where nothing is cast."""
    found: DType | None = narrow.get()
    return found


def as_asked(op: Op[...], operands: Sequence[Any]) -> Sequence[Any]:
    """Return the operands of ``op`` in the dtypes that ``autocast`` asks for here."""
    low = narrow.get()
    if low is None:
        return operands
    wanted = low if op.name in NARROW else dt.float32 if op.name in WIDE else None
    if wanted is None:
        return operands
    cast = table.function("cast")
    return [
        cast(x, wanted) if isinstance(x, Tensor) and x.dtype in _FLOATS and x.dtype is not wanted else x
        for x in operands
    ]
