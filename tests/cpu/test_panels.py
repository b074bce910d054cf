"""Products by panels: as AMX multiplies them, with arrays for tiles, and by what this processor has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorbus as tb
from tensorbus.backend_api import Call, DeviceError, dtypes
from tensorbus_cpu.compiler import NATIVE
from tensorbus_cpu.gemm import packed_gemm as panels
from tensorbus_cpu.gemm.mkl_gemm import instructions
from tensorbus_cpu.memory import NAMES

SHAPES = {
    "one tile": ((16, 32), (32, 16)), "less than a tile": ((3, 5), (5, 7)), "one row": ((1, 70), (70, 40)),
    "several blocks": ((530, 70), (70, 300)), "deep": ((40, 4200), (4200, 33)),
    "stacks": ((3, 20, 40), (3, 40, 50)), "one for all": ((2, 2, 35, 33), (33, 34)),
    "one left for all": ((35, 65), (3, 65, 34)),
    "no rows": ((0, 70), (70, 33)), "no matrices": ((0, 20, 40), (0, 40, 50)),
    "deep stacks": ((2, 33, 2100), (2, 2100, 3)),
}  # fmt: skip


_NEEDS = {"amx": {"amx_bf16", "amx_int8"}, "avx512": {"avx512_bf16", "avx512_vnni"}}
_REAL = [
    pytest.param(
        ("", way), id=way,
        marks=pytest.mark.skipif(not needs <= instructions(), reason=f"this processor lacks {needs}"),
    )
    for way, needs in _NEEDS.items()
]  # fmt: skip


@pytest.fixture(params=[pytest.param(("#define EMULATED\n", "amx"), id="arrays"), *_REAL])
def way(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Return what stands before the source, so that tiles are arrays or real ones, and what follows it."""
    before, way = request.param
    return before, way


def multiplied(x: Any, y: Any, way: tuple[str, str]) -> Any:
    compiler, d = NATIVE.compiler(), NAMES[x.dtype]
    assert compiler is not None
    library = compiler.library(way[0] + panels.source(d.is_integer, way[1]))
    assert library.tb_ready()
    lead = np.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    call = Call(
        op="matmul", dtypes=(d, d), shapes=(x.shape, y.shape), attrs={}, out_dtype=d,
        out_shape=(*lead, x.shape[-2], y.shape[-1]), index=0,
    )  # fmt: skip
    return panels.product(call, compiler, library)(x, y)


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
def test_bfloat16(shapes: str, how: str, way: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in SHAPES[shapes])
    wanted = np.matmul(x.astype("f8"), y.astype("f8"))
    got = multiplied(laid(x, how), laid(y, how), way)
    assert got.dtype == x.dtype
    sizes = np.matmul(abs(x.astype("f8")), abs(y.astype("f8")))
    assert (abs(got.astype("f8") - wanted) <= abs(wanted) * 2**-8 + sizes * 1e-6).all()


