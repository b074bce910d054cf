"""The numbers of generated CUDA C++ where there is no card: the host runs it, whose threads take turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import pytest
import tensorbus as tb
from fused import program_of, record, spec
from tensorbus.dtypes import definition as dt
from tensorbus.lowering.codegen.dialect import Dialect
from tensorbus.lowering.program.program import steps_of
from tensorbus.ops.definition import table
from tensorbus_cuda.dialect import THREADS, dialect

from cuda_host import CANNOT, run
from error_bounds import assert_within, gamma

pytestmark = [
    pytest.mark.skipif(CANNOT, reason="CUDA C++ runs on the host on Linux, by a C++ compiler"),
    pytest.mark.usefixtures("cupy_or_names"),
]
RNG = np.random.default_rng(0)
SMALL, LARGE = dialect(2), dialect(132)
LONG = [(1, 40_961), (9, 24_576), (2, 70_001)]


def ran(
    function: Callable[..., Any], *arrays: Any, language: Dialect = SMALL, blocks: int = 0,
    dtypes: tuple[Any, ...] = (),
) -> list[Any]:  # fmt: skip
    """Return a function's results; in ``blocks`` of each axis at most, which loop over the whole of it."""
    from tensorbus_cuda.kernel_launch import sizes

    def shape(launch: Any) -> Any:
        wanted, threads = sizes(launch)
        return tuple(min(n, blocks or n) for n in wanted), threads

    kinds = dtypes or [dt.dtype(x.dtype.name) for x in arrays]
    specs = [spec(*x.shape, dtype=d) for x, d in zip(arrays, kinds, strict=True)]
    _, program = program_of(record(function, *specs), language.target)
    return run(program, language, arrays, shape)


@pytest.mark.parametrize("most", [0, 64, 128, 512, 1024])
@pytest.mark.parametrize("shape", [(8,), (100_003,), (130, 96), (3, 24_576), (64, 3, 5, 7)], ids=str)
def test_no_block_is_larger_than_what_kernels_are_compiled_for(shape: tuple[int, ...], most: int) -> None:
    """CUDA refuses to launch one that is."""
    from tensorbus_cuda.kernel_launch import sizes

    def several(x: Any) -> Any:
        return x * 2, tb.softmax(x, axis=-1), tb.sum(x, axis=0), tb.cumulative_sum(x, axis=-1)

    _, program = program_of(record(several, spec(*shape)), LARGE.target)
    for step in chain.from_iterable(map(steps_of, program.steps)):
        _, threads = sizes(replace(step.launch, most=most))
        assert 0 < prod(threads) <= max(step.launch.group or 0, THREADS)


