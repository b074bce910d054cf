"""The text by which ranks compare what they ask for, and what a communicator is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from ...tensor.tensor import Tensor

_LISTED: Final = 16


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


def listed(values: Sequence[Any]) -> str:
    """Return values as text; of many, runs of equal ones are one."""
    if len(values) <= _LISTED:
        return str([*values])
    runs = [(value, len([*run])) for value, run in groupby(values)]
    return f"[{', '.join(f'{count} x {value}' for value, count in runs)}]"


def shapes_of(shape: Sequence[int], axis: int, lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of ranks' tensors that differ along an axis, which are few of many ranks."""
    by_length = {length: resized(shape, axis, length) for length in set(lengths)}
    return [by_length[length] for length in lengths]


def resized(shape: Sequence[int], axis: int, length: int) -> tuple[int, ...]:
    """Return the shape with another length along an axis."""
    return (*shape[:axis], length, *shape[axis + 1 :])
