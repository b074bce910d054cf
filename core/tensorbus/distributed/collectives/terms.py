"""The text by which ranks compare what they ask for, and what a communicator is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...tensor.tensor import Tensor


def spec(x: Tensor) -> str:
    """Return dtype and shape as text."""
    return f"{x.dtype}{[*x.shape]}"


def named(terms: str, label: str) -> str:
    """Return the text that ranks compare, of a call and what it communicates."""
    return f"{terms}, {label}" if label else terms


def expecting(communicator: Any, label: str) -> Any:
    """Return the communicator, which has heard what its next collective communicates."""
    if label and (expect := getattr(communicator, "expect", None)) is not None:
        expect(label)
    return communicator


def resized(shape: Sequence[int], axis: int, length: int) -> tuple[int, ...]:
    """Return the shape with another length along an axis."""
    return (*shape[:axis], length, *shape[axis + 1 :])
