"""For which products cuBLASLt is asked, and which take the way of another: no GPU is needed."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest
from tensorbus.backend_api import dtypes as dt


class _Lib:
    """Answers with ways that are numbered; ``refused`` are those that serve no other product."""

    def __init__(self) -> None:
        self.asked, self.checked, self.space = 0, 0, 64
        self.refused: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 0

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        *_, ways, count = arguments
        self.asked += 1
        ways[0].algorithm[0] = self.asked
        count._obj.value = 1
        return 0

    def cublasLtMatmulAlgoCheck(self, *arguments: Any) -> int:
        *_, way, result = arguments
        self.checked += 1
        result._obj.space = self.space
        return int(way._obj.algorithm[0] in self.refused)


@pytest.fixture
def library(cupy_or_names: None) -> Any:
    from tensorbus_cuda.gemm import cublaslt
    from tensorbus_cuda.gemm.algorithm_cache import AlgorithmCache

    fresh = object.__new__(cublaslt.Library)
    fresh._unit = SimpleNamespace(name="cuda:0", failures=SimpleNamespace(note=lambda what: None))
    fresh.lib, fresh.handle = _Lib(), ctypes.c_void_p(1)
    fresh._matmul, fresh._algorithms, fresh._descriptions = None, AlgorithmCache(), {}
    return fresh


def product(library: Any, n: int, dtype: Any = dt.float32, inner: bool = False) -> tuple[int, int]:
    """Return the way to a product of ``n`` rows, and its memory; ``inner``: of as many columns, too."""
    from tensorbus_cuda.gemm.cublaslt import KINDS, Matrix

    k = n if inner else 384
    prepared = library.product(
        Matrix(n, k, k, False), Matrix(k, 64, 64, False), 1, KINDS[dtype], (True, True)
    )
    return prepared._algorithm.algorithm[0], prepared._space


def test_lengths_that_grow_ask_once_for_some_of_them(library: Any) -> None:
    ways = [product(library, n)[0] for n in range(193, 257)]
    assert library.lib.asked == len(set(ways)) < 10
    assert ways[-16:-1] == [ways[-2]] * 15
    assert library.lib.checked == 64 - library.lib.asked
    assert product(library, 1000)[0] == library.lib.asked  # a length of more bits is asked for


def test_few_products_are_each_asked_for(library: Any) -> None:
    assert [product(library, n)[0] for n in (200, 201, 202, 203)] == [1, 2, 3, 4]
    assert [product(library, n, dt.float16)[0] for n in (200, 201)] == [5, 6]


def test_rows_that_are_aligned_otherwise_have_ways_of_their_own(library: Any) -> None:
    for n in range(193, 201):
        product(library, n, inner=True)
    by_rest = [
        {product(library, n, inner=True)[0] for n in range(first, 209, 4)} for first in range(201, 205)
    ]
    assert all(len(ways) == 1 for ways in by_rest)
    assert by_rest[0] == by_rest[2]
    assert len({next(iter(ways)) for ways in by_rest}) == 3


@pytest.mark.parametrize("why", ["refused", "space"])
def test_a_way_that_does_not_serve_another_product_is_not_taken(library: Any, why: str) -> None:
    for n in range(193, 201):
        product(library, n)
    before = library.lib.asked
    assert product(library, 201)[0] < before
    assert product(library, 201)[1] == 64
    if why == "refused":
        library.lib.refused = set(range(before + 1))
    else:
        library.lib.space = 1 << 40
    assert product(library, 201)[0] == before + 1
