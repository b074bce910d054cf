"""The precision of float32 products, on devices whose units for narrow ones are much faster."""

from __future__ import annotations

from typing import Final

from ..errors import ArgumentError, suggest

PRECISIONS: Final = ("highest", "high", "medium")
_chosen: list[str] = ["highest"]


def set_matmul_precision(precision: str) -> None:
    """Choose what float32 products are computed in, for the whole process, where a device has the choice.

    ``"highest"``: float32. ``"high"``: TF32, which keeps 10 bits of the fraction. ``"medium"``: bfloat16,
    which keeps 7. Sums are float32 always. Raises ``ArgumentError`` for another name.

    >>> import tensorbus as tb
    >>> tb.set_matmul_precision("high")
    >>> tb.get_matmul_precision()
    'high'
    >>> tb.set_matmul_precision("highest")
    """
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ArgumentError(
            f"set_matmul_precision: the precision is one of {', '.join(PRECISIONS)}, got {precision!r}."
            f"{suggest(str(precision), PRECISIONS)}"
        )
    _chosen[0] = precision


def get_matmul_precision() -> str:
    """Return what ``set_matmul_precision`` chose; ``"highest"`` before.

    >>> import tensorbus as tb
    >>> tb.get_matmul_precision()
    'highest'
    """
    return _chosen[0]
