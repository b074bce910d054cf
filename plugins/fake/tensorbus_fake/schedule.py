"""The communication that a rank would have done, call by call."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective.

    ``group`` is the ranks that take part, ``sequence`` counts the calls of the group from 1, and messages
    to and from each rank by themselves. ``bytes`` is the size of the tensors that the rank brings, ``sent``
    how many bytes leave it where they go the shortest way: n ranks that add up B bytes send 2 (n - 1) / n B.
    """

    operation: str
    group: tuple[int, ...]
    sequence: int
    bytes: int
    sent: int
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
