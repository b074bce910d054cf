"""Text of a tensor: its elements, or the edges of many, then dtype and device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ..tensor.tensor import Tensor

THRESHOLD: Final = 1000
EDGE: Final = 3
LINE: Final = 100
"""Columns after which a row goes on in the next line."""
_INDENT: Final = len("tensor(")


def format_tensor(x: Tensor) -> str:
    """Return ``tensor(..., dtype=..., device=...)``, in columns; of over 1,000 elements three at each edge.

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
    texts = _texts(x, edges)
    flat = texts if isinstance(texts, list) else [texts]
    for _ in x.shape[1:]:
        flat = [text for row in flat if isinstance(row, list) for text in row]
    is_one_line = math.prod(x.shape[:-1]) == 1 and _is_short(flat, _INDENT)
    return _joined(texts, _INDENT, 0 if is_one_line else max(map(len, flat)))


def _texts(x: Tensor, edges: bool) -> Any:
    """Return the texts of elements in lists as deep as ``x`` has axes, with "..." for what is left out."""
    if not edges or not x.shape:
        return _numbers(x.tolist())
    rows, more = _edges(x)
    texts: list[Any] = _numbers(rows.tolist()) if x.ndim == 1 else [_texts(row, edges) for row in rows]
    if more:
        texts.insert(EDGE, "...")
    return texts


def _numbers(values: Any) -> Any:
    return [_numbers(v) for v in values] if isinstance(values, list) else _number(values)


def _edges(x: Tensor) -> tuple[Tensor, bool]:
    if x.shape[0] <= 2 * EDGE:
        return x, False
    from ..ops.movement.movement import concat

    return concat([x[:EDGE], x[-EDGE:]], axis=0), True


def _is_short(texts: Sequence[str], indent: int) -> bool:
    """Return whether a row fits on a line."""
    return indent + 2 + sum(len(text) + 2 for text in texts) - 2 <= LINE


def _joined(texts: Any, indent: int, width: int) -> str:
    """Return elements in columns of ``width``, behind ``indent`` spaces; long rows take several lines."""
    if not isinstance(texts, list):
        return str(texts)
    start = "\n" + " " * (indent + 1)
    if any(isinstance(text, list) for text in texts):
        return f"[{f',{start}'.join(_joined(text, indent + 1, width) for text in texts)}]"
    texts = [text if text == "..." else text.rjust(width) for text in texts]
    lines: list[list[str]] = [[]]
    for text in texts:
        if lines[-1] and not _is_short([*lines[-1], text], indent):
            lines.append([])
        lines[-1].append(text)
    return f"[{f',{start}'.join(', '.join(line) for line in lines)}]"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) and not value.is_integer() else repr(value)