@pytest.mark.parametrize("shape", [(9, 70, 16, 9), (40, 150, 9, 5), (3, 80, 2, 12, 13)], ids=str)
def test_reductions_around_kept_axes(shape: tuple[int, ...]) -> None:
    """Leading and last axes are reduced by one launch, a workgroup to each result."""
    x = RNG.integers(-9, 9, shape).astype("f4")
    over = (0, *range(2, len(shape)))

    def statistics(x: Any) -> Any:
        centred = x - tb.mean(x, axis=over, keepdims=True)
        return tb.mean(centred * centred, axis=over, keepdims=True), tb.max(x, axis=over)

    variance, largest = ran(statistics, x, blocks=7)
    exact = x.astype("f8").var(over, keepdims=True)
    assert_within(variance, exact, 4 * gamma(x.size // shape[1], "float32") * exact.max())
    np.testing.assert_array_equal(largest, x.max(over))
    _, program = program_of(record(lambda x: tb.sum(x, axis=over), spec(*shape)), LARGE.target)
    assert len([*chain.from_iterable(map(steps_of, program.steps))]) == 1


@pytest.mark.parametrize("language", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("shape", [(130, 96), (40, 513), *LONG], ids=str)
def test_rows(shape: tuple[int, int], language: Dialect) -> None:
    x = RNG.integers(-99, 99, shape).astype("f4")
    x[-1, 50:] = np.nan

    def all_of(x: Any) -> Any:
        return (
            *(f(x, axis=1) for f in (tb.max, tb.argmax, tb.argmin)),
            tb.sum(tb.where(x == x, x, 0.0), axis=1),
        )

    largest, first, least, total = ran(all_of, x, language=language, blocks=3)
    np.testing.assert_array_equal(largest, x.max(1))
    np.testing.assert_array_equal(first, x.argmax(1))
    np.testing.assert_array_equal(least, x.argmin(1))
    np.testing.assert_array_equal(total, np.nansum(x, 1))


@pytest.mark.parametrize("language", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("shape", [(2048, 96), (64, 8), (32, 2000)], ids=str)
@pytest.mark.parametrize("maps", [False, True], ids=["", "beside a map"])
def test_updates_behind_sums_of_columns_are_written_over_what_they_read(
    shape: tuple[int, int], language: Dialect, maps: bool
) -> None:
    """So does the step of a bias: other rows have read the old ones before, and what is updated stays put."""
    from tensorbus_cuda.kernel_launch import sizes

    def update(p: Any, m: Any, g: Any) -> tuple[Any, ...]:
        map_of_all = g * p
        average = m * 0.5 + (map_of_all if maps else g).sum(axis=0)
        return (p - average, average, *([map_of_all] if maps else []))

    p, m = (RNG.integers(-9, 9, shape[1:]).astype("f4") for _ in range(2))
    g = RNG.integers(-9, 9, shape).astype("f4")
    specs = [spec(*x.shape) for x in (p, m, g)]
    _, program = program_of(record(update, *specs), language.target, replaces={0: 0, 1: 1})
    assert program.replaceable == {0: 0, 1: 1}
    for result, expected in zip(run(program, language, [p, m, g], sizes), update(p, m, g), strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("shape", [(70, 1000), *LONG], ids=str)
def test_running_results_of_rows(shape: tuple[int, int]) -> None:
    x, many = RNG.normal(size=shape), RNG.integers(-9, 9, shape).astype("i4")

    def all_of(x: Any, many: Any) -> Any:
        named = (table.function(name)(x, axis=1) for name in ("cumulative_max", "logcumsumexp"))
        return *named, tb.cumulative_sum(many, axis=1)

    largest, logs, sums = ran(all_of, x, many, blocks=5)
    np.testing.assert_array_equal(largest, np.maximum.accumulate(x, 1))
    # a logarithm of sums of exponentials is as far off as the sums are in proportion
    exact = np.logaddexp.accumulate(x, 1)
    assert_within(logs, exact, gamma(shape[1] + 8, "float64") * (1 + abs(exact)))
    np.testing.assert_array_equal(sums, many.cumsum(1))


@pytest.mark.full
def test_more_pieces_of_a_row_than_a_group_has_items() -> None:
    many = RNG.integers(-9, 9, (1, 1_060_000)).astype("i4")
    sums, first = ran(
        lambda x: (tb.cumulative_sum(x, axis=1), tb.argmax(x, axis=1)), many, language=LARGE, blocks=200
    )
    np.testing.assert_array_equal(sums, many.cumsum(1))
    np.testing.assert_array_equal(first, many.argmax(1))


@pytest.mark.full
@pytest.mark.parametrize("shape", [(100, 512), (5, 9001), *LONG], ids=str)
def test_rows_of_many_walks(shape: tuple[int, int]) -> None:
    x = RNG.normal(size=shape)
    soft, var, less = ran(
        lambda x: (tb.softmax(x, axis=1), tb.var(x, axis=1), x - tb.max(x, axis=1, keepdims=True)),
        x, blocks=2,
    )  # fmt: skip
    e = np.exp(x)
    room = gamma(shape[1] + 8, "float64")
    assert_within(soft, e / e.sum(1, keepdims=True), room * e / e.sum(1, keepdims=True))
    assert_within(var, x.var(1), 2 * room * (x.var(1) + x.mean(1) ** 2))
    np.testing.assert_array_equal(less, x - x.max(1, keepdims=True))


@pytest.mark.full
@pytest.mark.parametrize("shape", LONG, ids=str)
def test_places_in_rows_of_several_passes(shape: tuple[int, int]) -> None:
    """The first of equal elements is found, whichever way the pass before went."""
    x = RNG.integers(-9, 9, shape).astype("f4")

    def all_of(x: Any) -> Any:
        far = tb.abs(x - tb.sum(tb.sign(x), axis=1, keepdims=True))
        return tb.argmax(far, axis=1), tb.argmin(far, axis=1), far - tb.min(far, axis=1, keepdims=True)

    far = np.abs(x - np.sign(x).sum(1, keepdims=True))
    for ours, right in zip(
        ran(all_of, x, blocks=2), (far.argmax(1), far.argmin(1), far - far.min(1, keepdims=True)), strict=True
    ):
        np.testing.assert_array_equal(ours, right)


@pytest.mark.parametrize("language", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("shape", [(1, 300_000), (3, 140_001), (40, 132_000)], ids=str)
def test_pieces_of_rows(shape: tuple[int, int], language: Dialect) -> None:
    """Too few rows for all cores: groups take pieces, which are joined in their order."""
    x = RNG.integers(-99, 99, shape).astype("f4")
    x[0, 131_000] = np.nan

    def all_of(x: Any) -> Any:
        known = tb.where(x == x, x, 0.0)
        return tb.sum(known, axis=1), tb.max(known, axis=1), tb.argmin(known, axis=1), tb.argmax(x, axis=1)

    total, most, least, first = ran(all_of, x, language=language)
    known = np.nan_to_num(x)
    np.testing.assert_array_equal(total, known.sum(1))
    np.testing.assert_array_equal(most, known.max(1))
    np.testing.assert_array_equal(least, known.argmin(1))
    np.testing.assert_array_equal(first, x.argmax(1))


@pytest.mark.full
def test_pieces_of_rows_of_two_axes() -> None:
    x, y = RNG.integers(-9, 9, (2, 700, 300)).astype("i4"), RNG.integers(-9, 9, (2, 1, 300)).astype("i4")
    (total,) = ran(lambda x, y: tb.sum(x * y, axis=(1, 2)), x, y)
    np.testing.assert_array_equal(total, (x * y).sum((1, 2)))


@pytest.mark.full
@pytest.mark.parametrize("shape", [(2000, 64), (777, 33)], ids=str)
def test_columns_in_vectors(shape: tuple[int, int]) -> None:
    """Of bfloat16, given as the bits that it has, which are the first ones of float32."""
    x = RNG.integers(-9, 9, shape).astype("f4")
    bits = (x.view("u4") >> 16).astype("u2")
    total, least, turned = ran(
        lambda x: (tb.sum(x.to(tb.float32), axis=0), tb.argmin(x, axis=0), x.T * 2),
        bits, dtypes=(dt.bfloat16,),
    )  # fmt: skip
    np.testing.assert_array_equal(total, x.sum(0))
    np.testing.assert_array_equal(least, x.argmin(0))
    np.testing.assert_array_equal((turned.astype("u4") << 16).view("f4"), 2 * x.T)


@pytest.mark.parametrize("language", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((2100, 64), 0),
        ((40, 3400), 0),
        ((9, 15_000), 0),
        ((3, 700, 72), 1),
        ((5, 30, 900), 1),
        ((70_000, 2), 0),
    ],
    ids=str,
)
def test_groups_go_down_columns(shape: tuple[int, ...], axis: int, language: Any) -> None:
    """Sums that are walked together, with what is stored on the way, and places."""
    x, y = (RNG.integers(-99, 99, shape).astype("f4") for _ in range(2))

    def several(x: Any, y: Any) -> Any:
        z = x * y
        return tb.sum(z, axis=axis), tb.max(x, axis=axis), z, tb.argmin(y, axis=axis), tb.sum(x, axis=axis)

    total, most, product, place, whole = ran(several, x, y, language=language)
    np.testing.assert_array_equal(total, (x * y).sum(axis))
    np.testing.assert_array_equal(most, x.max(axis))
    np.testing.assert_array_equal(product, x * y)
    np.testing.assert_array_equal(place, y.argmin(axis))
    np.testing.assert_array_equal(whole, x.sum(axis))


@pytest.mark.full
@pytest.mark.parametrize("of", ["f8", "i8", "u1"])
def test_groups_have_fewer_items_where_states_are_wide(of: str) -> None:
    x = RNG.integers(0, 9, (3000, 48)).astype(of)
    ways = (tb.sum, tb.max, tb.min, tb.prod, tb.argmax, tb.argmin)
    result = ran(lambda x: [way(x % 3, axis=0) for way in ways], x)
    for way, one in zip(ways, result, strict=True):
        np.testing.assert_array_equal(one, getattr(np, way.__name__)(x % 3, axis=0), way.__name__)


@pytest.mark.parametrize(("rows", "wide", "count"), [(5, 1, 3000), (900, 3, 2500), (40, 64, 70)])
def test_indices_that_name_one_row_often(rows: int, wide: int, count: int) -> None:
    value = RNG.integers(-99, 99, (count, wide)).astype("i4")
    i = RNG.integers(0, rows, count)
    scatter = table.function("scatter")

    def all_of(x: Any, value: Any, i: Any) -> Any:
        floats = scatter(x.to(tb.float64), value.to(tb.float64), i, mode="add")
        return *(scatter(x, value, i, mode=mode) for mode in ("set", "add", "max")), floats

    x = np.zeros((rows, wide), "i4")
    actual = ran(all_of, x, value, i)
    wanted = [x.copy() for _ in range(3)]
    wanted[0][i] = value  # the last one wins
    np.add.at(wanted[1], i, value)
    np.maximum.at(wanted[2], i, value)
    for one, other in zip(actual, [*wanted, wanted[1]], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.full
@pytest.mark.parametrize("of", ["f4", "f2", "f8", "i4", "u1", "c8"])
@pytest.mark.parametrize(("shape", "count"), [((5, 40), 300), ((2, 1, 3, 33), 7), ((3, 6000), 5000)], ids=str)
def test_indices_along_rows(shape: tuple[int, ...], count: int, of: str) -> None:
    x = RNG.integers(0, 3, shape).astype(of)
    i = RNG.integers(-shape[-1], shape[-1], (*shape[:-1], count))
    i[0, ..., :100] = 2  # all of many neighbours name one place
    value = RNG.integers(0, 3, i.shape).astype(of)
    along = table.function("scatter_along_axis")
    modes = ("set", "add", "multiply") if of == "c8" else ("set", "add", "multiply", "min", "max")
    actual = ran(lambda x, i, v: tuple(along(x, i, v, axis=-1, mode=m) for m in modes), x, i, value)
    for mode, one in zip(modes, actual, strict=True):
        wanted = x.copy()
        places = (*np.indices(i.shape)[:-1], i)
        if mode == "set":
            for at in np.ndindex(i.shape):  # in order
                wanted[(*at[:-1], i[at])] = value[at]
        else:
            name = {"min": "minimum", "max": "maximum"}.get(mode, mode)
            getattr(np, name).at(wanted, places, value)
        np.testing.assert_array_equal(one, wanted, mode)


@pytest.mark.full
@pytest.mark.parametrize("of", ["f2", "f8", "c8", "c16", "u1", "i8"])
def test_sums_of_other_dtypes(of: str) -> None:
    x = RNG.integers(0, 3, (6, 1000)).astype(of)
    rows, columns = ran(lambda x: (tb.sum(x, axis=1), tb.sum(x, axis=0)), x)
    np.testing.assert_array_equal(rows.astype("c16"), x.astype("c16").sum(1))
    np.testing.assert_array_equal(columns.astype("c16"), x.astype("c16").sum(0))


@pytest.mark.parametrize("language", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    "shape", [(70_000,), (300, 700), (3, 100_001), (40, 7, 999), (1, 131_072, 2)], ids=str
)
def test_everything_is_reduced_by_one_kernel(shape: tuple[int, ...], language: Dialect) -> None:
    """The last group, which sees what the others stored, joins it; all counts are 0 again behind it."""
    x = RNG.integers(-9, 9, shape).astype("f4")
    x.flat[[-2, 77, 60_000]] = 50.0, 50.0, -50.0

    def all_of(x: Any) -> Any:
        return tb.sum(x), tb.max(x), tb.mean(x * x), tb.argmax(tb.reshape(x, (-1,))), tb.any(x > 49.5)

    total, most, mean, first, any_of = ran(all_of, x, language=language, blocks=5)
    assert (total, most, first, any_of) == (x.sum(dtype="f8"), 50.0, 77, True)
    exact = np.mean(x.astype("f8") ** 2)
    assert_within(mean, exact, gamma(x.size + 2, "float32") * exact)
    (least,) = ran(lambda x: tb.argmin(tb.reshape(x, (-1,))), x, language=language)
    assert least == 60_000


@pytest.mark.full
@pytest.mark.parametrize("of", ["f2", "c8", "u1", "i8"])
def test_sums_of_everything_in_other_dtypes(of: str) -> None:
    x = RNG.integers(0, 3, (4, 10_000)).astype(of)
    twice, total, rows = ran(lambda x: (x + x, tb.sum(x), tb.sum(x, axis=1)), x)
    wide = x.astype("c8" if of == "c8" else "f8")
    np.testing.assert_array_equal(twice, x + x)
    np.testing.assert_array_equal(total, wide.sum().astype(total.dtype))
    np.testing.assert_array_equal(rows, wide.sum(1).astype(rows.dtype))


@pytest.mark.parametrize("shape", [(3, 60), (2, 4096), (1, 20_001), (5, 12_288)], ids=str)
def test_booleans_are_parted_in_two(shape: tuple[int, int]) -> None:
    x = RNG.random(shape) < 0.3
    x[0] = False
    order, back, sorted_ = ran(
        lambda x: (tb.argsort(x, axis=1), tb.argsort(x, axis=1, descending=True), tb.sort(x, axis=1)), x
    )
    np.testing.assert_array_equal(order, np.argsort(x, axis=1, kind="stable"))
    np.testing.assert_array_equal(back, np.argsort(~x, axis=1, kind="stable"))
    np.testing.assert_array_equal(sorted_, np.sort(x, axis=1))


def test_barriers_that_lack_show() -> None:
    x = RNG.integers(-99, 99, (3, 9000)).astype("f4")
    (whole,) = ran(lambda x: tb.sum(x, axis=1), x)
    np.testing.assert_array_equal(whole, x.sum(1))
    without = replace(SMALL, barrier="(void)0")
    (wrong,) = ran(lambda x: tb.sum(x, axis=1), x, language=without)
    assert (wrong != whole).any()
