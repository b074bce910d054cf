"""Products by tiles: the code that runs on AMX, with tiles that are arrays, and real ones where there are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tensorbus.backend_api import Call, dtypes
from tensorbus_cpu import amx
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.memory import NAMES
from tensorbus_cpu.mkl import instructions

SHAPES = {
    "one tile": ((16, 32), (32, 16)), "less than a tile": ((3, 5), (5, 7)), "one row": ((1, 70), (70, 40)),
    "several blocks": ((530, 70), (70, 300)), "deep": ((40, 4200), (4200, 33)),
    "stacks": ((3, 20, 40), (3, 40, 50)), "one for all": ((2, 2, 35, 33), (33, 34)),
    "one left for all": ((35, 65), (3, 65, 34)),
}  # fmt: skip


_HAS_TILES = {"amx_bf16", "amx_int8"} <= instructions()
_REAL = pytest.param(
    "", id="real", marks=pytest.mark.skipif(not _HAS_TILES, reason="this processor has no AMX")
)


@pytest.fixture(params=[pytest.param("#define EMULATED\n", id="arrays"), _REAL])
def tiles(request: pytest.FixtureRequest) -> str:
    """Return what stands before the source, so that tiles are arrays or real ones."""
    return str(request.param)


def multiplied(x: Any, y: Any, tiles: str) -> Any:
    compiler, d = NATIVE.compiler(), NAMES[x.dtype]
    assert compiler is not None
    library = compiler.library(tiles + amx.source(d.is_integer))
    assert library.tb_ready()
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    call = Call(
        op="matmul", dtypes=(d, d), shapes=(x.shape, y.shape), attrs={}, out_dtype=d,
        out_shape=(*lead, x.shape[-2], y.shape[-1]), index=0,
    )  # fmt: skip
    return amx.product(call, compiler, library)(x, y)


def laid(a: Any, how: str) -> Any:
    """Return an array of the same values that lies otherwise in memory."""
    if how == "turned":
        return np.ascontiguousarray(np.swapaxes(a, -1, -2)).swapaxes(-1, -2)
    if how == "spread":
        wide = np.zeros((*a.shape[:-2], 2 * a.shape[-2], 3 * a.shape[-1]), a.dtype)
        wide[..., ::2, ::3] = a
        return wide[..., ::2, ::3]
    return a


@pytest.mark.parametrize("how", ["packed", "turned", "spread"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_bfloat16(shapes: str, how: str, tiles: str) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in SHAPES[shapes])
    wanted = np.matmul(x.astype("f8"), y.astype("f8"))
    got = multiplied(laid(x, how), laid(y, how), tiles)
    assert got.dtype == x.dtype
    sizes = np.matmul(abs(x.astype("f8")), abs(y.astype("f8")))
    assert (abs(got.astype("f8") - wanted) <= abs(wanted) * 2**-8 + sizes * 1e-6).all()


@pytest.mark.parametrize("how", ["packed", "turned", "spread"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_bytes_wrap(shapes: str, dtype: str, how: str, tiles: str) -> None:
    rng, bounds = np.random.default_rng(0), np.iinfo(dtype)
    x, y = (rng.integers(bounds.min, bounds.max, s, dtype, endpoint=True) for s in SHAPES[shapes])
    wanted = np.matmul(x.astype("i8"), y.astype("i8")).astype(dtype)
    np.testing.assert_array_equal(multiplied(laid(x, how), laid(y, how), tiles), wanted)


def test_what_is_not_a_number_stays_where_it_is(tiles: str) -> None:
    x = np.ones((40, 64), ml_dtypes.bfloat16)
    x[3, 9], x[7, 60], x[9, 0] = np.nan, np.inf, -np.inf
    got = multiplied(x, np.ones((64, 40), ml_dtypes.bfloat16), tiles).astype("f4")
    wanted = np.full((40, 40), 64, "f4")
    wanted[3], wanted[7], wanted[9] = np.nan, np.inf, -np.inf
    np.testing.assert_array_equal(got, wanted)


def test_only_large_products_of_dtypes_with_tiles_are_taken() -> None:
    def of(d: Any, m: int) -> Call:
        shape = (m, m)
        return Call(
            op="matmul", dtypes=(d, d), shapes=(shape, shape), attrs={}, out_dtype=d, out_shape=shape, index=0
        )

    assert amx.gemm(of(dtypes.float32, 512)) is None
    assert amx.gemm(of(dtypes.bfloat16, 8)) is None
