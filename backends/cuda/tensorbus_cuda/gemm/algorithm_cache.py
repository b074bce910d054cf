"""Algorithms of products, kept for others of nearly their sizes.

Asking cuBLASLt for the best one takes longer than queueing several products. Where a length changes at each
call, as that of a text which grows, the answers for neighbouring lengths are nearly always the same.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Sequence
from math import gcd
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from .cublaslt import Matrix

OFTEN: Final = 4
"""For how many products of one form, and of lengths of as many bits, the library is asked in any case."""
MAX_ALGORITHMS: Final = 4096
"""How many algorithms are kept."""
_BITS: Final = 4
"""The first bits of a length in which near ones are the same."""
_ALIGNED: Final = 16
"""Bytes at whose multiples rows begin where the library's fast algorithms are possible."""


class AlgorithmCache:
    """Algorithms by what products have in common: all but the last bits of their lengths.

    Each call is given the ``form`` of a product, which must be the same, the bytes of an element, the number
    of products and their matrices.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, Any] = {}
        self._asked: dict[Hashable, int] = {}
        self._lock = threading.Lock()

    def near(self, form: Hashable, size: int, batches: int, matrices: Sequence[Matrix]) -> Any:
        """Return a copy of a near product's algorithm; None before ``OFTEN`` have been asked for."""
        if self._asked.get((form, *_bits(matrices)), 0) < OFTEN:
            return None
        algorithm = self._known.get((form, batches, *_rounded(matrices, size)))
        return None if algorithm is None else type(algorithm).from_buffer_copy(algorithm)

    def keep(
        self, algorithm: Any, form: Hashable, size: int, batches: int, matrices: Sequence[Matrix]
    ) -> None:
        """Note that the library was asked, and what it answered; None: it has no algorithm."""
        count = form, *_bits(matrices)
        with self._lock:
            if len(self._asked) >= MAX_ALGORITHMS or len(self._known) >= MAX_ALGORITHMS:
                self._asked.clear()
                self._known.clear()
            self._asked[count] = self._asked.get(count, 0) + 1
            if algorithm is not None:
                self._known.setdefault((form, batches, *_rounded(matrices, size)), algorithm)


def _bits(matrices: Sequence[Matrix]) -> list[int]:
    return [n.bit_length() for m in matrices for n in (m.rows, m.columns)]


def _rounded(matrices: Sequence[Matrix], size: int) -> list[int]:
    """Return what products have in common that one algorithm may serve: lengths nearly, and how rows lie."""
    numbers: list[int] = []
    for m in matrices:
        numbers += [_first(m.rows), _first(m.columns), gcd(m.lead * size, _ALIGNED)]
        numbers += [gcd(m.stride * size, _ALIGNED)]
    return numbers


def _first(n: int) -> int:
    """Return a length rounded up to a number of few bits.

    >>> [_first(n) for n in (7, 15, 193, 200, 208, 209)]
    [7, 15, 208, 208, 208, 224]
    """
    step = 1 << max(n.bit_length() - _BITS, 0)
    return -(-n // step) * step
