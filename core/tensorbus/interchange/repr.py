"""Text of a tensor: its elements, or the edges of many, then dtype and device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor

THRESHOLD: Final = 1000
EDGE: Final = 3


def format_tensor(x: Tensor) -> str:
    """Return ``tensor(..., dtype=..., device=...)``; over a thousand elements only three at each edge.

    >>> import tensorbus as tb
    >>> tb.zeros((2,), device="cpu")
    tensor([0.0, 0.0], dtype=float32, device='cpu:0')
    """
    about = [f"dtype={x.dtype}", f"device={str(x.device)!r}"]
    if x.size == 0:
        about.insert(0, f"shape={x.shape}")
    if x.requires_grad:
        about.append("requires_grad=True")
    if not _has_elements(x):
        return f"tensor(..., shape={x.shape}, {', '.join(about)})"
    return f"tensor({_elements(x.detach(), x.size > THRESHOLD)}, {', '.join(about)})"


def _has_elements(x: Tensor) -> bool:
    from ..backend_interface.capabilities import HasNoElements
    from ..dispatch.modes import base_device

    return x.size == 0 or not isinstance(base_device(x.device).runtime, HasNoElements)


def _elements(x: Tensor, edges: bool) -> str:
    if x.size == 0:
        return "[]"
    if not edges or not x.shape:
        return _joined(x.tolist(), 7)
    rows, more = _edges(x)
    if x.ndim == 1:
        parts = [_number(v) for v in rows.tolist()]
        separator = ", "
    else:
        parts = [_elements(row, edges).replace("\n", "\n ") for row in rows]
        separator = ",\n        "
    if more:
        parts.insert(EDGE, "...")
    return f"[{separator.join(parts)}]"


def _edges(x: Tensor) -> tuple[Tensor, bool]:
    if x.shape[0] <= 2 * EDGE:
        return x, False
    from ..ops.movement.movement import concat

    return concat([x[:EDGE], x[-EDGE:]], axis=0), True


def _joined(values: Any, indent: int) -> str:
    if not isinstance(values, list):
        return _number(values)
    if values and isinstance(values[0], list):
        separator = ",\n" + " " * (indent + 1)
        return f"[{separator.join(_joined(v, indent + 1) for v in values)}]"
    return f"[{', '.join(map(_number, values))}]"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else repr(value)