@pytest.mark.parametrize("how", ["packed", "turned", "spread"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_bytes_wrap(shapes: str, dtype: str, how: str, way: tuple[str, str]) -> None:
    rng, bounds = np.random.default_rng(0), np.iinfo(dtype)
    x, y = (rng.integers(bounds.min, bounds.max, s, dtype, endpoint=True) for s in SHAPES[shapes])
    wanted = np.matmul(x.astype("i8"), y.astype("i8")).astype(dtype)
    np.testing.assert_array_equal(multiplied(laid(x, how), laid(y, how), way), wanted)


def test_what_is_not_a_number_stays_where_it_is(way: tuple[str, str]) -> None:
    x = np.ones((40, 64), ml_dtypes.bfloat16)
    x[3, 9], x[7, 60], x[9, 0] = np.nan, np.inf, -np.inf
    got = multiplied(x, np.ones((64, 40), ml_dtypes.bfloat16), way).astype("f4")
    wanted = np.full((40, 40), 64, "f4")
    wanted[3], wanted[7], wanted[9] = np.nan, np.inf, -np.inf
    np.testing.assert_array_equal(got, wanted)


def test_what_is_not_a_number_comes_of_zero_times_infinity_and_of_overflow(way: tuple[str, str]) -> None:
    x, y = (np.ones((33, 33), ml_dtypes.bfloat16) for _ in range(2))
    x[1, 32], y[32, 2] = 0, np.inf  # in the same step as what is filled up
    x[5, :2], y[:2, 7] = 3e38, -3e38
    got = multiplied(x, y, way).astype("f4")
    assert np.isnan(got[1, 2])
    assert got[5, 7] == -np.inf
    assert (np.delete(got[:, 2], 1) == np.inf).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("depth", [64, 65, 4097])
def test_bytes_as_far_as_they_go_do_not_saturate(depth: int, dtype: str, way: tuple[str, str]) -> None:
    bounds = np.iinfo(dtype)
    for a, b in ((bounds.min, bounds.min), (bounds.min, bounds.max), (bounds.max, bounds.max)):
        x, y = np.full((35, depth), a, dtype), np.full((depth, 37), b, dtype)
        x[::2, ::3], y[::5, 1::2] = 1, bounds.max
        wanted = np.matmul(x.astype("i8"), y.astype("i8")).astype(dtype)
        np.testing.assert_array_equal(multiplied(x, y, way), wanted)


def test_results_do_not_depend_on_the_rows_beside(way: tuple[str, str]) -> None:
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((70, 2100), (2100, 70)))
    whole = multiplied(x, y, way)
    for rows in (1, 7, 8, 9, 31, 33, 63):
        np.testing.assert_array_equal(multiplied(x[:rows], y, way), whole[:rows])
        np.testing.assert_array_equal(multiplied(x, y[:, :rows], way), whole[:, :rows])


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "uint8"])
def test_the_fastest_way_that_the_processor_knows_is_taken(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, d = NATIVE.compiler(), getattr(dtypes, dtype)
    assert compiler is not None
    taken: list[str] = []

    def known(text: str) -> Any:
        taken.append(next(w for w in _NEEDS if text == panels.source(d.is_integer, w)))
        if taken[-1] == "amx":
            raise DeviceError("the compiler does not know it")
        return SimpleNamespace(tb_ready=lambda: 1)

    monkeypatch.setattr(panels, "instructions", lambda: _NEEDS["amx"] | _NEEDS["avx512"])
    result = panels._library.__wrapped__(SimpleNamespace(library=known), d)
    assert result is not None
    assert taken == ["amx", "avx512"]
    monkeypatch.setattr(panels, "instructions", lambda: frozenset({"avx512f"}))
    assert panels._library.__wrapped__(SimpleNamespace(library=known), d) is None


def test_only_large_products_of_dtypes_with_tiles_are_taken() -> None:
    def of(d: Any, m: int) -> Call:
        shape = (m, m)
        return Call(
            op="matmul", dtypes=(d, d), shapes=(shape, shape), attrs={}, out_dtype=d, out_shape=shape, index=0
        )

    assert panels.gemm(of(dtypes.float32, 512)) is None
    assert panels.gemm(of(dtypes.bfloat16, 8)) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("shapes", [((0, 70), (70, 40)), ((40, 0), (0, 40)), ((3, 40, 70), (3, 70, 0))])
def test_products_of_nothing_are_left_to_numpy(shapes: Any, dtype: str) -> None:
    x, y = (tb.zeros(shape, dtype=dtype, device="cpu") for shape in shapes)
    out = (*shapes[0][:-1], shapes[1][-1])
    np.testing.assert_array_equal((x @ y).numpy().astype("f4"), np.zeros(out, "f4"))


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("shapes", [((33, 32), (32, 33)), ((9, 1000), (1000, 70)), ((1, 700), (700, 700))])
def test_compiled_products_are_the_eager_ones(shapes: Any, dtype: str) -> None:
    rng = np.random.default_rng(5)
    x, y = (tb.asarray(rng.integers(-9, 9, s).astype("f4"), device="cpu").to(dtype) for s in shapes)
    compiled = tb.compile(lambda x, y: tb.maximum(x @ y + 1, 0))
    np.testing.assert_array_equal(compiled(x, y).numpy(), tb.maximum(x @ y + 1, 0).numpy())


@pytest.mark.parametrize("shapes", [((200, 160), (160, 128)), ((3, 70, 96), (96, 300))], ids=str)
def test_products_of_bytes_have_a_grid_of_their_own(shapes: Any) -> None:
    """Each operand is packed by other pieces than the product is computed in."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes)
    wanted = np.matmul(x.astype(np.int64), y.astype(np.int64)).astype(np.int8)
    np.testing.assert_array_equal(tb.matmul(tb.asarray(x), tb.asarray(y)).numpy(), wanted)
