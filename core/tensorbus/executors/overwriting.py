"""Outputs of a program that lie over inputs, where nobody else holds these: what Python counts says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any, Final

from ..system.items import items_at

UNSHARED: Final = (3, 3)
"""References to an input, and to its buffer, where a tensor's cell, the values and ``run`` hold them."""


def _counts(items: Sequence[Any], pick: Callable[[Sequence[Any]], tuple[Any, ...]]) -> list[int]:
    """Return how many references there are to each of some items, with those of looking at them."""
    return [*map(getrefcount, pick(items))]


_UNSHARED_COUNT: Final = _counts([object(), object()], items_at((0, 1)))[0] + 1
"""Those where one other holds an item."""


class Overwriting:
    """The ``pairs`` of slots of outputs, and places of the inputs that they may lie over.

    ``compiler`` has ``is_own(buffer, index)``, and may have ``are_own(buffers, index)``, which says it of all
    at once: in training all parameters are most often as they should be.
    """

    def __init__(self, compiler: Any, index: int, pairs: Sequence[tuple[int, int]]) -> None:
        self._is_own, self._index, self._pairs = compiler.is_own, index, pairs
        self._are_own = getattr(compiler, "are_own", None)
        self._slots = [slot for slot, _ in pairs]
        self._pick = items_at([place for _, place in pairs])
        self._alone = [_UNSHARED_COUNT] * len(pairs)

    def take(self, values: Sequence[Any], buffers: list[Any]) -> None:
        """Put the buffers of inputs at the slots of outputs, where nobody else holds the inputs."""
        index = self._index
        if self._are_own is not None and len(self._pairs) > 1:
            alone, pick = self._alone, self._pick
            if _counts(values, pick) == alone == _counts(buffers, pick):
                known = pick(buffers)
                if self._are_own(known, index):
                    for slot, buffer in zip(self._slots, known, strict=True):
                        buffers[slot] = buffer
                    return
                del known
        held, is_own = getrefcount, self._is_own
        for slot, place in self._pairs:
            buffer = buffers[place]
            unshared = held(values[place]) == UNSHARED[0] and held(buffer) == UNSHARED[1] + 1
            if unshared and is_own(buffer, index):
                buffers[slot] = buffer
